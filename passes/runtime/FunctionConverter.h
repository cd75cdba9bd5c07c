// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts a function of planned ops into calls of the runtime.
#pragma once

#include "compiler/dialects/rt/RuntimeCall.h"
#include "passes/runtime/Pointers.h"

namespace fsdpc::passes {

/// Gives each call the attributes of its op that a trace shows. Only work is
/// marked: events and pointers take no time of their own. A listener, so that
/// no case of the converter can forget it.
struct CallAnnotator : mlir::OpBuilder::Listener {
  void notifyOperationInserted(mlir::Operation *call,
                               mlir::OpBuilder::InsertPoint) override {
    auto command = llvm::dyn_cast<rt::CommandOpInterface>(call);
    if (!source || !command || !command.isWork())
      return;
    for (mlir::StringRef name :
         {fsdp::FSDPDialect::kUnitAttr, fsdp::FSDPDialect::kBackwardAttr,
          fsdp::FSDPDialect::kBytesAttr, fsdp::FSDPDialect::kFlopsAttr})
      if (mlir::Attribute value = source->getAttr(name))
        call->setAttr(name, value);
  }
  mlir::Operation *source = nullptr;
};

/// Converts one function op by op, and erases the ops that it has converted.
class FunctionConverter : rt::CallBuilder {
public:
  /// Converts in place. `symbols` is the module's, and gets the symbols that
  /// calls need. `owners` must outlive the object. With `gathersLater` the next
  /// forward gathers the parameters that @update has changed.
  FunctionConverter(mlir::func::FuncOp function, mlir::SymbolTable &symbols,
                    const OwnersOfMemory &owners, bool gathersLater)
      : function(function), gathersLater(gathersLater),
        rtBuilder(function.getContext(), &annotator),
        pointers(symbols, owners, rtBuilder) {}

  /// The ranges (offset, bytes) of the arena to poison, by the op after which
  /// they are dead.
  using DeadMemory =
      mlir::DenseMap<mlir::Operation *,
                     mlir::SmallVector<std::pair<int64_t, int64_t>>>;
  mlir::LogicalResult run(const DeadMemory &deadMemory);

private:
  mlir::LogicalResult convert(mlir::Operation *op);
  mlir::LogicalResult convertCollective(mlir::Operation *op);
  void gather(fsdp::AllGatherStartOp start);
  void offload(fsdp::OffloadStartOp start);
  void fetch(fsdp::FetchStartOp start);
  mlir::LogicalResult convertUpdate(mlir::Operation *op);
  mlir::LogicalResult convertOptimizer(mlir::Operation *op);
  mlir::LogicalResult convertMatrices(mlir::Operation *op);
  void record(rt::Stream stream, int event) {
    rt::EventRecordOp::create(rtBuilder, here, stream, event);
  }
  void wait(rt::Stream stream, int event) {
    rt::EventWaitOp::create(rtBuilder, here, stream, event);
  }
  /// Makes `later` wait for all that has been enqueued on `earlier`. Each call
  /// takes a fresh event number, so that no event is recorded twice.
  void order(rt::Stream earlier, rt::Stream later) {
    record(earlier, events);
    wait(later, events++);
  }
  /// Returns the pointers in the order of the values.
  mlir::SmallVector<mlir::Value> pointersOf(mlir::ValueRange values) {
    mlir::SmallVector<mlir::Value> result;
    for (mlir::Value value : values)
      result.push_back(pointers.get(here, value));
    return result;
  }

  /// The interface through which ops of the dialect nn build their calls
  /// (rt::RuntimeCallOpInterface). An absent operand is a null value and gives
  /// a null pointer.
  mlir::OpBuilder &builder() override { return rtBuilder; }
  mlir::Location location() override { return here; }
  mlir::Value pointer(mlir::Value value) override {
    return value ? pointers.get(here, value) : mlir::Value();
  }
  mlir::FlatSymbolRefAttr outlineRows(mlir::Operation *op) override {
    return pointers.outlineRows(op);
  }

  mlir::func::FuncOp function;
  const bool gathersLater;
  CallAnnotator annotator;
  mlir::OpBuilder rtBuilder;
  PointerBuilder pointers;
  /// The location of the op that is being converted.
  mlir::Location here = function.getLoc();
  /// The number of the next event.
  int events = 0;
  /// The event for which a token's wait waits.
  mlir::DenseMap<mlir::Value, int> tokenEvents;
};

} // namespace fsdpc::passes
