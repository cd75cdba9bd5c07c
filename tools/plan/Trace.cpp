// Reads a trace of --trace (Chrome trace events) beside a plan. The n-th
// command that a plan's op becomes is the n-th of the trace's compute stream,
// and the plan's collectives start in the order of the other streams. If unit,
// direction or work of a pair differ, the trace is one of another program.
#include "tools/plan/Report.h"

#include "compiler/schedule/table.h"

#include "llvm/Support/MemoryBuffer.h"

#include <cmath>
#include <map>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::plan;

namespace json = llvm::json;

namespace {

// A command of the trace. Times are in µs.
struct Command {
  double begin = 0, us = 0;
  int64_t stream = 0, step = 0, microbatch = 0, flops = 0;
  std::string op, title, unit;
  bool backward = false;
};

// The commands that a plan's ops with a cost become.
bool isTimedOp(StringRef op) {
  return llvm::is_contained({"launch", "matmul", "attention", "attention_grad",
                             "convolution", "pooling"},
                            op);
}

// Those that a microbatch has besides.
bool isBesides(StringRef op) {
  return llvm::is_contained({"all_gather", "gather_secondary", "keep_secondary",
                             "reduce_scatter", "accumulate"},
                            op);
}

// Returns the commands of microbatches, in the order of their begins. Waits,
// entries and updates are left out, and events that are not as the runtime
// writes them.
std::vector<Command> commandsOf(const json::Array &events) {
  std::vector<Command> commands;
  for (const json::Value &value : events) {
    const json::Object *event = value.getAsObject();
    const json::Object *arguments = event ? event->getObject("args") : nullptr;
    if (!arguments || event->getString("ph") != "X")
      continue;
    auto begin = event->getNumber("ts"), us = event->getNumber("dur");
    auto stream = event->getInteger("tid");
    auto op = event->getString("cat"), title = event->getString("name");
    auto step = arguments->getInteger("step");
    auto microbatch = arguments->getInteger("microbatch");
    if (!begin || !us || !stream || !op || !title || !step || !microbatch ||
        !(isTimedOp(*op) || isBesides(*op)))
      continue;
    commands.push_back({*begin, *us, *stream, *step, *microbatch,
                        arguments->getInteger("flops").value_or(0), op->str(),
                        title->str(),
                        arguments->getString("unit").value_or("").str(),
                        arguments->getBoolean("backward").value_or(false)});
  }
  llvm::stable_sort(commands, [](const Command &a, const Command &b) {
    return a.begin < b.begin;
  });
  return commands;
}

// The commands of each microbatch, without those of updates: a microbatch's
// have the ops of a plan.
using Microbatches =
    std::map<std::pair<int64_t, int64_t>, std::vector<const Command *>>;

Microbatches opsOf(const std::vector<Command> &commands) {
  Microbatches ops;
  for (const Command &command : commands)
    if (isTimedOp(command.op))
      ops[{command.step, command.microbatch}].push_back(&command);
  return ops;
}

// The plan's ops that take time, in order.
std::vector<int> timedOps(const Plan &plan) {
  std::vector<int> positions;
  for (auto [position, op] : llvm::enumerate(plan.ir.problem.ops))
    if (op.durationUs > 0 &&
        plan.ir.ops[position]->hasAttr(fsdp::FSDPDialect::kFlopsAttr))
      positions.push_back(position);
  return positions;
}

// Returns "" if the commands are those of the plan's ops, else the first
// difference.
std::string differenceOf(const Plan &plan, ArrayRef<int> positions,
                         ArrayRef<const Command *> commands) {
  for (auto [position, command] : llvm::zip(positions, commands)) {
    Operation *op = plan.ir.ops[position];
    auto flops = op->getAttrOfType<IntegerAttr>(fsdp::FSDPDialect::kFlopsAttr);
    if (command->unit != unitOf(op) || command->flops != flops.getInt() ||
        command->backward != op->hasAttr(fsdp::FSDPDialect::kBackwardAttr))
      return "it has '" + command->title + "' where the plan has '" +
             op->getName().stripDialect().str() + " " + unitOf(op) + "'";
  }
  if (positions.size() != commands.size())
    return "a microbatch has " + std::to_string(commands.size()) +
           " commands that compute, and " + std::to_string(positions.size()) +
           " in the plan";
  return "";
}

// The commands of one microbatch, from its begin on, for the timeline.
json::Array timelineOf(const std::vector<Command> &commands,
                       std::pair<int64_t, int64_t> which, double begin) {
  json::Array rows;
  for (const Command &command : commands)
    if (std::pair(command.step, command.microbatch) == which)
      rows.push_back(
          json::Array{command.begin - begin, command.us, command.stream,
                      json::fixUTF8(command.op), json::fixUTF8(command.title),
                      json::fixUTF8(command.unit), command.backward});
  return rows;
}

} // namespace

FailureOr<json::Object> plan::readTrace(const Plan &plan, StringRef path) {
  auto fail = [&](const Twine &what) -> FailureOr<json::Object> {
    return emitError(UnknownLoc::get(plan.module->getContext()))
           << "'--report-trace=" << path << "': " << what;
  };
  auto file = llvm::MemoryBuffer::getFile(path);
  if (!file)
    return fail("cannot be read: " + file.getError().message());
  llvm::Expected<json::Value> parsed = json::parse((*file)->getBuffer());
  if (!parsed)
    return fail("is not JSON: " + llvm::toString(parsed.takeError()));
  json::Object *root = parsed->getAsObject();
  json::Array *events = root ? root->getArray("traceEvents") : nullptr;
  if (!events)
    return fail("is not a trace: it has no 'traceEvents'; give a file that a "
                "program's --trace has written");
  std::vector<Command> commands = commandsOf(*events);
  Microbatches microbatches = opsOf(commands);
  std::vector<int> positions = timedOps(plan);
  if (microbatches.empty())
    return fail("has no commands of a microbatch; give a file that a program's "
                "--trace has written");
  std::vector<double> sums(positions.size(), 0);
  for (auto &[which, ops] : microbatches) {
    if (std::string difference = differenceOf(plan, positions, ops);
        !difference.empty())
      return fail("is a trace of another program: " + difference);
    for (auto [sum, command] : llvm::zip_equal(sums, ops))
      sum += command->us;
  }
  json::Array means;
  for (double sum : sums)
    means.push_back(sum / double(microbatches.size()));
  auto &[last, ops] = *microbatches.rbegin();
  double begin = ops.front()->begin, end = begin;
  for (const Command &command : commands)
    if (std::pair(command.step, command.microbatch) == last) {
      begin = std::min(begin, command.begin);
      end = std::max(end, command.begin + command.us);
    }
  return json::Object{{"file", json::fixUTF8(path)},
                      {"microbatches", int64_t(microbatches.size())},
                      {"us", end - begin},
                      {"op_us", std::move(means)}, // beside the rows of `ops`
                      {"rows", timelineOf(commands, last, begin)}};
}
