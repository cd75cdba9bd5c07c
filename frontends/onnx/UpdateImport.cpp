// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Imports the update of a model's own training into a block of its own, whose
// arguments are parameters, gradients, and the tensors that steps change. Such
// a tensor is a number if nothing but numbers affects it, such as the count of
// steps or a rate that decays; else it is a state.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/ModelOptimizer.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {

// The inputs of an optimizer node behind rate and step are the values, the
// gradients, and then each of these states, which torch.optim calls so.
struct OptimizerStates {
  StringLiteral op;
  std::array<StringLiteral, 2> names;
  int count;
};
constexpr OptimizerStates optimizerStates[] = {
    {"Adam", {"exp_avg", "exp_avg_sq"}, 2},
    {"Adagrad", {"sum", ""}, 1},
    {"Momentum", {"momentum_buffer", ""}, 1},
};

class UpdateImporter {
public:
  UpdateImporter(const Training &training, const InitialValues &initial,
                 GraphImporter &importer, const ParameterTable &parameters)
      : training(training), initial(initial), importer(importer),
        parameters(parameters),
        loc(importer.emitter().builder.getUnknownLoc()) {}

  FailureOr<ImportedUpdate> run();

private:
  InFlightDiagnostic refuse() {
    return emitError(loc) << "the optimizer of '" << importer.path() << "' ";
  }
  void readNodes();
  LogicalResult collect();
  LogicalResult collectInitializer(const onnx::TensorProto &tensor);
  LogicalResult collectInput(const onnx::ValueInfoProto &input);
  LogicalResult import(Block &body);
  void findElements();
  LogicalResult readNumber(UpdateArgument &argument);

  bool isRate(StringRef tensor) const {
    return rates.contains(tensor) ||
           (rates.empty() &&
            llvm::is_contained({"R", "lr", "learning_rate"}, tensor));
  }

  const Training &training;
  const InitialValues &initial;
  GraphImporter &importer;
  const ParameterTable &parameters;
  Location loc;
  ImportedUpdate result;
  SmallVector<RankedTensorType> types;   // of the arguments
  SmallVector<int64_t> elementTypes;     // of ONNX
  llvm::StringSet<> rates;               // that optimizer nodes read
  llvm::StringMap<StringRef> torchNames; // of states
};

} // namespace

// Finds the rates of the optimizer nodes and the names of their states.
void UpdateImporter::readNodes() {
  for (const onnx::NodeProto &node : training.update.node()) {
    if (node.domain() != kTrainingDomain)
      continue;
    const auto *known = llvm::find_if(optimizerStates, [&](const auto &row) {
      return row.op == node.op_type();
    });
    if (known == std::end(optimizerStates) || node.input_size() < 2)
      continue;
    rates.insert(node.input(0));
    if (!StringRef(result.kinds).contains(node.op_type()))
      result.kinds += (result.kinds.empty() ? "" : ", ") + node.op_type();
    int each = (node.input_size() - 2) / (2 + known->count);
    for (int state = 0; state < known->count; ++state)
      for (int i = 0; i < each; ++i)
        torchNames[node.input(2 + (2 + state) * each + i)] =
            known->names[state];
  }
}

