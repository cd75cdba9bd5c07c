// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// apply-profile: replaces the costs of ops by what a run has measured. It runs
// between the costs of the model and the solver, so that everything that
// follows, predictions too, is made with them.
#include "compiler/dialects/fsdp/Entries.h"
#include "passes/schedule/MeasuredOps.h"
#include "passes/schedule/Passes.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_APPLYPROFILE
#include "passes/schedule/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// One microbatch in eight may be disturbed by other work on the machine, and
// the median does not see it.
double median(std::vector<double> values) {
  auto middle = values.begin() + ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct ApplyProfile : fsdpc::passes::impl::ApplyProfileBase<ApplyProfile> {
  using Base::Base;

  LogicalResult run(ModuleOp module) {
    FailureOr<func::FuncOp> function = fsdp::getMicrobatch(module);
    if (failed(function))
      return failure();
    FailureOr<ScheduleIR> ir = readSchedule(*function);
    if (failed(ir))
      return failure();
    Result<MeasuredTrace> measured = readTrace(*ir, traceFile);
    if (!measured)
      return emitError(UnknownLoc::get(&getContext()))
             << "'--profile=" << traceFile << "': " << measured.error().message;
    Builder builder(&getContext());
    for (const MeasuredOp &op : measured->ops)
      ir->ops[op.position]->setAttr(fsdp::FSDPDialect::kCostAttr,
                                    timeAttr(builder, median(op.us)));
    return success();
  }

  void runOnOperation() override {
    if (failed(run(getOperation())))
      signalPassFailure();
  }
};

} // namespace
