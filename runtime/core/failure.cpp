// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Agreement on errors before the first step, and a single error line after it.
#include "runtime/core/failure.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

namespace fsdpc::runtime {
// The other ranks wait instead of returning, since they would go on into a
// collective that rank 0 never joins.
void failJob(Job &job, const Error &error) {
  if (job.rank == 0)
    fail(error);
  awaitAbort(job);
}

void failAgreed(Job &job, const Error &error) {
  if (!error.message.empty())
    fail(error);
  awaitAbort(job);
}

void awaitTurn(const Job &job, bool later) {
  // Two seconds are as long as mpirun takes to end a job. Ranks from 3 on share
  // a turn, since it is unlikely that all before them are gone.
  int turn = std::min(job.rank, 3) + later;
  std::this_thread::sleep_for(std::chrono::seconds(2 * turn));
}

// Gives the rank that prints five seconds, then ends the job anyway: it may be
// gone.
void awaitAbort(Job &job) {
  std::this_thread::sleep_for(std::chrono::seconds(5));
  // The rank that should have done so is gone.
  job.abort(ExitCode::machineFailed);
  _exit(int(ExitCode::machineFailed));
}

Status agree(Job &job, const Status &own) {
  auto code = int64_t(own ? ExitCode::success : own.error().code());
  std::vector<int64_t> all(size_t(job.size));
  job.channel[controlChannel]->allGather(&code, all.data(), sizeof code);
  for (int rank = 0; rank < job.size; ++rank)
    if (ExitCode found = ExitCode(all[size_t(rank)]);
        found != ExitCode::success)
      return rank == job.rank ? own : Error::toldElsewhere(found);
  return {};
}

} // namespace fsdpc::runtime
