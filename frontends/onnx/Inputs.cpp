// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the inputs of a model and fixes their dimensions; later drops those
// that the loss does not depend on. For integer inputs that select rows of a
// table or classes of a loss, the legal range is derived from the ops that they
// reach, so that the program can report a bad sample by name instead of reading
// past a table.
#include "frontends/onnx/Inputs.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "frontends/onnx/Budgets.h"
#include "frontends/onnx/DimensionExpression.h"
#include "frontends/onnx/Emitter.h"
#include "frontends/onnx/Node.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {

// Reads the types of inputs. Its state is the symbolic dimensions so far.
class InputReader {
public:
  InputReader(const ModelFile &model, const fsdp::CompileOptions &options,
              Refusals &refusals, MLIRContext *context)
      : model(model), options(options), refusals(refusals), context(context) {}

  // Returns the type of an input, or null after a refusal.
  RankedTensorType read(const onnx::ValueInfoProto &input);
  // Emits an error for dimensions that have no value, and for values that have
  // no dimension.
  LogicalResult checkDimensions();

private:
  // Returns the size of a symbolic dimension, or nullopt if --dim does not say
  // it.
  std::optional<int64_t> sizeOf(StringRef dimension);
  // Returns true if a dimension follows from others that --dim can set.
  bool isDerived(StringRef dimension) const;
  // Returns the input's shape, or nullopt after a refusal.
  std::optional<Shape> shapeOf(const onnx::ValueInfoProto &input);

  const ModelFile &model;
  const fsdp::CompileOptions &options;
  Refusals &refusals;
  MLIRContext *context;
  llvm::SetVector<StringRef> unfixed;
  llvm::StringSet<> used;
  // Dimensions that --dim sets to another size than their expression has, each
  // with the latter.
  std::map<std::string, int64_t> contradicted;
};

// A size that is given for the text as a whole needs none of its names.
std::optional<int64_t> InputReader::sizeOf(StringRef dimension) {
  auto given = options.dims.find(dimension.str());
  std::optional<int64_t> size;
  if (given != options.dims.end()) {
    used.insert(dimension);
    size = given->second;
  }
  SmallVector<StringRef> names = namesInExpression(dimension);
  std::optional<int64_t> derived =
      names.empty() ? std::nullopt : evaluateDimension(dimension, options.dims);
  if (!derived)
    return size;
  used.insert_range(names);
  if (size && *size != *derived)
    contradicted[dimension.str()] = *derived;
  return size ? size : derived;
}

bool InputReader::isDerived(StringRef dimension) const {
  SmallVector<StringRef> names = namesInExpression(dimension);
  return !names.empty() && llvm::all_of(names, [&](StringRef name) {
    return unfixed.contains(name) || options.dims.count(name.str());
  });
}

std::optional<Shape> InputReader::shapeOf(const onnx::ValueInfoProto &input) {
  Shape shape;
  std::optional<size_t> unnamed;
  for (auto [i, dim] :
       llvm::enumerate(input.type().tensor_type().shape().dim())) {
    if (dim.has_dim_value()) {
      shape.push_back(dim.dim_value());
      continue;
    }
    if (dim.dim_param().empty()) {
      unnamed = unnamed.value_or(i);
      continue;
    }
    std::optional<int64_t> size = sizeOf(dim.dim_param());
    if (!size)
      unfixed.insert(dim.dim_param());
    // A stand-in, so that the other checks of the input still run.
    shape.push_back(size.value_or(1));
  }
  if (!unnamed)
    return shape;
  refusals.addTensor(
      "input", input.name(),
      "has a dynamic dimension " + Twine(*unnamed) +
          " without a name; export with static shapes, or name the "
          "dimension and set it with --dim NAME=VALUE");
  return std::nullopt;
}

