// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers of the ops that move activations to a file and back: what is
// fetched is what was offloaded.
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/fsdp/Offloads.h"

using namespace mlir;

namespace fsdpc::fsdp {

FailureOr<ValueRange> offloadedValues(Value held) {
  Operation *source = held.getDefiningOp();
  if (auto wait = dyn_cast_or_null<OffloadWaitOp>(source))
    source = wait.getToken().getDefiningOp();
  if (!source || !isTransfer(source, TransferKind::Offload))
    return failure();
  return ValueRange(source->getOperands());
}

// Checks the results of a fetch against the values that `held` stands for.
static LogicalResult verifyFetched(Operation *fetch, Value held) {
  FailureOr<ValueRange> values = offloadedValues(held);
  if (failed(values))
    return fetch->emitOpError("fetches what no offload has written");
  if (!llvm::equal(values->getTypes(), fetch->getResultTypes()))
    return fetch->emitOpError(
        "has other types than the values that were offloaded");
  return success();
}

LogicalResult FetchOp::verify() { return verifyFetched(*this, getHeld()); }

LogicalResult OffloadStartOp::verify() {
  if (getPlaces() && getPlaces()->size() != getValues().size())
    return emitOpError("has ") << getPlaces()->size() << " places for "
                               << getValues().size() << " values";
  return success();
}

LogicalResult OffloadWaitOp::verify() {
  if (!getToken().getDefiningOp<OffloadStartOp>())
    return emitOpError("waits for a token that offload_start did not produce");
  return success();
}

LogicalResult FetchStartOp::verify() {
  if (!getHeld().getDefiningOp<OffloadWaitOp>())
    return emitOpError("fetches before an offload_wait");
  return success();
}

LogicalResult FetchWaitOp::verify() {
  auto start = getToken().getDefiningOp<FetchStartOp>();
  if (!start)
    return emitOpError("waits for a token that fetch_start did not produce");
  return verifyFetched(*this, start.getHeld());
}

} // namespace fsdpc::fsdp
