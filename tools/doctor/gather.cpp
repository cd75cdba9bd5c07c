// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the facts from /proc, /sys, limits and libraries. What cannot be read
// stays absent: containers hide some of it, and a doctor that fails is of no
// use.
#include "runtime/support/concat.h"
#include "runtime/support/file.h"
#include "runtime/support/installation.h"
#include "runtime/support/programs.h"
#include "tools/doctor/doctor.h"

#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace fsdpc::doctor {
namespace {

namespace fs = std::filesystem;

// Returns what follows `key` and a colon in a file of such lines, or "".
std::string field(const std::string &path, const std::string &key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    size_t colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0 ||
        line.find_first_not_of(" \t", key.size()) != colon)
      continue;
    size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// Returns the first number of a text times `unit`.
std::optional<uint64_t> number(const std::string &text, uint64_t unit = 1) {
  std::istringstream stream(text);
  uint64_t value;
  if (!(stream >> value))
    return std::nullopt;
  return value * unit;
}

std::string firstLine(const std::string &path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<uint64_t> softLimit(int resource) {
  rlimit limit;
  if (getrlimit(__rlimit_resource(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return limit.rlim_cur;
}

// The levels of the System V ABI; a program needs at least 3.
int levelOfProcessor() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4"))
    return 4;
  return __builtin_cpu_supports("x86-64-v3") ? 3 : 0;
}

void readProcessor(Facts &facts) {
  facts.processor = field("/proc/cpuinfo", "model name");
  facts.level = levelOfProcessor();
  facts.onlineCores = int(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t own;
  if (sched_getaffinity(0, sizeof own, &own) == 0)
    facts.cores = CPU_COUNT(&own);
  else
    facts.cores = facts.onlineCores;
}

// Version 2 of control groups, as containers see their own at the root.
void readGroup(Facts &facts) {
  std::string group = firstLine("/proc/self/cgroup");
  std::string folder = "/sys/fs/cgroup";
  if (group.rfind("0::/", 0) == 0 && fs::exists(folder + group.substr(3)))
    folder += group.substr(3);
  std::istringstream quota(firstLine(folder + "/cpu.max"));
  double most, period;
  if (quota >> most >> period && period > 0)
    facts.quota = most / period;
  facts.memoryLimit = number(firstLine(folder + "/memory.max"));
}

// Sets the size of the file system of a folder and what is free there.
void readSpace(const std::string &folder, std::optional<uint64_t> *size,
               std::optional<uint64_t> &left) {
  struct statvfs state;
  if (statvfs(folder.c_str(), &state) != 0)
    return;
  if (size)
    *size = uint64_t(state.f_blocks) * state.f_frsize;
  left = uint64_t(state.f_bavail) * state.f_frsize;
}

// A library stays loaded, since its destructors may do anything.
void *load(const char *name, std::string &fault) {
  void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (const char *error = library ? nullptr : dlerror())
    fault = error;
  return library;
}

void readMpi(Facts &facts) {
  if (Result<std::string> found = findProgram("mpirun"))
    facts.mpirun = *found;
  std::string other;
  if (!load("libmpi.so.40", facts.mpiFault))
    load("libmpi.so", other);
}

void readGpus(Facts &facts) {
  std::error_code error;
  for (const auto &each :
       fs::directory_iterator("/proc/driver/nvidia/gpus", error))
    facts.gpus.push_back(field(each.path() / "information", "Model"));
  std::istringstream words(firstLine("/proc/driver/nvidia/version"));
  for (std::string word; words >> word;)
    if (word.find_first_not_of("0123456789.") == std::string::npos) {
      facts.driver = word;
      break;
    }
  std::string fault;
  void *library = load("libnccl.so.2", fault);
  auto version =
      library
          ? reinterpret_cast<int (*)(int *)>(dlsym(library, "ncclGetVersion"))
          : nullptr;
  int code = 0;
  if (version && version(&code) == 0)
    facts.nccl = concat(code / 10000, ".", code / 100 % 100, ".", code % 100);
}

std::string existing(const fs::path &path) {
  std::error_code error;
  return fs::exists(path, error) ? path.lexically_normal().string() : "";
}

} // namespace

Facts gather(const std::string &tool, const std::string &toolkit) {
  Facts facts;
  readProcessor(facts);
  readGroup(facts);
  facts.memory = number(field("/proc/meminfo", "MemTotal"), 1024);
  facts.availableMemory = number(field("/proc/meminfo", "MemAvailable"), 1024);
  readSpace("/dev/shm", &facts.sharedMemory, facts.freeSharedMemory);
  facts.temporary = runtime::temporaryFolder();
  readSpace(facts.temporary, nullptr, facts.freeTemporary);
  facts.processes = softLimit(RLIMIT_NPROC);
  facts.files = softLimit(RLIMIT_NOFILE);
  fs::path root = fs::path(tool).parent_path().parent_path();
  facts.missing = missingParts(root.string());
  facts.cudaRuntime = existing(root / "lib/libfsdpc_runtime_cuda.a");
  facts.toolkit = toolkit;
  readMpi(facts);
  readGpus(facts);
  return facts;
}

} // namespace fsdpc::doctor
