// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns a model that computes its own gradients into forward and backward. The
// units of its ops were chosen as if all were of the forward; an op that reads
// a weight now joins the unit that owns the weight, with a load of its own, so
// that the unit is gathered for it and freed as in any other backward.
#include "passes/grad/GivenGradients.h"

#include "mlir/IR/SymbolTable.h"

using namespace mlir;
using fsdpc::fsdp::FSDPDialect;

namespace fsdpc::passes {
namespace {

// One backward, in three steps: find its ops, move them, give them units.
class Backward {
public:
  Backward(ModuleOp module, Block &body) : symbols(module), body(body) {}

  void find();
  void move();
  void placeUnits();

private:
  Attribute ownerOf(fsdp::LoadOp load) {
    auto parameter = symbols.lookup<fsdp::ParameterOp>(load.getSymbol());
    return parameter ? Attribute(parameter.getUnitAttr()) : Attribute();
  }
  void readOwnLoads(Operation *op, Attribute unit);

  SymbolTable symbols;
  Block &body;
  Attribute lastUnit; // of the report of the loss
  SmallVector<Operation *> ops;
};

} // namespace

// The forward is what reports and statistics depend on.
void Backward::find() {
  llvm::DenseSet<Operation *> forward;
  for (Operation &op : llvm::reverse(body)) {
    bool isRoot = op.getNumResults() == 0 && !isa<fsdp::GradientOp>(op);
    bool isRead = llvm::any_of(
        op.getUsers(), [&](Operation *user) { return forward.contains(user); });
    if (isRoot || isRead)
      forward.insert(&op);
    else
      ops.push_back(&op);
    if (isa<fsdp::ReportLossOp>(op))
      lastUnit = op.getAttr(FSDPDialect::kUnitAttr);
  }
  std::reverse(ops.begin(), ops.end());
}

// A gradient is handed over as soon as it is there.
void Backward::move() {
  llvm::DenseSet<Operation *> moved(ops.begin(), ops.end());
  Operation *end = body.getTerminator();
  for (Operation *op : ops) {
    op->moveBefore(end);
    op->setAttr(FSDPDialect::kBackwardAttr, UnitAttr::get(op->getContext()));
  }
  Operation *first = ops.front();
  for (Operation *op : ops) {
    auto gradient = dyn_cast<fsdp::GradientOp>(op);
    if (!gradient)
      continue;
    Operation *source = gradient.getValue().getDefiningOp();
    if (source && moved.contains(source))
      op->moveAfter(source);
    else if (op != first)
      op->moveBefore(first);
  }
}

void Backward::readOwnLoads(Operation *op, Attribute unit) {
  for (OpOperand &operand : op->getOpOperands()) {
    auto load = operand.get().getDefiningOp<fsdp::LoadOp>();
    if (!load)
      continue;
    OpBuilder builder(op);
    Operation *own = builder.clone(*load);
    own->setAttr(FSDPDialect::kUnitAttr, unit);
    own->setAttr(FSDPDialect::kBackwardAttr, builder.getUnitAttr());
    operand.set(own->getResult(0));
  }
}

// Ops without weights stay with the op before them. An op that rearranges a
// weight is in the weight's unit, and so are the ops that read the result
// there.
void Backward::placeUnits() {
  Attribute unit = lastUnit;
  llvm::DenseMap<Value, Attribute> rearranged;
  for (Operation *op : ops) {
    if (isa<fsdp::LoadOp>(op))
      continue;
    if (auto gradient = dyn_cast<fsdp::GradientOp>(op)) {
      auto parameter =
          symbols.lookup<fsdp::ParameterOp>(gradient.getParameter());
      op->setAttr(FSDPDialect::kUnitAttr, parameter.getUnitAttr());
      readOwnLoads(op, parameter.getUnitAttr());
      continue;
    }
    Attribute owner;
    for (Value operand : op->getOperands()) {
      auto load = operand.getDefiningOp<fsdp::LoadOp>();
      Attribute found = load ? ownerOf(load) : rearranged.lookup(operand);
      owner = owner ? owner : found;
    }
    unit = owner ? owner : unit;
    if (owner && op->getNumOperands() == 1 && op->getNumResults() == 1)
      rearranged[op->getResult(0)] = unit;
    op->setAttr(FSDPDialect::kUnitAttr, unit);
    readOwnLoads(op, unit);
  }
  for (Operation *op : ops)
    if (isa<fsdp::LoadOp>(op) && op->use_empty())
      op->erase();
}

llvm::DenseSet<StringAttr> takeGivenGradients(ModuleOp module, Block &body) {
  Backward backward(module, body);
  backward.find();
  backward.move();
  backward.placeUnits();
  llvm::DenseSet<StringAttr> names;
  for (auto gradient : body.getOps<fsdp::GradientOp>())
    names.insert(gradient.getParameterAttr().getAttr());
  return names;
}

} // namespace fsdpc::passes
