// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls of fsdpc_report_output: the plan has the output's name and type.
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/rt/RuntimeCall.h"

using namespace mlir;

namespace fsdpc::rt {

namespace {

OutputPlanAttr planOf(fsdp::ReportOutputOp op) {
  return OutputPlanAttr::get(op.getContext(), op.getNameAttr(),
                             op.getValue().getType());
}

struct OutputCall
    : RuntimeCallOpInterface::ExternalModel<OutputCall, fsdp::ReportOutputOp> {
  Attribute getPlan(Operation *op) const {
    return planOf(cast<fsdp::ReportOutputOp>(op));
  }
  void createCall(Operation *op, CallBuilder &calls) const {
    auto report = cast<fsdp::ReportOutputOp>(op);
    calls.call<ReportOutputOp>(planOf(report),
                               calls.pointer(report.getValue()));
  }
};

} // namespace

void attachOutputCall(MLIRContext *context) {
  fsdp::ReportOutputOp::attachInterface<OutputCall>(*context);
}

} // namespace fsdpc::rt
