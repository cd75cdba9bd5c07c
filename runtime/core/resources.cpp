// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads what Linux reports about cores (affinity masks), memory
// (/proc/self/status) and the processor. cpuid says what the processor has, and
// the kernel (/proc/cpuinfo) which of that it has switched off. An emulator
// such as qemu answers cpuid by itself, but shows the machine's /proc/cpuinfo.
#include "runtime/core/resources.h"

#include "runtime/support/concat.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <sched.h>
#include <set>
#include <sstream>
#include <unistd.h>

namespace fsdpc::runtime {
namespace {

// As many processors as a kernel for x86 or ARM can have. cpu_set_t stops at
// 1024, and the kernel refuses a mask that is smaller than its own.
constexpr size_t mostCores = 8192;

// A rank's host and the cores that it may run on, as ranks exchange them. Sent
// as bytes: all ranks run the same executable. Names longer than 63 characters
// are cut, as the kernel's are.
struct Binding {
  char host[64] = {};
  std::bitset<mostCores> cores;
};

// Returns the cores that this thread may run on. None if the kernel does not
// say.
std::bitset<mostCores> readAffinity() {
  std::bitset<mostCores> cores;
  std::array<unsigned long, mostCores / (8 * sizeof(long))> words = {};
  if (sched_getaffinity(0, sizeof words,
                        reinterpret_cast<cpu_set_t *>(words.data())) != 0)
    return cores;
  for (size_t core = 0; core < mostCores; ++core)
    cores[core] = CPU_ISSET_S(core, sizeof words,
                              reinterpret_cast<cpu_set_t *>(words.data()));
  return cores;
}

// Runs of cores as ranges, "0-3,8", as taskset takes them.
std::string coreList(const std::bitset<mostCores> &cores) {
  std::string text;
  for (size_t core = 0; core < mostCores; ++core) {
    if (!cores[core])
      continue;
    size_t last = core;
    while (last + 1 < mostCores && cores[last + 1])
      ++last;
    text += concat(text.empty() ? "" : ",", core);
    if (last > core)
      text += concat("-", last);
    core = last;
  }
  return text;
}

// Strips punctuation, since LLVM and the kernel spell features differently:
// "avx512-vnni", "avx512_vnni", "avx512vnni".
std::string plain(const std::string &name) {
  std::string text;
  for (char c : name)
    if (c != '_' && c != '-' && c != '.')
      text += char(std::tolower(c));
  return text;
}

// Returns true if cpuid has the feature, which is one of those that compiled
// programs list (Processor.cpp), or is not known here: a program that runs may
// still fault, but one that cannot run is worse.
bool cpuidHas(const std::string &feature) {
#ifdef __x86_64__
#define FEATURE(name) {name, __builtin_cpu_supports(name) != 0}
  const std::pair<const char *, bool> known[] = {
      FEATURE("avx"),      FEATURE("avx2"),      FEATURE("bmi"),
      FEATURE("bmi2"),     FEATURE("f16c"),      FEATURE("fma"),
      FEATURE("lzcnt"),    FEATURE("movbe"),     FEATURE("avx512f"),
      FEATURE("avx512bw"), FEATURE("avx512cd"),  FEATURE("avx512dq"),
      FEATURE("avx512vl"), FEATURE("avx512bf16")};
#undef FEATURE
  for (auto &[name, present] : known)
    if (feature == name)
      return present;
#endif
  return true;
}

} // namespace

// Ranks count as sharing if they run on the same host and their masks overlap,
// whether they are threads or processes. A rank shares with itself even if its
// mask is unknown.
Cores findCores(Job &job) {
  Binding own;
  gethostname(own.host, sizeof own.host - 1);
  own.cores = readAffinity();
  std::vector<Binding> all(size_t(job.size));
  job.channel[controlChannel]->allGather(&own, all.data(), sizeof own);
  Cores cores;
  cores.bound = std::max(1, int(own.cores.count()));
  cores.list = coreList(own.cores);
  cores.sharing = 0;
  for (const Binding &other : all)
    if (std::strcmp(own.host, other.host) == 0 &&
        (own.cores & other.cores).any())
      ++cores.sharing;
  cores.sharing = std::max(1, cores.sharing);
  return cores;
}

// Read in each step, hence without a stream, which would allocate. The file has
// some 1,500 bytes, with VmHWM among the first 500.
int64_t peakResidentBytes() {
  int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return 0;
  char text[4096];
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  // 0 reads as unknown: memory is reported, never relied on.
  if (length <= 0)
    return 0;
  text[length] = 0;
  const char *found = std::strstr(text, "\nVmHWM:");
  // The kernel prints kB, which are KiB.
  return found ? std::strtoll(found + 7, nullptr, 10) * 1024 : 0;
}

static std::string readCpuInfo() {
  // The first processor's paragraph is enough, and machines have hundreds.
  std::ifstream file("/proc/cpuinfo");
  std::string text, line;
  while (std::getline(file, line) && !line.empty())
    text += line + "\n";
  return text;
}

std::vector<std::string>
lackingFeatures(const std::vector<std::string> &features) {
  std::vector<std::string> lacking = unlistedFeatures(features, readCpuInfo());
  for (const std::string &feature : features)
    if (!cpuidHas(feature) &&
        std::find(lacking.begin(), lacking.end(), feature) == lacking.end())
      lacking.push_back(feature);
  return lacking;
}

std::vector<std::string>
unlistedFeatures(const std::vector<std::string> &features,
                 const std::string &cpuinfo) {
  // Features to which LLVM and the kernel give different names. Only those that
  // LLVM lists for x86-64 processors; on ARM the list in cpuinfo is called
  // "Features", so nothing is lacking there.
  static const std::array<const char *, 2> renamed[] = {
      {"64bit", "lm"},     {"bmi", "bmi1"},         {"crc32", "sse4_2"},
      {"lzcnt", "abm"},    {"pclmul", "pclmulqdq"}, {"prfchw", "3dnowprefetch"},
      {"rdrnd", "rdrand"}, {"sahf", "lahf_lm"},     {"sha", "sha_ni"},
      {"sse3", "pni"},     {"x87", "fpu"}};
  std::set<std::string> present;
  std::istringstream lines(cpuinfo);
  std::string line, word;
  while (std::getline(lines, line)) {
    // x86's name for the list.
    if (line.rfind("flags", 0) != 0)
      continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    while (words >> word)
      present.insert(plain(word));
  }
  std::vector<std::string> unlisted;
  if (present.empty())
    return unlisted;
  for (const std::string &feature : features) {
    std::string name = feature;
    for (auto &[llvm, kernel] : renamed)
      if (feature == llvm)
        name = kernel;
    if (!present.count(plain(name)))
      unlisted.push_back(feature);
  }
  return unlisted;
}

} // namespace fsdpc::runtime
