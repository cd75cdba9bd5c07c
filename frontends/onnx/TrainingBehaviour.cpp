// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tells how nodes behave in training, which the graph alone often does not say:
// what torch's metadata tells of embeddings, losses and detached values, and
// when batch norms and dropouts are active.
#include "frontends/onnx/GraphImporter.h"

#include "compiler/dialects/fsdp/SymbolNames.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/options/OptionTable.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// ONNX's Gather has no padding index, but the exporter's metadata names it.
std::optional<int64_t> GraphImporter::paddingIndex(Node &node) const {
  return paddingIndexOf(tracedCall(node.proto));
}

// SoftmaxCrossEntropyLoss has no smoothing either.
double GraphImporter::labelSmoothing(Node &node) const {
  return labelSmoothingOf(tracedCall(node.proto));
}

// The export of a detach is an Identity.
void GraphImporter::stopGradients(const onnx::NodeProto &proto) {
  for (const std::string &output : proto.output()) {
    auto entry = frame->values.find(output);
    if (entry == frame->values.end() || !entry->second.value)
      continue;
    Value value = entry->second.value;
    if (!isa<FloatType>(elementOf(value)))
      continue;
    entry->second.value = b.unary<nn::StopGradientOp>(value);
    ++summary.detached;
  }
}

// Walks back from the value. Ops without a trainable parameter before them are
// remembered, so that each is visited once.
bool GraphImporter::dependsOnTrainable(Value value) {
  SmallVector<Operation *> stack, seen;
  auto push = [&](Value next) {
    if (Operation *op = next.getDefiningOp(); op && untrained.insert(op).second)
      stack.push_back(op), seen.push_back(op);
  };
  push(value);
  while (!stack.empty()) {
    Operation *op = stack.pop_back_val();
    auto load = dyn_cast<fsdp::LoadOp>(op);
    if (load && parameters.mayTrain(fsdp::nameOfSymbol(load.getSymbol()))) {
      for (Operation *other : seen)
        untrained.erase(other);
      return true;
    }
    if (!isa<nn::StopGradientOp>(op))
      llvm::for_each(op->getOperands(), push);
  }
  return false;
}

std::string GraphImporter::lostInExport(const onnx::NodeProto &proto) {
  TracedCall call = tracedCall(proto);
  if (call.target == "aten.embedding.default" &&
      call.argument(3, "scale_grad_by_freq") == "True")
    return "the embedding scales gradients by frequency "
           "(scale_grad_by_freq=True), which is not supported";
  if (proto.op_type() == "ScatterElements" &&
      call.target.starts_with("aten.scatter_reduce.") &&
      call.argument(4, "reduce") == "mean")
    return "torch.onnx.export writes scatter_reduce with 'mean' as a scatter "
           "that replaces; divide a sum by the number of updates instead";
  if (StringRef buffer = torch.staleBuffer(proto); !buffer.empty())
    return ("forward updates '" + buffer +
            "', which the loss reads, and the export has only its first "
            "value; call eval() on the part that updates it, or make it an "
            "input")
        .str();
  if (!torch.mayLackGradient(proto) ||
      llvm::none_of(proto.input(), [&](const std::string &input) {
        Value value = input.empty() ? Value() : lookup(input);
        return value && dependsOnTrainable(value);
      }))
    return "";
  return "torch has traced the node in a block under torch.no_grad() or "
         "autocast, the file does not say which, and trainable parameters "
         "affect it; export with fsdpc.export of the Python package, or name "
         "these parameters in --frozen";
}

// A batch norm can train only if its statistics are buffers of the model.
bool GraphImporter::trainsBatchNorm(Node &node) {
  if (options.batchnorm == fsdp::TrainingMode::Off)
    return false;
  if (options.batchnorm == fsdp::TrainingMode::Graph)
    return node.getInt("training_mode", 0);
  auto isBatchnorm = [](const fsdp::OptionInfo *option) {
    return option->name == "batchnorm";
  };
  if (torch.fixesStatistics(node.proto) &&
      llvm::none_of(options.given, isBatchnorm))
    return false;
  for (int i : {3, 4})
    if (!bufferOf(node.proto.input(i)))
      return false;
  // Counts those that train by default, for the remark of the import.
  ++summary.batchNorms;
  return true;
}

// The second call of a module reads what the first one has made of its
// statistics. torch.onnx.export writes that as an Identity of the buffer, which
// arrives here as another load of it.
const NamedTensor *GraphImporter::bufferOf(StringRef name) {
  Entry *entry = find(name);
  if (!entry)
    return nullptr;
  if (entry->loaded)
    return entry->loaded->role == TensorRole::buffer ? entry->loaded : nullptr;
  auto load = entry->value ? entry->value.getDefiningOp<fsdp::LoadOp>()
                           : fsdp::LoadOp();
  return load ? parameters.findBuffer(fsdp::nameOfSymbol(load.getSymbol()))
              : nullptr;
}

// Emits the updates of the running statistics, inputs 3 and 4 of the node. Two
// updates r ← (1 - p)·r + p·x and r ← (1 - q)·r + q·y of one buffer become one,
// by p·(1 - q)·x + q·y: ranks exchange the statistics of one update at a time,
// so two would be applied in an order that depends on the number of ranks.
LogicalResult GraphImporter::updateStatistics(Node &node, Value mean,
                                              Value variance, double momentum) {
  for (int i : {3, 4}) {
    const NamedTensor *buffer = bufferOf(node.proto.input(i));
    if (!buffer)
      return node.refuse(
          "running statistics must be initializers in training mode; compile "
          "with --batchnorm=off to use fixed statistics");
    Value statistic = i == 3 ? mean : variance;
    double weight = momentum;
    ++updateCounts[buffer->fqn];
    fsdp::UpdateStatisticsOp &update = updates[buffer];
    if (update) {
      double before = update.getMomentum().convertToDouble() * (1 - momentum);
      weight += before;
      if (weight != 0)
        statistic = b.binary<nn::AddOp>(
            b.binary<nn::MulOp>(update.getStatistic(), before / weight),
            b.binary<nn::MulOp>(statistic, momentum / weight));
      update.erase();
    }
    update = b.op<fsdp::UpdateStatisticsOp>(
        FlatSymbolRefAttr::get(b.builder.getContext(),
                               fsdp::symbolOfTensor(buffer->fqn)),
        statistic, b.builder.getF64FloatAttr(weight), /*mode=*/StringAttr());
    if (options.buffers != fsdp::BufferMode::Sequential)
      update.setMode(fsdp::nameOf(options.buffers));
  }
  return success();
}

std::optional<int64_t>
GraphImporter::dropoutOrdinal(Node &, double ratio,
                              std::optional<double> trainingMode) {
  int64_t ordinal = summary.draws + summary.dropouts++;
  bool runs = options.dropout == fsdp::TrainingMode::On ||
              (options.dropout == fsdp::TrainingMode::Graph && trainingMode &&
               *trainingMode != 0);
  if (!runs || ratio == 0)
    return std::nullopt;
  return ordinal;
}

int64_t GraphImporter::drawOrdinal() {
  return summary.dropouts + summary.draws++;
}

// The op is built at the start of the function, where it dominates all that
// draws.
Value GraphImporter::random() {
  if (!randomValue) {
    OpBuilder::InsertionGuard guard(b.builder);
    b.builder.setInsertionPointToStart(b.builder.getInsertionBlock());
    auto type = RankedTensorType::get({4}, b.builder.getI32Type());
    randomValue =
        fsdp::RandomOp::create(b.builder, b.builder.getUnknownLoc(), type);
  }
  return randomValue;
}
