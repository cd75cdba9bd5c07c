// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// annotate-costs: annotates each op that costs time with its flops, the bytes
// it moves and the time that the cost model expects. Later passes and the
// program's trace read these attributes, so that an edited cost in a dump
// steers the schedule.
#include "compiler/analysis/kernels/BodyWalk.h"
#include "compiler/dialects/fsdp/Machine.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/options/Options.h"
#include "passes/kernels/Passes.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_ANNOTATECOSTS
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

int64_t elements(Value value) {
  return cast<RankedTensorType>(value.getType()).getNumElements();
}

int64_t bytesOf(Value value) { return nn::tensorBytes(value.getType()); }

// Returns the bytes of an argument that a kernel reads. It reads only those
// rows of a table that are looked up, and only the slices of a sliced tensor.
int64_t bytesRead(BlockArgument argument) {
  int64_t read = 0;
  for (OpOperand &use : argument.getUses()) {
    Operation *user = use.getOwner();
    auto fusible = dyn_cast<nn::FusibleOpInterface>(user);
    if (!fusible || !fusible.readsPart(use.getOperandNumber()))
      return bytesOf(argument);
    read += bytesOf(user->getResult(0));
  }
  return std::min(read, bytesOf(argument));
}

// Results are written once and operands read once, which is what fused kernels
// and library calls achieve at best.
int64_t bytesMoved(Operation *op, const SymbolTable &kernels) {
  int64_t bytes = 0;
  for (Value result : op->getResults())
    bytes += bytesOf(result);
  if (auto launch = dyn_cast<nn::LaunchOp>(op)) {
    auto kernel = kernels.lookup<func::FuncOp>(launch.getKernel());
    for (BlockArgument argument : kernel.getArguments())
      bytes += bytesRead(argument);
    return bytes;
  }
  for (Value operand : op->getOperands())
    bytes += bytesOf(operand);
  return bytes;
}

// Returns the operations of a primitive: none where elements only move, one per
// element that a reduction reads, and those of a function's polynomial.
int64_t primitiveFlops(Operation *op) {
  if (analysis::movesElements(op))
    return 0;
  Value computed = op->getResult(0);
  if (auto reduce = dyn_cast<nn::ReduceOp>(op))
    computed = reduce.getInput();
  return analysis::costOf(op) * elements(computed);
}

// Multiplications and additions.
int64_t flops(Operation *op, const SymbolTable &kernels) {
  if (auto call = dyn_cast<nn::LibraryCallOpInterface>(op))
    return call.getFlops();
  int64_t sum = 0;
  auto kernel =
      kernels.lookup<func::FuncOp>(cast<nn::LaunchOp>(op).getKernel());
  for (Operation &part : kernel.getBody().front().without_terminator())
    sum += primitiveFlops(&part);
  return sum;
}

struct AnnotateCosts : fsdpc::passes::impl::AnnotateCostsBase<AnnotateCosts> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    schedule::Machine machine = fsdp::machineOf(module);
    ElementType type = fsdp::CompileOptions::of(module).paramType;
    Builder builder(&getContext());
    SymbolTable kernels(module);
    module.walk([&](Operation *op) {
      if (!isa<nn::LaunchOp, nn::LibraryCallOpInterface>(op))
        return;
      int64_t bytes = bytesMoved(op, kernels), work = flops(op, kernels);
      op->setAttr(fsdp::FSDPDialect::kFlopsAttr,
                  builder.getI64IntegerAttr(work));
      op->setAttr(fsdp::FSDPDialect::kBytesAttr,
                  builder.getI64IntegerAttr(bytes));
      op->setAttr(fsdp::FSDPDialect::kCostAttr,
                  builder.getF64FloatAttr(fsdp::opUs(op, machine, type)));
    });
  }
};

} // namespace
