// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sets a trace of --trace beside a plan: the n-th command that a plan's op
// becomes is the n-th of the trace's compute stream, and the plan's collectives
// start in the order of the other streams.
#include "tools/plan/Report.h"

#include "passes/schedule/MeasuredOps.h"

#include <numeric>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::plan;

namespace json = llvm::json;

namespace {

// The commands of one microbatch, for the timeline.
std::vector<const schedule::TracedCommand *>
commandsOf(const schedule::Trace &trace, schedule::Trace::Microbatch which) {
  std::vector<const schedule::TracedCommand *> commands;
  for (const schedule::TracedCommand &command : trace.commands)
    if (std::pair(command.step, command.microbatch) == which)
      commands.push_back(&command);
  return commands;
}

json::Array timelineOf(ArrayRef<const schedule::TracedCommand *> commands) {
  json::Array rows;
  for (const schedule::TracedCommand *command : commands)
    rows.push_back(
        json::Array{command->beginUs - commands.front()->beginUs, command->us,
                    command->stream, json::fixUTF8(command->op),
                    json::fixUTF8(command->title), json::fixUTF8(command->unit),
                    command->backward});
  return rows;
}

} // namespace

FailureOr<json::Object> plan::readTrace(const Plan &plan, StringRef path) {
  Result<passes::MeasuredTrace> measured = passes::readTrace(plan.ir, path);
  if (!measured)
    return emitError(UnknownLoc::get(plan.module->getContext()))
           << "'--report-trace=" << path << "': " << measured.error().message;
  json::Array means;
  for (const passes::MeasuredOp &op : measured->ops)
    if (plan.ir.problem.ops[op.position].durationUs > 0) // as the rows of ops
      means.push_back(std::accumulate(op.us.begin(), op.us.end(), 0.0) /
                      double(op.us.size()));
  auto microbatches = measured->trace.microbatches();
  std::vector<const schedule::TracedCommand *> last =
      commandsOf(measured->trace, microbatches.rbegin()->first);
  double end = 0;
  for (const schedule::TracedCommand *command : last)
    end = std::max(end, command->beginUs + command->us);
  return json::Object{{"file", json::fixUTF8(path)},
                      {"microbatches", int64_t(microbatches.size())},
                      {"us", end - last.front()->beginUs},
                      {"op_us", std::move(means)},
                      {"rows", timelineOf(last)}};
}
