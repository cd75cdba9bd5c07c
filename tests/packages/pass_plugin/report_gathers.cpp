// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A pass outside of fsdpc's sources: says how often each layout is gathered in
// a microbatch, and how many bytes that is on every rank.
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/ElementBytes.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace fsdpc;

namespace {

struct ReportGathers : PassWrapper<ReportGathers, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ReportGathers)
  StringRef getArgument() const override { return "report-gathers"; }
  StringRef getDescription() const override {
    return "Says how often each layout is gathered, and its bytes";
  }

  void runOnOperation() override {
    struct Sum {
      int64_t count = 0, bytes = 0;
    };
    llvm::MapVector<StringAttr, Sum> sums;
    getOperation().walk([&](fsdp::AllGatherOp gather) {
      for (auto [layout, result] :
           llvm::zip(gather.getLayouts().getAsRange<FlatSymbolRefAttr>(),
                     gather.getResults())) {
        Sum &sum = sums[layout.getAttr()];
        ++sum.count;
        sum.bytes += nn::tensorBytes(result.getType());
      }
    });
    for (auto &[layout, sum] : sums)
      getOperation().emitRemark("layout '")
          << layout.getValue() << "': " << sum.count << " gathers of "
          << sum.bytes << " bytes";
  }
};

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "gather_report", LLVM_VERSION_STRING,
          [] { PassRegistration<ReportGathers>(); }};
}
