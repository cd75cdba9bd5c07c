// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/schedule/MeasuredOps.h"
#include "runtime/support/concat.h"
#include "runtime/support/input_file.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

std::string unitOf(Operation *op) {
  auto unit =
      op->getAttrOfType<FlatSymbolRefAttr>(fsdp::FSDPDialect::kUnitAttr);
  return unit ? unit.getValue().str() : "";
}

// Returns "" if the commands are those of the ops, else the first difference.
std::string differenceOf(const ScheduleIR &ir, ArrayRef<MeasuredOp> ops,
                         ArrayRef<const schedule::TracedCommand *> commands) {
  for (auto [measured, command] : llvm::zip(ops, commands)) {
    Operation *op = ir.ops[measured.position];
    auto flops = op->getAttrOfType<IntegerAttr>(fsdp::FSDPDialect::kFlopsAttr);
    if (command->unit != unitOf(op) || command->flops != flops.getInt() ||
        command->backward != op->hasAttr(fsdp::FSDPDialect::kBackwardAttr))
      return "it has '" + command->title + "' where the plan has '" +
             op->getName().stripDialect().str() + " " + unitOf(op) + "'";
  }
  if (ops.size() != commands.size())
    return concat("a microbatch has ", commands.size(),
                  " commands that compute, and ", ops.size(), " in the plan");
  return "";
}

Result<std::vector<MeasuredOp>> measuredOps(const ScheduleIR &ir,
                                            const schedule::Trace &trace) {
  std::vector<MeasuredOp> ops;
  for (auto [position, op] : llvm::enumerate(ir.problem.ops))
    if (ir.ops[position]->hasAttr(fsdp::FSDPDialect::kFlopsAttr))
      ops.push_back({int(position), {}});
  for (auto &[which, commands] : trace.microbatches()) {
    if (std::string difference = differenceOf(ir, ops, commands);
        !difference.empty())
      return inputError("is a trace of another program: " + difference);
    for (auto [op, command] : llvm::zip_equal(ops, commands))
      op.us.push_back(command->us);
  }
  return ops;
}

} // namespace

Result<MeasuredTrace> fsdpc::passes::readTrace(const ScheduleIR &ir,
                                               StringRef path) {
  // Of a few steps; a step of a large model has some hundred thousand events.
  constexpr uint64_t most = 1 << 30;
  Result<std::string> text = readText(path.str(), most);
  if (!text)
    return text.error().reworded("cannot be read: " + text.error().message);
  Result<schedule::Trace> trace = schedule::parseTrace(*text);
  FSDPC_TRY(trace);
  Result<std::vector<MeasuredOp>> ops = measuredOps(ir, *trace);
  FSDPC_TRY(ops);
  return MeasuredTrace{*std::move(trace), *std::move(ops)};
}
