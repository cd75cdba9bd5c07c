// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Describes every command that the two entry functions enqueue: its name, the
// bytes and flops it is worth, and the unit and ONNX node it belongs to. The
// name of a command follows from the arguments of its call. --trace needs no
// instrumentation in the generated code, because each rt op that does work is
// exactly one command on one stream: the n-th command that a stream executes is
// the n-th entry of that stream's sequence.
#include "compiler/codegen/CallTables.h"

#include "compiler/dialects/fsdp/Buckets.h"
#include "compiler/dialects/fsdp/Provenance.h"
#include "compiler/dialects/nn/Interfaces.h"
#include "compiler/dialects/rt/CallArguments.h"
#include "compiler/dialects/rt/Streams.h"
#include "runtime/support/concat.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>
#include <tuple>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

namespace {

// Returns how many elements the kernel passes through a transcendental
// function, which an op says by its cost. These cost an order of magnitude more
// than an addition, so a trace reports them beside the flops.
int64_t countExps(func::FuncOp kernel) {
  int64_t count = 0;
  for (Operation &op : kernel.getBody().front())
    if (auto elementwise = dyn_cast<nn::ElementwiseOpInterface>(op))
      if (elementwise.getScalarCost() > 1)
        count +=
            cast<RankedTensorType>(op.getResult(0).getType()).getNumElements();
  return count;
}

// Names a command by the arguments of its call: by its layouts, its plan or its
// buffer if it has one, else by its kernel. Arguments arrive in the order of
// the call.
class CommandNamer : public rt::CallArguments {
public:
  CommandNamer(SymbolTable &symbols, ProgramTables &tables,
               CommandInfo &command)
      : symbols(symbols), tables(tables), command(command) {}

  // A plan names the command better than its kernel does, so it replaces what
  // is there already.
  void plan(rt::PlanAttrInterface plan) override {
    command.plan = tables.index(plan);
    command.name = plan.getTitle();
    command.exps += plan.countExps(command.flops);
  }
  void kernel(FlatSymbolRefAttr name) override {
    if (!name)
      return;
    if (command.name.empty())
      command.name = name.getValue().str();
    command.exps += countExps(symbols.lookup<func::FuncOp>(name.getAttr()));
  }
  // The name is the first layout's; layouts() then appends how many more there
  // are.
  void layout(FlatSymbolRefAttr name) override {
    command.layouts.push_back(tables.layouts.index(name.getAttr()));
    if (command.layouts.size() == 1)
      command.name = name.getValue().str();
  }
  void layouts(ArrayAttr names) override {
    for (auto name : names.getAsRange<FlatSymbolRefAttr>())
      layout(name);
    if (names.size() > 1)
      command.name += concat(" and ", names.size() - 1);
  }
  void buffer(FlatSymbolRefAttr name) override {
    command.name = name.getValue().str();
  }
  void address(Value) override {}
  void addresses(ValueRange) override {}
  void countedAddresses(ValueRange) override {}
  void constant(IntegerAttr) override {}
  void constant(FloatAttr) override {}

private:
  SymbolTable &symbols;
  ProgramTables &tables;
  CommandInfo &command;
};

// Collects the commands of a program. Equal commands share one entry of
// `manifest.commands`, because a model of many equal layers repeats the same
// few.
class CallTables {
public:
  CallTables(ModuleOp module, ProgramTables &tables, Manifest &manifest)
      : symbols(module), tables(tables), manifest(manifest) {}

  // Appends one sequence per stream of the entry function `entry`.
  void add(func::FuncOp function);

private:
  // Describes a call, apart from its place in the stream.
  CommandInfo commandOf(rt::AbiCallOpInterface op);
  // Returns the op's entry in `manifest.commands`, added if it is new.
  int32_t indexOf(rt::AbiCallOpInterface op);

  SymbolTable symbols;
  ProgramTables &tables;
  Manifest &manifest;
  // Op, name and plan, bytes, flops: what a trace shows of a command.
  using Key = std::tuple<std::string, std::string, int64_t, int64_t>;
  std::map<Key, int32_t> indices;
};

CommandInfo CallTables::commandOf(rt::AbiCallOpInterface op) {
  CommandInfo command;
  command.op = op->getName().stripDialect().str();
  auto integer = [&](StringRef name) {
    auto value = op->getAttrOfType<IntegerAttr>(name);
    return value ? value.getInt() : 0;
  };
  command.bytes = integer(fsdp::FSDPDialect::kBytesAttr);
  command.flops = integer(fsdp::FSDPDialect::kFlopsAttr);
  CommandNamer namer(symbols, tables, command);
  op.passArguments(namer);
  return command;
}

int32_t CallTables::indexOf(rt::AbiCallOpInterface op) {
  CommandInfo command = commandOf(op);
  Key key(command.op, concat(command.name, "/", command.plan), command.bytes,
          command.flops);
  auto [entry, isNew] = indices.try_emplace(key, manifest.commands.size());
  if (isNew)
    manifest.commands.push_back(std::move(command));
  return entry->second;
}

void CallTables::add(func::FuncOp function) {
  CallSequence sequences[rt::kStreams];
  for (int32_t stream = 0; stream < rt::kStreams; ++stream) {
    sequences[stream].entry = function.getSymName().str();
    sequences[stream].stream = stream;
  }
  // Commands that do no work, such as waiting for an event, are not timed and
  // get no entry.
  for (Operation &op : function.getBody().front().without_terminator()) {
    auto command = dyn_cast<rt::CommandOpInterface>(op);
    if (!command || !command.isWork())
      continue;
    Call call;
    call.command = indexOf(cast<rt::AbiCallOpInterface>(op));
    if (auto unit =
            op.getAttrOfType<FlatSymbolRefAttr>(fsdp::FSDPDialect::kUnitAttr))
      call.unit = unit.getValue().str();
    call.backward = op.hasAttr(fsdp::FSDPDialect::kBackwardAttr);
    call.node = fsdp::nodeOf(op.getLoc());
    sequences[static_cast<int>(command.getStream())].calls.push_back(
        std::move(call));
  }
  // A stream that an entry never uses has no sequence.
  for (CallSequence &sequence : sequences)
    if (!sequence.calls.empty())
      manifest.sequences.push_back(std::move(sequence));
}

} // namespace

void fsdpc::codegen::addCalls(ModuleOp module, ProgramTables &tables,
                              Manifest &manifest) {
  CallTables calls(module, tables, manifest);
  for (func::FuncOp entry : fsdp::entriesOfBuckets(module))
    calls.add(entry);
}