LogicalResult
UpdateImporter::collectInitializer(const onnx::TensorProto &tensor) {
  bool isUpdated = training.updates.contains(tensor.name());
  ArrayRef<int64_t> shape(tensor.dims().data(), tensor.dims_size());
  Type element = importedType(tensor.data_type(), loc.getContext());
  bool isInitialised = initial.values.contains(tensor.name()) ||
                       initial.rules.contains(tensor.name());
  // Other tensors are constants, which the import reads.
  if (!isUpdated && !isRate(tensor.name()) && !isInitialised)
    return success();
  if (!isUpdated && !isRate(tensor.name()))
    return refuse() << "reads '" << tensor.name()
                    << "', which no step changes and the initialization sets; "
                       "give it that value in its initializer";
  if (!element || element.isInteger(1) || !countElements(shape))
    return refuse() << "changes '" << tensor.name()
                    << "', whose type or shape is not supported; make it a "
                       "float, or an integer that counts";
  auto type = RankedTensorType::get(shape, element);
  DenseElementsAttr value = initial.values.lookup(tensor.name());
  if (initial.rules.contains(tensor.name()))
    return refuse() << "starts '" << tensor.name()
                    << "' with random numbers; a state starts with one number";
  if (!value) {
    FailureOr<DenseElementsAttr> read = importer.weights().constant(tensor);
    if (failed(read))
      return refuse() << "cannot read '" << tensor.name()
                      << "': " << importer.weights().problem;
    value = *read;
  }
  if (value.getType() != type)
    return refuse() << "starts '" << tensor.name() << "' of type " << type
                    << " with a value of type " << value.getType();
  UpdateArgument argument{UpdateArgument::number, tensor.name(), {}, {}};
  argument.torchName = torchNames.lookup(tensor.name()).str();
  bool isEven = value.isSplat();
  argument.isUneven = !isEven;
  if (!isEven)
    argument.initial = 0;
  else if (isa<FloatType>(element))
    argument.initial = value.getSplatValue<APFloat>().convertToDouble();
  else
    argument.initial = double(value.getSplatValue<APInt>().getSExtValue());
  argument.isRate = isRate(tensor.name()) && isEven &&
                    isa<FloatType>(element) && value.getNumElements() == 1;
  if (!isUpdated && !argument.isRate)
    return success();
  result.arguments.list.push_back(argument);
  types.push_back(type);
  elementTypes.push_back(tensor.data_type());
  return success();
}

// A float that is fed is the rate, an integer the number of steps so far.
LogicalResult UpdateImporter::collectInput(const onnx::ValueInfoProto &input) {
  const auto &type = input.type().tensor_type();
  Type element = importedType(type.elem_type(), loc.getContext());
  Shape shape;
  for (const auto &dim : type.shape().dim())
    shape.push_back(dim.has_dim_value() ? dim.dim_value() : 0);
  bool isCount = element && (element.isInteger(32) || element.isInteger(64));
  if (!element || (!isCount && !isa<FloatType>(element)) ||
      countElements(shape) != 1)
    return refuse() << "reads the input '" << input.name()
                    << "', which is neither a learning rate nor a number of "
                       "steps; make it an initializer";
  UpdateArgument argument{UpdateArgument::number, input.name(), {}, {}};
  argument.isRate = !isCount;
  argument.change = isCount ? 1 : 0;
  argument.isFed = true;
  result.arguments.list.push_back(argument);
  types.push_back(RankedTensorType::get(shape, element));
  elementTypes.push_back(type.elem_type());
  return success();
}

LogicalResult UpdateImporter::collect() {
  readNodes();
  for (const Training::Trained &trained : training.trained) {
    const NamedTensor *tensor = parameters.find(trained.parameter);
    if (!tensor)
      return refuse() << "updates '" << trained.parameter
                      << "', which is no parameter of the model's graph";
    for (auto [kind, name] :
         {std::pair(UpdateArgument::parameter, &trained.parameter),
          std::pair(UpdateArgument::gradient, &trained.gradient)}) {
      result.arguments.list.push_back({kind, *name, {}, {}});
      types.push_back(tensor->type);
      elementTypes.push_back(0);
    }
  }
  for (const auto &tensor : training.update.initializer())
    if (failed(collectInitializer(tensor)))
      return failure();
  for (const auto &input : training.update.input())
    if (failed(collectInput(input)))
      return failure();
  llvm::StringSet<> known;
  for (const UpdateArgument &argument : result.arguments.list)
    known.insert(argument.tensor);
  for (const auto &[tensor, value] : training.updates)
    if (!known.contains(tensor))
      return refuse()
             << "updates '" << tensor << "' by '" << value
             << "', but no Gradient node has it in its 'xs', and it is "
                "no tensor of the algorithm; remove the binding";
  return success();
}

