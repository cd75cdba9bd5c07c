// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the settings from the environment, strictly: a test whose fault is
// misspelt would pass for the wrong reason. Errors end the process before
// anything else.
#include "runtime/emulation/settings.h"
#include "runtime/support/concat.h"
#include "runtime/support/diagnostics.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace fsdpc::runtime::emulation {

namespace {

// Parses a whole number of at least `least`.
bool parseNumber(const std::string &text, uint64_t least, uint64_t &number) {
  // strtoull alone would take spaces, a sign and trailing text.
  if (text.empty() || text.find_first_not_of("0123456789") != text.npos)
    return false;
  errno = 0;
  number = strtoull(text.c_str(), nullptr, 10);
  return errno == 0 && number >= least;
}

[[noreturn]] void endWith(const Error &error) { exit(int(printError(error))); }

// An empty variable counts as unset. Ends the process if the value is not a
// whole number.
uint64_t numberOf(const char *variable, uint64_t least, uint64_t otherwise) {
  const char *text = getenv(variable);
  if (!text || !*text)
    return otherwise;
  uint64_t number = 0;
  if (!parseNumber(text, least, number))
    endWith(inputError(concat(std::string(variable), "='", text,
                              "' is not a whole number of at least ", least)));
  return number;
}

} // namespace

Result<Fault> parseFault(const std::string &text) {
  static constexpr std::pair<const char *, Fault::Kind> kinds[] = {
      {"launch", Fault::launch},
      {"hang", Fault::hang},
      {"nccl", Fault::nccl},
      {"silent", Fault::silent},
      {"late-memory", Fault::lateMemory},
      {"endless", Fault::endless},
      {"memory", Fault::memory},
      {"driver", Fault::driver},
      {"few-devices", Fault::fewDevices},
      {"old-nccl", Fault::oldNccl},
      {"refuse-shared", Fault::refuseShared},
      {"refuse-windows", Fault::refuseWindows},
      {"refuse-products", Fault::refuseProducts},
      {"refuse-epilogues", Fault::refuseEpilogues},
      {"refuse-convolutions", Fault::refuseConvolutions},
      {"refuse-attention", Fault::refuseAttention},
  };
  // KIND[:NUMBER][@RANK].
  size_t at = text.find('@'), colon = text.find(':');
  std::string name = text.substr(0, std::min(colon, at));
  Fault fault;
  for (auto [known, kind] : kinds)
    if (name == known)
      fault.kind = kind;
  // Only these count events; the others hold from the start, so a number would
  // mean nothing.
  bool counts = fault.kind >= Fault::launch && fault.kind <= Fault::endless;
  uint64_t number = 1, rank = 0;
  bool good = fault.kind != Fault::none;
  if (colon != text.npos)
    good &= counts &&
            parseNumber(
                text.substr(colon + 1, at == text.npos ? at : at - colon - 1),
                1, number);
  if (at != text.npos)
    good &= counts && parseNumber(text.substr(at + 1), 0, rank);
  if (!good)
    return inputError(
        "'" + text +
        "' is not a valid fault; use launch:N, hang:N, nccl:N, "
        "silent:N, late-memory:N or endless:N, optionally with @RANK, "
        "or memory, driver, few-devices, old-nccl, refuse-shared, "
        "refuse-windows, refuse-products, "
        "refuse-epilogues, refuse-convolutions, refuse-attention");
  fault.number = int64_t(number);
  fault.rank = int(rank);
  return fault;
}

// The list of known names must match those that readSettings reads.
std::string unknownVariable(char **environment) {
  static constexpr std::string_view prefix = "FSDPC_EMULATION_";
  for (; *environment; ++environment) {
    std::string_view name(*environment);
    name = name.substr(0, name.find('='));
    if (name.substr(0, prefix.size()) != prefix)
      continue;
    std::string_view rest = name.substr(prefix.size());
    if (rest != "SEED" && rest != "MEMORY" && rest != "PINNED" &&
        rest != "DEVICES" && rest != "BLOCKS" && rest != "FAULT" &&
        rest != "VOLUMES")
      return std::string(name);
  }
  return "";
}

Settings readSettings() {
  if (std::string name = unknownVariable(environ); !name.empty())
    endWith(inputError(name +
                       " is not a variable of the emulation; use "
                       "FSDPC_EMULATION_SEED, FSDPC_EMULATION_MEMORY, "
                       "FSDPC_EMULATION_PINNED, FSDPC_EMULATION_DEVICES, "
                       "FSDPC_EMULATION_BLOCKS, "
                       "FSDPC_EMULATION_FAULT or FSDPC_EMULATION_VOLUMES"));
  Settings settings;
  settings.seed = numberOf("FSDPC_EMULATION_SEED", 0, settings.seed);
  settings.memory = numberOf("FSDPC_EMULATION_MEMORY", 1, settings.memory);
  settings.pinned = numberOf("FSDPC_EMULATION_PINNED", 1, settings.pinned);
  settings.devices =
      int(numberOf("FSDPC_EMULATION_DEVICES", 0, uint64_t(settings.devices)));
  // More would only wait for each other.
  settings.blocksAtOnce = int(std::min<uint64_t>(
      numberOf("FSDPC_EMULATION_BLOCKS", 1, uint64_t(settings.blocksAtOnce)),
      64));
  // Every launcher has its own variable. The rank only selects the process that
  // a launch fault strikes.
  for (const char *variable :
       {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "SLURM_PROCID"})
    if (const char *text = getenv(variable)) {
      settings.rank = atoi(text);
      break;
    }
  if (const char *text = getenv("FSDPC_EMULATION_FAULT"); text && *text) {
    Result<Fault> fault = parseFault(text);
    if (!fault)
      endWith(fault.error().reworded("FSDPC_EMULATION_FAULT=" +
                                     fault.error().message));
    settings.fault = *fault;
  }
  if (const char *file = getenv("FSDPC_EMULATION_VOLUMES"))
    settings.volumes = file;
  return settings;
}

} // namespace fsdpc::runtime::emulation
