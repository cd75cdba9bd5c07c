// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one way in which the runtime's threads end a run; see failure.h.
#include "runtime/comm/failure.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <unistd.h>
#include <utility>

namespace fsdpc::runtime {

namespace {

// A thread may fail while another one sets the function. A lock guards what the
// job has set.
struct AbortState {
  std::mutex mutex;
  std::function<void(ExitCode)> function;
  std::function<std::string()> where;
};

// Never destroyed, since threads may fail while static objects are destroyed.
AbortState &abortState() {
  static auto *state = new AbortState;
  return *state;
}

} // namespace

void setAbort(std::function<void(ExitCode)> abort) {
  std::lock_guard<std::mutex> lock(abortState().mutex);
  abortState().function = std::move(abort);
}

void setWhereabouts(std::function<std::string()> where) {
  std::lock_guard<std::mutex> lock(abortState().mutex);
  abortState().where = std::move(where);
}

std::string whereabouts() {
  std::lock_guard<std::mutex> lock(abortState().mutex);
  return abortState().where ? "; " + abortState().where() : "";
}

// Only the first thread gets past the exchange; the process ends under the
// others.
void fail(const Error &error) {
  static std::atomic<bool> failing{false};
  if (failing.exchange(true))
    for (;;)
      pause();
  // A single write, so that lines of several ranks do not mix.
  std::string line = "error: " + error.message + "\n";
  fflush(stdout);
  fputs(line.c_str(), stderr);
  fflush(stderr);
  std::function<void(ExitCode)> abort;
  {
    std::lock_guard<std::mutex> lock(abortState().mutex);
    abort = abortState().function;
  }
  if (abort)
    abort(error.code());
  _exit(int(error.code()));
}

} // namespace fsdpc::runtime
