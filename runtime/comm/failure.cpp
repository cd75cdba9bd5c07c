// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one way in which the runtime's threads end a run; see failure.h. The
// abort function is called without holding a lock that other threads wait for,
// since the failure may be a disk or a network that blocks.
#include "runtime/comm/failure.h"
#include "runtime/support/threads.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
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
  // A lock of its own: writing a record may take long.
  std::mutex recording;
  std::function<void()> record;
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

void setRecord(std::function<void()> write) {
  std::lock_guard<std::mutex> lock(abortState().recording);
  abortState().record = std::move(write);
}

// On a thread of its own, since the disk may be what has failed.
void leaveRecord(ExitCode code) {
  if (code != ExitCode::machineFailed)
    return;
  auto done = std::make_shared<std::promise<void>>();
  std::thread writer;
  int error = tryThread(writer, [done] {
    {
      std::lock_guard<std::mutex> lock(abortState().recording);
      if (abortState().record)
        abortState().record();
    }
    done->set_value();
  });
  if (error)
    return;
  writer.detach();
  done->get_future().wait_for(std::chrono::seconds(2));
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
  leaveRecord(error.code());
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
