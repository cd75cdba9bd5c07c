// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Text form and constraints of the attributes. They can be edited in dumps, so
// whatever the text alone shows to be wrong is refused here; verify-kernels
// then checks a plan against its kernel.
#include "compiler/dialects/nn/NNAttributes.h"

#include "compiler/dialects/nn/NNDialect.h"

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
    // The first number is the outer loop's only if a star follows.
    bool isNest = succeeded(parser.parseOptionalStar());
    if (isNest && parser.parseInteger(second))
      return failure();
    outer.push_back(isNest ? first : 1);
    lanes.push_back(isNest ? second : first);
    return success();
  });
}

// Leaves out an outer loop of one iteration, which the parser adds again.
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

// Modules are written as `"path": "class"` each.
static ParseResult parseModules(AsmParser &parser,
                                SmallVector<StringAttr> &paths,
                                SmallVector<StringAttr> &classes) {
  return parser.parseCommaSeparatedList([&] {
    std::string path, cls;
    if (parser.parseString(&path) || parser.parseColon() ||
        parser.parseString(&cls))
      return failure();
    paths.push_back(StringAttr::get(parser.getContext(), path));
    classes.push_back(StringAttr::get(parser.getContext(), cls));
    return success();
  });
}

static void printModules(AsmPrinter &printer, ArrayRef<StringAttr> paths,
                         ArrayRef<StringAttr> classes) {
  llvm::interleaveComma(llvm::zip_equal(paths, classes), printer.getStream(),
                        [&](auto entry) {
                          auto [path, cls] = entry;
                          printer.printString(path.getValue());
                          printer << ": ";
                          printer.printString(cls.getValue());
                        });
}

#define GET_ATTRDEF_CLASSES
#include "compiler/dialects/nn/NNAttributes.cpp.inc"

// Defined here because the storage classes of the attributes are complete only
// in this file.
void NNDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "compiler/dialects/nn/NNAttributes.cpp.inc"
      >();
}

namespace {

using EmitError = llvm::function_ref<InFlightDiagnostic()>;

// Emits an error that names the attribute, the number and its bound.
LogicalResult atLeast(EmitError emitError, llvm::StringRef attribute,
                      llvm::StringRef name, int64_t value, int64_t least) {
  if (value >= least)
    return success();
  return emitError() << "'" << name << "' of a " << attribute << " is " << value
                     << "; it must be at least " << least;
}

} // namespace

// Checks only that each number is in range, which holds without the kernel.
// verify-kernels checks that the plan describes its kernel.
LogicalResult KernelPlanAttr::verify(EmitError emitError, KernelTemplate,
                                     int64_t rows, ArrayRef<int64_t> outer,
                                     ArrayRef<int64_t> lanes, int64_t extent,
                                     int64_t grain, int64_t blocks,
                                     int64_t blockLanes, bool,
                                     int64_t rowsPerBlock, int64_t stackBytes) {
  auto check = [&](llvm::StringRef name, int64_t value, int64_t least) {
    return succeeded(atLeast(emitError, "kernel plan", name, value, least));
  };
  // Every loop of a stage runs at least once.
  for (int64_t count : llvm::concat<const int64_t>(outer, lanes))
    if (!check("stages", count, 1))
      return failure();
  return success(check("rows", rows, 1) && check("extent", extent, 1) &&
                 check("grain", grain, 1) && check("blocks", blocks, 1) &&
                 check("block_lanes", blockLanes, 0) &&
                 check("rows_per_block", rowsPerBlock, 1) &&
                 check("stack", stackBytes, 0));
}

// Likewise; verify-grids checks a grid against its kernel. An optimizer's grid
// has 0 blocks, since the runtime chooses their number at each launch.
LogicalResult GridAttr::verify(EmitError emitError, int64_t blocks,
                               int64_t threads, ArrayRef<int64_t> widths,
                               int64_t vectors, int64_t team, bool,
                               int64_t across, int64_t tableRows) {
  auto check = [&](llvm::StringRef name, int64_t value, int64_t least) {
    return succeeded(atLeast(emitError, "grid", name, value, least));
  };
  for (int64_t width : widths)
    if (!check("widths", width, 1))
      return failure();
  return success(check("blocks", blocks, 0) && check("threads", threads, 1) &&
                 check("vectors", vectors, 1) && check("team", team, 1) &&
                 check("across", across, 1) &&
                 check("table_rows", tableRows, 1));
}

LogicalResult ModulesAttr::verify(EmitError emitError,
                                  ArrayRef<StringAttr> paths,
                                  ArrayRef<StringAttr> classes) {
  if (!paths.empty() && paths.size() == classes.size())
    return success();
  return emitError() << "modules have " << paths.size() << " paths and "
                     << classes.size()
                     << " classes; expected at least one, and as many of each";
}

bool ModulesAttr::isCall(StringRef cls) {
  return cls.starts_with("aten.") || cls.starts_with("prims.") ||
         cls.starts_with("_operator.") || cls.ends_with(".default");
}

// Names a value in dumps: "h_0_attn_softmax" for the call "softmax_1" in the
// module "h.0.attn". The number of a call says nothing, and MLIR adds one where
// a name comes again.
OpAsmAliasResult ModulesAttr::getAlias(raw_ostream &os) const {
  ArrayRef<StringAttr> paths = getPaths();
  std::string name = paths.back().str();
  if (isCall(getClasses().back())) {
    StringRef module;
    if (paths.size() > 1)
      module = paths.drop_back().back();
    name = (module + "_" + StringRef(name).rtrim("0123456789")).str();
  }
  for (char &c : name)
    if (!llvm::isAlnum(c))
      c = '_';
  StringRef trimmed = StringRef(name).trim('_');
  os << (trimmed.empty() ? "root" : trimmed);
  return OpAsmAliasResult::FinalAlias;
}