RankedTensorType InputReader::read(const onnx::ValueInfoProto &input) {
  auto refuse = [&](const Twine &why) {
    refusals.addTensor("input", input.name(), why);
    return RankedTensorType();
  };
  const auto &type = input.type().tensor_type();
  Type element = importedType(type.elem_type(), context);
  if (!input.type().has_tensor_type())
    return refuse(
        "is not a tensor; sequences, maps and optionals cannot be fed");
  if (!element)
    return refuse(tensorFault(type.elem_type(), {}, context));
  if (isStorageType(type.elem_type()))
    return refuse("has the element type " + nameOf(type.elem_type()) +
                  ", which cannot be fed; make it a constant");
  if (StringRef(input.name()).contains('='))
    return refuse("has a '=' in its name, where --data NAME=FILE ends one; "
                  "rename it before the export");
  if (StringRef(input.name()).contains('\0'))
    return refuse("has a zero byte in its name, where a word of the command "
                  "line ends; rename it before the export");
  if (!type.has_shape())
    return refuse("has no shape; export with static shapes, or with named "
                  "dimensions and --dim NAME=VALUE");
  std::optional<Shape> shape = shapeOf(input);
  if (!shape)
    return {};
  std::optional<int64_t> count = countElements(*shape);
  if (!count || *count == 0) {
    std::string fault = tensorFault(type.elem_type(), *shape, context);
    return refuse(fault.empty() ? "has a dimension of 0" : fault);
  }
  return RankedTensorType::get(*shape, element);
}

// Collects all symbolic dimensions without a value before it fails, so that the
// user can set them in one go.
LogicalResult InputReader::checkDimensions() {
  Location loc = UnknownLoc::get(context);
  // A --dim that no input has is most likely misspelt.
  for (const auto &[name, value] : options.dims)
    if (!used.contains(name))
      return emitError(loc)
             << "no input of '" << model.path << "' has dimension '" << name
             << "' (--dim " << name << "=" << value << ")";
  for (const auto &[name, size] : contradicted)
    return emitError(loc) << "--dim " << name << "="
                          << options.dims.find(name)->second
                          << " contradicts the other --dim, by which it is "
                          << size << "; leave it out";
  if (unfixed.empty())
    return success();
  SmallVector<StringRef> missing;
  llvm::copy_if(unfixed, std::back_inserter(missing),
                [&](StringRef name) { return !isDerived(name); });
  // Whose names have values that give no whole number, such as T/2 of an odd T.
  if (missing.empty())
    return emitError(loc) << "dimension '" << unfixed.front() << "' of '"
                          << model.path
                          << "' has no value by the given --dim; change them, "
                             "or set it with --dim '"
                          << unfixed.front() << "=VALUE'";
  InFlightDiagnostic error = emitError(loc);
  error << "'" << model.path
        << "' has symbolic dimensions without a value; set them with";
  for (StringRef name : ArrayRef(missing).take_front(20))
    error << " --dim " << name << "=VALUE";
  if (missing.size() > 20)
    error << " … (" << missing.size() << " in all)";
  refusals.attachTo(error);
  return failure();
}

} // namespace

FailureOr<ModelInputs> frontend::readInputs(const ModelFile &model,
                                            const ParameterTable &parameters,
                                            const fsdp::CompileOptions &options,
                                            Refusals &refusals,
                                            MLIRContext *context) {
  InputReader reader(model, options, refusals, context);
  ModelInputs result;
  for (const onnx::ValueInfoProto &input : model.proto.graph().input()) {
    if (parameters.find(input.name()) || refusals.hasTensor(input.name()))
      continue;
    if (RankedTensorType type = reader.read(input)) {
      result.names.push_back(input.name());
      result.types.push_back(type);
    }
  }
  if (failed(reader.checkDimensions()))
    return failure();
  // Samples number the inputs with axes, which come first.
  ModelInputs ordered;
  for (bool isScalar : {false, true})
    for (auto [name, type] : llvm::zip(result.names, result.types))
      if (cast<RankedTensorType>(type).getShape().empty() == isScalar) {
        ordered.names.push_back(name);
        ordered.types.push_back(type);
      }
  return ordered;
}

