// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The classes of ops, and the committed machines, which the build embeds from
// the folder `machines` (machine_files.inc).

#include "compiler/schedule/machine.h"

#include <cstdlib>

namespace fsdpc::schedule {

namespace {

struct File {
  std::string_view name, text;
};
constexpr File files[] = {
#include "compiler/schedule/machine_files.inc"
};

struct Default {
  std::string_view target, machine;
};
constexpr Default defaults[] = {
    {"host", "one-core"},       {"sm_80", "a100"}, {"sm_86", "a40"},
    {"sm_89", "l40s"},          {"sm_90", "h200"}, {"sm_100", "b200"},
    {"sm_120", "rtx-pro-6000"},
};

} // namespace

const Rates &Machine::ratesOf(std::string_view opClass) const {
  auto found = rates.find(opClass);
  // A copy is bound by memory as a generated kernel is. A calibrated `default`
  // is fitted to products, which hardly show the rate of memory.
  if (found == rates.end() && opClass == "copy")
    found = rates.find("launch");
  return found != rates.end() ? found->second : rates.at("default");
}

// The mnemonics of nn's library calls and of its launch, the update of a
// layout's shard, and what a collective copies, casts or sums within a rank.
const std::vector<std::string_view> &opClasses() {
  static const std::vector<std::string_view> classes = {"default",
                                                        "matmul",
                                                        "attention",
                                                        "attention_grad",
                                                        "conv2d",
                                                        "conv2d_grad_input",
                                                        "conv2d_grad_filter",
                                                        "max_pool2d",
                                                        "max_pool2d_grad",
                                                        "avg_pool2d",
                                                        "avg_pool2d_grad",
                                                        "launch",
                                                        "optimizer",
                                                        "copy"};
  return classes;
}

std::vector<std::string> machineNames() {
  std::vector<std::string> names;
  for (const File &file : files)
    names.emplace_back(file.name);
  return names;
}

std::string_view machineText(std::string_view name) {
  for (const File &file : files)
    if (file.name == name)
      return file.text;
  return "";
}

// Parsed once per target, since passes ask for each function. A committed file
// that does not parse is a fault of the build, which a test finds first.
Machine defaultMachine(std::string_view target) {
  static const std::map<std::string_view, Machine> machines = [] {
    std::map<std::string_view, Machine> parsed;
    for (const Default &entry : defaults) {
      Result<Machine> machine = machineFromJson(machineText(entry.machine));
      if (!machine)
        std::abort();
      parsed.emplace(entry.target, *std::move(machine));
    }
    return parsed;
  }();
  auto found = machines.find(target);
  return found != machines.end() ? found->second : machines.at("sm_90");
}

} // namespace fsdpc::schedule
