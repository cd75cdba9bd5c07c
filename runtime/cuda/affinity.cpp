// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Binds threads by what sysfs says of a PCI device.
#include "runtime/cuda/affinity.h"

#include <charconv>
#include <fstream>

namespace fsdpc::runtime {

namespace {

// Parses a number at `at` and moves behind it.
bool takeNumber(const char *&at, const char *end, int &number) {
  auto [behind, error] = std::from_chars(at, end, number);
  at = behind;
  return error == std::errc() && number >= 0 && number < CPU_SETSIZE;
}

} // namespace

cpu_set_t parseProcessors(const std::string &text) {
  cpu_set_t none, found;
  CPU_ZERO(&none);
  CPU_ZERO(&found);
  const char *at = text.data(), *end = at + text.size();
  while (at != end) {
    int first = 0;
    if (!takeNumber(at, end, first))
      return none;
    int last = first;
    if (at != end && *at == '-' && !takeNumber(++at, end, last))
      return none;
    for (int processor = first; processor <= last; ++processor)
      CPU_SET(processor, &found);
    if (at != end && *at++ != ',')
      return none;
  }
  return found;
}

std::string stayNear(const std::string &pciAddress,
                     const std::string &devices) {
  std::ifstream file(devices + "/" + pciAddress + "/local_cpulist");
  std::string list;
  if (pciAddress.empty() || !std::getline(file, list))
    return "";
  cpu_set_t near = parseProcessors(list), allowed, both;
  if (sched_getaffinity(0, sizeof allowed, &allowed))
    return "";
  CPU_AND(&both, &near, &allowed);
  bool changes = CPU_COUNT(&both) > 0 && !CPU_EQUAL(&both, &allowed);
  if (!changes || sched_setaffinity(0, sizeof both, &both))
    return "";
  return list;
}

} // namespace fsdpc::runtime
