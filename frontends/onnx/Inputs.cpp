// Reads the inputs of a model and fixes their dimensions; later drops those
// that the loss does not depend on. For integer inputs that select rows of a
// table or classes of a loss, the legal range is derived from the ops that they
// reach, so that the program can report a bad sample by name instead of reading
// past a table.
#include "frontends/onnx/Inputs.h"

#include "frontends/onnx/Emitter.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

FailureOr<ModelInputs> frontend::readInputs(const ModelFile &model,
                                            const ParameterTable &parameters,
                                            const fsdp::CompileOptions &options,
                                            MLIRContext *context) {
  Location loc = UnknownLoc::get(context);
  ModelInputs result;
  std::vector<std::string> unfixed, used;
  for (const onnx::ValueInfoProto &input : model.proto.graph().input()) {
    if (parameters.find(input.name()))
      continue;
    auto refuse = [&](const Twine &why) -> FailureOr<ModelInputs> {
      return emitError(loc) << "input '" << input.name() << "' of '"
                            << model.path << "' " << why;
    };
    const auto &type = input.type().tensor_type();
    Type element = importedType(type.elem_type(), context);
    if (!input.type().has_tensor_type() || !element)
      return refuse("has an unsupported element type");
    if (!type.has_shape())
      return refuse("has no shape; export with static shapes, or with named "
                    "dimensions and --dim NAME=VALUE");
    Shape shape;
    for (auto [i, dim] : llvm::enumerate(type.shape().dim())) {
      if (dim.has_dim_value()) {
        shape.push_back(dim.dim_value());
        continue;
      }
      if (dim.dim_param().empty())
        return refuse("has a dynamic dimension " + Twine(i) +
                      " without a name; export with static shapes, or name the "
                      "dimension and set it with --dim NAME=VALUE");
      auto fixed = options.dims.find(dim.dim_param());
      if (fixed == options.dims.end()) {
        if (!llvm::is_contained(unfixed, dim.dim_param()))
          unfixed.push_back(dim.dim_param());
        shape.push_back(1);
        continue;
      }
      used.push_back(dim.dim_param());
      shape.push_back(fixed->second);
    }
    std::optional<int64_t> count = countElements(shape);
    if (!count || *count == 0)
      return refuse("has a dimension of 0 or less, or too many elements");
    result.names.push_back(input.name());
    result.types.push_back(RankedTensorType::get(shape, element));
  }
  for (const auto &[name, value] : options.dims)
    if (!llvm::is_contained(used, name))
      return emitError(loc)
                 << "no input of '" << model.path << "' has dimension '" << name
                 << "' (--dim " << name << "=" << value << ")",
             failure();
  if (!unfixed.empty()) {
    InFlightDiagnostic error = emitError(loc);
    error << "'" << model.path
          << "' has symbolic dimensions without a value; set them with";
    for (const std::string &name : unfixed)
      error << " --dim " << name << "=VALUE";
    return failure();
  }
  return result;
}

namespace {
// The range from which an integer input selects: the smallest table or number
// of classes that it reaches.
struct Selection {
  int64_t bound = INT64_MAX;
  bool fromTable = false;
  std::optional<int64_t> ignored;
};
} // namespace

// Follows a value through ops that only move integers to those that select.
static void follow(Value value, Selection &selection,
                   llvm::SmallPtrSet<Value, 8> &seen) {
  if (!seen.insert(value).second)
    return;
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    if (isa<nn::ReshapeOp, nn::TransposeOp, nn::SliceOp, nn::ConcatOp,
            nn::BroadcastOp, nn::PadOp>(user) ||
        (isa<nn::CastOp>(user) &&
         isa<IntegerType>(elementOf(user->getResult(0))) &&
         !elementOf(user->getResult(0)).isInteger(1))) {
      follow(user->getResult(0), selection, seen);
    } else if (auto lookup = dyn_cast<nn::EmbeddingOp>(user);
               lookup && use.getOperandNumber() == 1) {
      selection.bound =
          std::min(selection.bound, shapeOf(lookup.getTable())[0]);
      selection.fromTable = true;
    } else if (auto loss = dyn_cast<nn::CrossEntropyOp>(user)) {
      selection.bound = std::min(selection.bound, shapeOf(loss.getLogits())[1]);
      if (std::optional<uint64_t> index = loss.getIgnoreIndex())
        selection.ignored = int64_t(*index);
    }
  }
}

void frontend::finishInputs(func::FuncOp function) {
  Builder b(function.getContext());
  for (unsigned i = function.getNumArguments(); i-- > 0;) {
    BlockArgument argument = function.getArgument(i);
    if (argument.use_empty()) {
      auto name = function.getArgAttrOfType<StringAttr>(
          i, fsdp::FSDPDialect::kInputAttr);
      emitRemark(argument.getLoc())
          << "input '" << name.getValue()
          << "' does not affect the loss; the program does not read it";
      (void)function.eraseArgument(i);
      continue;
    }
    if (!isa<IntegerType>(elementOf(argument)))
      continue;
    Selection selection;
    llvm::SmallPtrSet<Value, 8> seen;
    follow(argument, selection, seen);
    if (selection.bound == INT64_MAX)
      continue;
    function.setArgAttr(i, fsdp::FSDPDialect::kBoundAttr,
                        b.getI64IntegerAttr(selection.bound));
    if (selection.ignored && !selection.fromTable)
      function.setArgAttr(i, fsdp::FSDPDialect::kIgnoredAttr,
                          b.getI64IntegerAttr(*selection.ignored));
  }
}
