// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How hooks that compress change layouts (Compression.h), and the rule that all
// phases check: every rank adds what all ranks send, so all must send as much.
#include "compiler/dialects/fsdp/Compression.h"

#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/options/OptionTypes.h"
#include "runtime/abi/compressions.h"
#include "runtime/support/concat.h"

using namespace mlir;

namespace fsdpc::fsdp {

OptionalParseResult parseCompression(OpAsmParser &parser,
                                     CompressionAttr &compression) {
  for (const CompressionInfo *info : compressions()) {
    if (failed(parser.parseOptionalKeyword(info->keyword)))
      continue;
    int64_t amount;
    if (failed(parser.parseInteger(amount)))
      return failure();
    compression = CompressionAttr::get(parser.getContext(), info->name, amount);
    return success();
  }
  return std::nullopt;
}

// The verifier has not run yet if the op is printed in one of its errors.
void printCompression(OpAsmPrinter &printer, LayoutOp,
                      CompressionAttr compression) {
  const CompressionInfo *info = findCompression(compression.getKind());
  printer << (info ? StringRef(info->keyword) : compression.getKind()) << " "
          << compression.getAmount();
}

Compression compressionOf(LayoutOp layout) {
  CompressionAttr compression = layout.getCompressionAttr();
  if (!compression)
    return {};
  return {compression.getKind().str(), compression.getAmount()};
}

Compression wantedCompression(const CompileOptions &options, int64_t elements,
                              const MemberShapes &shapes) {
  const ReduceHook *hook = residualHook(options);
  int64_t amount =
      hook ? hook->compression->amountFor(hook->number, elements, shapes) : 0;
  if (amount == 0)
    return {};
  return {hook->compression->name, amount};
}

// The verifier has checked that every member is a parameter.
MemberShapes shapesOf(LayoutOp layout, const SymbolTable &symbols) {
  MemberShapes shapes;
  for (auto member : layout.getMembers().getAsRange<MemberAttr>()) {
    auto parameter =
        symbols.lookup<ParameterOp>(member.getParameter().getAttr());
    shapes.push_back(
        cast<RankedTensorType>(parameter.getType()).getShape().vec());
  }
  return shapes;
}

static std::string describe(const Compression &compression) {
  return compression
             ? concat(infoOf(compression).keyword, " ", compression.amount)
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
