// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes lists of hosts (fsdpc run --hosts): a text is refused with one line,
// or no name of a host is a flag of ssh.
#include "tools/run/hosts.h"
#include "tests/fuzz/input.h"

using namespace fsdpc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto hosts = run::parseHosts(std::string(data, data + size));
  if (!hosts) {
    fuzz::demandOneLine(hosts.error().message);
    return 0;
  }
  for (const run::Host &host : *hosts) {
    fuzz::demand(!host.name.empty() && host.name[0] != '-' &&
                     host.name.find_first_of(" \t\n,;") == std::string::npos,
                 "a name is a word and no flag");
    fuzz::demand(!host.address().empty() && host.slots >= 0,
                 "a host has an address");
  }
  fuzz::demand(run::slotsOf(*hosts) >= 0, "slots can be added");
  return 0;
}
