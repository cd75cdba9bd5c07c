// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ends all ranks together: every rank exits with the code of the same error,
// and the whole job prints one line that begins with "error:". A function that
// has a caller returns a Status (runtime/support/status.h); these functions are
// for where a job ends. Which one to use depends on who knows of the failure.
// Before the first step: agree. All ranks: failJob. Several, each by itself:
// awaitTurn, then fail. Only one rank (its disk, its memory): fail() of
// runtime/comm/failure.h.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/comm/failure.h"
#include "runtime/support/diagnostics.h"
#include "runtime/support/status.h"

#include <string>

namespace fsdpc::runtime {

/// Ends the job for a reason that every rank finds at the same point, such as a
/// number that they all reduced. Rank 0 prints; every rank must call it.
[[noreturn]] void failJob(Job &job, const Error &error);
/// Ends the job after `agree` has returned this error; every rank must call it.
[[noreturn]] void failAgreed(Job &job, const Error &error);
/// Delays a rank that is about to fail for a reason that others may find at
/// about the same time. It sleeps for longer on higher ranks, so that the
/// lowest one prints and ends the job first. `later` delays all ranks further,
/// for a failure that may be the consequence of another rank's end.
void awaitTurn(const Job &job, bool later);
/// Sleeps until another rank ends the job. For a rank that knows that one is
/// about to.
[[noreturn]] void awaitAbort(Job &job);

/// Exchanges whether any rank has an error; `own` is this rank's status.
/// Returns success if no rank has one. Otherwise every rank gets an error of
/// the code of the lowest rank that has one, which alone gets its message: the
/// others' are empty, since one line per job is enough. All ranks call it
/// together.
Status agree(Job &job, const Status &own);

} // namespace fsdpc::runtime
