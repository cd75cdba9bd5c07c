// Text form and constraints of the attributes that hold kernel plans.
#include "compiler/dialects/nn/NNAttributes.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace fsdpc::nn;

// Stages are written as `lanes`, or as `outer * lanes` if there is a loop
// around the lanes' loop.
static ParseResult parseStages(AsmParser &parser, SmallVector<int64_t> &outer,
                               SmallVector<int64_t> &lanes) {
  return parser.parseCommaSeparatedList([&]() -> ParseResult {
    int64_t first = 0, second = 0;
    if (parser.parseInteger(first))
      return failure();
    bool isNest = succeeded(parser.parseOptionalStar());
    if (isNest && parser.parseInteger(second))
      return failure();
    outer.push_back(isNest ? first : 1);
    lanes.push_back(isNest ? second : first);
    return success();
  });
}

static void printStages(AsmPrinter &printer, ArrayRef<int64_t> outer,
                        ArrayRef<int64_t> lanes) {
  llvm::interleaveComma(llvm::zip_equal(outer, lanes), printer.getStream(),
                        [&](auto stage) {
                          auto [times, count] = stage;
                          if (times != 1)
                            printer << times << " * ";
                          printer << count;
                        });
}

#define GET_ATTRDEF_CLASSES
#include "compiler/dialects/nn/NNAttributes.cpp.inc"

void NNDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "compiler/dialects/nn/NNAttributes.cpp.inc"
      >();
}

LogicalResult
KernelPlanAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                       KernelTemplate, int64_t rows, ArrayRef<int64_t> outer,
                       ArrayRef<int64_t> lanes, int64_t extent, int64_t grain,
                       int64_t blocks, int64_t blockLanes, bool,
                       int64_t rowsPerBlock, int64_t stackBytes) {
  auto atLeast = [&](llvm::StringRef name, int64_t value,
                     int64_t least) -> LogicalResult {
    if (value >= least)
      return success();
    return emitError() << "'" << name << "' of a kernel plan is " << value
                       << "; it must be at least " << least;
  };
  for (int64_t count : llvm::concat<const int64_t>(outer, lanes))
    if (failed(atLeast("stages", count, 1)))
      return failure();
  return success(succeeded(atLeast("rows", rows, 1)) &&
                 succeeded(atLeast("extent", extent, 1)) &&
                 succeeded(atLeast("grain", grain, 1)) &&
                 succeeded(atLeast("blocks", blocks, 1)) &&
                 succeeded(atLeast("block_lanes", blockLanes, 0)) &&
                 succeeded(atLeast("rows_per_block", rowsPerBlock, 1)) &&
                 succeeded(atLeast("stack", stackBytes, 0)));
}
