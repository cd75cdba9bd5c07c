// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Threads that end the job when they cannot start, or when they throw; see
// thread.h.
#include "runtime/comm/thread.h"
#include "runtime/comm/failure.h"
#include "runtime/support/threads.h"

#include <exception>
#include <new>
#include <utility>

namespace fsdpc::runtime {

void runOrFail(const std::function<void()> &work) {
  try {
    work();
  } catch (const std::bad_alloc &) {
    fail(runError("out of memory"));
  } catch (const std::exception &fault) {
    fail(runError(fault.what()));
  }
}

std::thread startThread(const std::string &purpose,
                        std::function<void()> work) {
  std::thread thread;
  int code = tryThread(thread, [work = std::move(work)] { runOrFail(work); });
  if (code != 0)
    fail(threadError(code, purpose));
  return thread;
}

} // namespace fsdpc::runtime
