// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the limits that pthread_create meets: the user's (RLIMIT_NPROC), that
// of the control group (pids.max of version 2), the kernel's, and the address
// space, in which a stack needs room.
#include "runtime/support/threads.h"
#include "runtime/support/system_error.h"

#include <fstream>
#include <sys/resource.h>
#include <system_error>
#include <utility>

namespace fsdpc {
namespace {

// Returns the first line of a file, or "" if there is none.
std::string firstLine(const std::string &path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns a soft limit, or "" without one.
std::string softLimit(int resource) {
  rlimit limit;
  if (getrlimit(__rlimit_resource(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY)
    return "";
  return std::to_string(limit.rlim_cur);
}

// Returns the smallest pids.max of this process's control group and those
// above it, or "" without one.
std::string groupLimit() {
  std::string group = firstLine("/proc/self/cgroup");
  if (group.rfind("0::/", 0) != 0)
    return "";
  std::string path = "/sys/fs/cgroup" + group.substr(3), least;
  for (;;) {
    std::string most = firstLine(path + "/pids.max");
    bool isNumber = !most.empty() &&
                    most.find_first_not_of("0123456789") == std::string::npos;
    // Of two numbers without leading zeroes the shorter one is less.
    if (isNumber && (least.empty() || most.size() < least.size() ||
                     (most.size() == least.size() && most < least)))
      least = most;
    size_t slash = path.rfind('/');
    if (path.size() <= std::string("/sys/fs/cgroup").size())
      return least;
    path.resize(slash);
  }
}

} // namespace

int tryThread(std::thread &thread, std::function<void()> work) {
  try {
    thread = std::thread(std::move(work));
    return 0;
  } catch (const std::system_error &fault) {
    return fault.code().value();
  }
}

std::string threadLimits() {
  struct {
    std::string value;
    const char *meaning;
  } limits[] = {
      {softLimit(RLIMIT_NPROC),
       " processes and threads of this user (ulimit -u)"},
      {groupLimit(), " of this control group (pids.max)"},
      {firstLine("/proc/sys/kernel/threads-max"),
       " of this machine (kernel.threads-max)"},
      {softLimit(RLIMIT_AS), " bytes of addresses (ulimit -v)"},
  };
  std::string text;
  for (auto &[value, meaning] : limits)
    if (!value.empty())
      text += (text.empty() ? "limits: " : ", ") + value + meaning;
  return text;
}

Error threadError(int code, const std::string &purpose) {
  std::string limits = threadLimits();
  return runError("cannot start a thread for " + purpose + ": " +
                  systemText(code) + (limits.empty() ? "" : "; " + limits) +
                  "; raise the limit, or use fewer ranks and --threads");
}

} // namespace fsdpc
