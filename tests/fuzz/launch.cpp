// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes the environment variables of launchers: one NAME=VALUE per line.
#include "runtime/comm/launch_environment.h"
#include "tests/fuzz/input.h"

#include <sstream>
#include <vector>

using namespace fsdpc;
using namespace fsdpc::runtime;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::istringstream lines(std::string(data, data + size));
  std::vector<std::string> variables;
  for (std::string line; std::getline(lines, line) && variables.size() < 64;)
    // A variable ends at its first zero byte, as in the environment.
    variables.push_back(line.substr(0, line.find('\0')));
  std::vector<char *> list;
  for (std::string &variable : variables)
    list.push_back(variable.data());
  list.push_back(nullptr);
  // Not setenv, which keeps every value that it was ever given.
  char **before = environ;
  environ = list.data();
  auto launched = readLaunchEnvironment();
  environ = before;
  if (!launched) {
    fuzz::demand(!launched.error().message.empty(), "an error has a message");
    return 0;
  }
  fuzz::demand(launched->rank >= 0 && launched->rank < launched->ranks,
               "a rank is one of the ranks");
  fuzz::demand(!launched->missing.empty() ||
                   (launched->port > 0 && launched->port < 65536 &&
                    !launched->address.empty()),
               "ranks that meet know where");
  return 0;
}
