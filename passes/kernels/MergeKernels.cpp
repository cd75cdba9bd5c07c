// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// merge-kernels: keeps one kernel of each set with equal structure, so that the
// layers of a model share kernels and compile times do not grow with depth.
#include "compiler/dialects/nn/LibraryOps.h"
#include "passes/kernels/Passes.h"

#include "mlir/IR/AsmState.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_MERGEKERNELS
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// Returns the text of the function without its name and locations. Two kernels
// with equal text compute the same. Values are numbered within each kernel, so
// their names do not matter.
std::string structureOf(func::FuncOp kernel) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << kernel.getFunctionType() << kernel->getDiscardableAttrDictionary();
  AsmState names(kernel,
                 OpPrintingFlags().useLocalScope().printGenericOpForm());
  for (Operation &op : kernel.getBody().front()) {
    op.print(stream, names);
    stream << '\n';
  }
  return text;
}

struct MergeKernels : fsdpc::passes::impl::MergeKernelsBase<MergeKernels> {
  void runOnOperation() override {
    llvm::StringMap<StringAttr> first; // by structure
    DenseMap<Attribute, FlatSymbolRefAttr> replacement;
    for (auto kernel :
         llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>())) {
      if (!kernel->hasAttr("nn.kernel"))
        continue;
      auto [entry, isNew] =
          first.try_emplace(structureOf(kernel), kernel.getSymNameAttr());
      if (isNew)
        continue;
      replacement[kernel.getSymNameAttr()] =
          FlatSymbolRefAttr::get(entry->second);
      kernel.erase();
      ++merged;
    }
    // One walk at the end replaces all names, which keeps the pass linear in
    // the size of the module.
    getOperation().walk([&](nn::LaunchOp launch) {
      auto found = replacement.find(launch.getKernelAttr().getAttr());
      if (found != replacement.end())
        launch.setKernelAttr(found->second);
    });
  }
};

} // namespace