namespace {
// The range from which an integer input selects: the smallest table or number
// of classes that it reaches. A table accepts no ignored index, even if the
// same input is also the target of a loss (`fromTable`).
struct Selection {
  int64_t bound = INT64_MAX;
  bool fromTable = false;
  std::optional<int64_t> ignored;
};
} // namespace

// Returns true for ops that only move integers.
static bool movesIntegers(Operation *op) {
  // An op that looks elements up reads the input as an index.
  if (auto moves = dyn_cast<nn::ElementSourceOpInterface>(op))
    return llvm::none_of(moves.getElementSources(),
                         [](const nn::ElementSource &source) {
                           return source.dynamic.has_value();
                         });
  Type element = isa<nn::CastOp>(op) ? elementOf(op->getResult(0)) : Type();
  return element && isa<IntegerType>(element) && !element.isInteger(1);
}

// Follows a value through ops that only move integers to those that select.
static Selection selectionOf(Value value) {
  Selection selection;
  // Values may join again (a concat of two slices), so each is visited once.
  llvm::SmallPtrSet<Value, 8> seen = {value};
  SmallVector<Value> stack = {value};
  while (!stack.empty()) {
    for (OpOperand &use : stack.pop_back_val().getUses()) {
      Operation *user = use.getOwner();
      if (movesIntegers(user)) {
        if (seen.insert(user->getResult(0)).second)
          stack.push_back(user->getResult(0));
      } else if (auto lookup = dyn_cast<nn::EmbeddingOp>(user);
                 lookup && use.getOperandNumber() == 1) {
        selection.bound =
            std::min(selection.bound, shapeOf(lookup.getTable())[0]);
        selection.fromTable = true;
      } else if (auto loss = dyn_cast<nn::CrossEntropyOp>(user)) {
        selection.bound =
            std::min(selection.bound, shapeOf(loss.getLogits())[1]);
        if (std::optional<uint64_t> index = loss.getIgnoreIndex())
          selection.ignored = int64_t(*index);
      }
    }
  }
  return selection;
}

// Sets all attributes of arguments at once: setting one rebuilds those of all.
LogicalResult frontend::finishInputs(func::FuncOp function,
                                     ArrayRef<std::string> names) {
  Builder b(function.getContext());
  llvm::BitVector unused(function.getNumArguments());
  SmallVector<Attribute> attributes;
  for (auto [i, argument] : llvm::enumerate(function.getArguments())) {
    argument.setLoc(NameLoc::get(b.getStringAttr(names[i])));
    if (argument.use_empty()) {
      emitRemark(argument.getLoc())
          << "input '" << names[i]
          << "' does not affect the loss; the program does not read it";
      unused.set(i);
      continue;
    }
    if (shapeOf(argument).empty() && attributes.empty())
      return emitError(argument.getLoc())
             << "input '" << names[i]
             << "' is a scalar, which has one value per step, and no other "
                "input with samples affects the loss";
    NamedAttrList list;
    // The name stays with the argument through all phases, while its position
    // changes when unused arguments are erased.
    list.set(fsdp::FSDPDialect::kInputAttr, b.getStringAttr(names[i]));
    Selection selection;
    if (isa<IntegerType>(elementOf(argument)))
      selection = selectionOf(argument);
    if (selection.bound != INT64_MAX) {
      list.set(fsdp::FSDPDialect::kBoundAttr,
               b.getI64IntegerAttr(selection.bound));
      if (selection.ignored && !selection.fromTable)
        list.set(fsdp::FSDPDialect::kIgnoredAttr,
                 b.getI64IntegerAttr(*selection.ignored));
    }
    attributes.push_back(list.getDictionary(b.getContext()));
  }
  (void)function.eraseArguments(unused);
  function.setAllArgAttrs(attributes);
  return success();
}
