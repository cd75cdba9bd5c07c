// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Defaults of TransferOpInterface, and the form in which gathers send, which
// depends on their marks.
#include "compiler/dialects/fsdp/FSDPDialect.h"

using namespace mlir;

namespace fsdpc::fsdp {

// Returns the token that a start yields, or null for a transfer in one piece.
static Value tokenOf(Operation *transfer) {
  for (Value result : transfer->getResults())
    if (isa<TokenType>(result.getType()))
      return result;
  return nullptr;
}

Operation *waitOf(Operation *start) {
  Value token = tokenOf(start);
  return token && !token.use_empty() ? *token.user_begin() : nullptr;
}

ValueRange arrivalsOf(Operation *transfer, TransferKind kind) {
  if (kind != TransferKind::Gather && kind != TransferKind::Fetch)
    return {};
  if (!tokenOf(transfer))
    return transfer->getResults();
  Operation *wait = waitOf(transfer);
  return wait ? ValueRange(wait->getResults()) : ValueRange();
}

// Secondary shards hold what has been converted.
template <typename GatherOp> static Sending sendingOf(GatherOp gather) {
  if (gather.getFromSecondary())
    return {kGatherSecondary, SentForm::Computed, /*eachMicrobatch=*/true};
  return {"all_gather", SentForm::Gathered, /*eachMicrobatch=*/true};
}

Sending AllGatherOp::getSending() { return sendingOf(*this); }
Sending AllGatherStartOp::getSending() { return sendingOf(*this); }

} // namespace fsdpc::fsdp
