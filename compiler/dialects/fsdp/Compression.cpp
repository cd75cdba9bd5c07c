// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the hooks top-k and power-sgd change layouts (Compression.h), and the
// rule that all phases check: every rank adds what all ranks send, so all must
// send as much.
#include "compiler/dialects/fsdp/Compression.h"

#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/options/OptionTypes.h"
#include "runtime/abi/top_k.h"
#include "runtime/support/concat.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace fsdpc::fsdp {

Compression compressionOf(LayoutOp layout) {
  Compression found;
  found.topK = layout.getTopK().value_or(0);
  found.powerRank = layout.getPowerSgd().value_or(0);
  return found;
}

Compression wantedCompression(const CompileOptions &options, int64_t elements,
                              ArrayRef<ArrayRef<int64_t>> shapes) {
  const ReduceHook *hook = residualHook(options);
  if (!hook)
    return {};
  if (hook->kind == ReduceHook::Kind::TopK)
    return {chosenElements(elements, hook->number), 0};
  bool compresses = llvm::any_of(shapes, [&](ArrayRef<int64_t> shape) {
    return powerShapeOf(shape).isCompressed(hook->rank);
  });
  return {0, compresses ? hook->rank : 0};
}

// The verifier has checked that every member is a parameter.
static SmallVector<ArrayRef<int64_t>> shapesOf(LayoutOp layout,
                                               const SymbolTable &symbols) {
  SmallVector<ArrayRef<int64_t>> shapes;
  for (auto member : layout.getMembers().getAsRange<MemberAttr>()) {
    auto parameter =
        symbols.lookup<ParameterOp>(member.getParameter().getAttr());
    shapes.push_back(cast<RankedTensorType>(parameter.getType()).getShape());
  }
  return shapes;
}

PowerSizes powerSizesOf(LayoutOp layout, const SymbolTable &symbols) {
  PowerSizes sizes;
  for (ArrayRef<int64_t> shape : shapesOf(layout, symbols))
    sizes.add(powerShapeOf(shape), compressionOf(layout).powerRank);
  return sizes;
}

static std::string describe(Compression compression) {
  if (compression.topK)
    return concat("top_k ", compression.topK);
  return compression.powerRank ? concat("power_sgd ", compression.powerRank)
                               : "all elements";
}

// The options are checked for what cannot; a layout may have been edited.
LogicalResult verifyCompression(LayoutOp layout, Strategy strategy,
                                const CompileOptions &options,
                                const SymbolTable &symbols) {
  Compression wanted, found = compressionOf(layout);
  if (layout.getTrainable())
    wanted = wantedCompression(options, layout.getElements(),
                               shapesOf(layout, symbols));
  if (wanted && !strategy->compresses())
    return layout.emitOpError("breaks rule 'compression': layout '")
           << layout.getSymName() << "' is of strategy '" << nameOf(strategy)
           << "', which reduces all elements";
  if (found == wanted)
    return success();
  return layout.emitOpError("breaks rule 'compression': layout '")
         << layout.getSymName() << "' reduces " << describe(found)
         << ", and --reduce-hook wants " << describe(wanted);
}

} // namespace fsdpc::fsdp