LogicalResult UpdateImporter::import(Block &body) {
  std::vector<GraphImporter::Given> given;
  std::vector<std::string> outputs;
  for (auto [argument, type, elementType] :
       llvm::zip_equal(result.arguments.list, types, elementTypes)) {
    argument.value = body.addArgument(type, loc);
    given.push_back({argument.tensor, argument.value, elementType});
    if (auto update = training.updates.find(argument.tensor);
        update != training.updates.end())
      outputs.push_back(update->second);
  }
  auto values = importer.importBeside(body, training.update, given, outputs);
  if (failed(values))
    return failure();
  size_t next = 0;
  for (UpdateArgument &argument : result.arguments.list) {
    if (!training.updates.contains(argument.tensor))
      continue;
    argument.updated = (*values)[next++];
    if (argument.updated.getType() != argument.value.getType())
      return refuse() << "gives '" << argument.tensor << "' of type "
                      << argument.value.getType() << " a value of type "
                      << argument.updated.getType();
  }
  return success();
}

// Follows parameters and gradients to all that they affect, also through the
// tensors that steps change.
void UpdateImporter::findElements() {
  llvm::DenseMap<Value, SmallVector<Value, 1>> holders;
  SmallVector<Value> stack;
  for (const UpdateArgument &argument : result.arguments.list) {
    if (argument.updated)
      holders[argument.updated].push_back(argument.value);
    if (argument.kind != UpdateArgument::number)
      stack.push_back(argument.value);
  }
  while (!stack.empty()) {
    Value value = stack.pop_back_val();
    if (!result.arguments.elements.insert(value).second)
      continue;
    for (Operation *user : value.getUsers())
      stack.append(user->result_begin(), user->result_end());
    auto held = holders.find(value);
    if (held != holders.end())
      stack.append(held->second.begin(), held->second.end());
  }
  for (UpdateArgument &argument : result.arguments.list)
    if (argument.kind == UpdateArgument::number &&
        result.arguments.elements.contains(argument.value))
      argument.kind = UpdateArgument::state;
}

// Accepts n, n + c and n · c, of which the value after any number of steps has
// a formula.
LogicalResult UpdateImporter::readNumber(UpdateArgument &argument) {
  argument.multiplies = false;
  if (!argument.updated)
    return success();
  argument.change = 0;
  if (argument.updated == argument.value)
    return success();
  Operation *op = argument.updated.getDefiningOp();
  std::optional<double> by;
  if (op && op->getNumOperands() == 2) {
    bool isLeft = op->getOperand(0) == argument.value;
    bool commutes = isa<nn::AddOp, nn::MulOp>(op);
    if (isLeft || (commutes && op->getOperand(1) == argument.value))
      by = nn::matchSplat(op->getOperand(isLeft ? 1 : 0));
    if (!commutes && !isa<nn::SubOp>(op))
      by = std::nullopt;
  }
  if (!by || tensorType(argument.value).getNumElements() != 1 ||
      argument.isUneven)
    return refuse() << "updates '" << argument.tensor
                    << "' by a formula that is neither '" << argument.tensor
                    << " + c' nor '" << argument.tensor
                    << " * c' with a constant c; train with --optimizer and "
                       "--lr-schedule of the program";
  argument.multiplies = isa<nn::MulOp>(op);
  argument.change = isa<nn::SubOp>(op) ? -*by : *by;
  return success();
}

FailureOr<ImportedUpdate> UpdateImporter::run() {
  if (failed(collect()))
    return failure();
  result.holder = ModuleOp::create(loc);
  OpBuilder builder(result.holder->getBodyRegion());
  auto function = func::FuncOp::create(builder, loc, "update",
                                       builder.getFunctionType({}, {}));
  if (failed(import(function.getBody().emplaceBlock())))
    return failure();
  findElements();
  for (UpdateArgument &argument : result.arguments.list)
    if (argument.kind == UpdateArgument::number && failed(readNumber(argument)))
      return failure();
  return std::move(result);
}

FailureOr<ImportedUpdate>
frontend::importUpdate(const Training &training, const InitialValues &initial,
                       GraphImporter &importer,
                       const ParameterTable &parameters) {
  return UpdateImporter(training, initial, importer, parameters).run();
}
