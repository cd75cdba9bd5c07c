// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Asks each command for its flags. `fsdpc run` also takes those of a compile
// and of a program.
#include "tools/fsdpc/Commands.h"

#include "runtime/support/own_flags.h"
#include "tools/ckpt/commands.h"
#include "tools/doctor/doctor.h"
#include "tools/export/Export.h"
#include "tools/fsdpc/CommandLine.h"
#include "tools/run/arguments.h"
#include "tools/top/top.h"

#include "llvm/ADT/STLExtras.h"

using namespace fsdpc;

// The flags of a program, from its table.
static std::vector<completion::Flag> flagsOfPrograms() {
  struct Row {
    const char *name, *value, *help;
  };
  static constexpr Row rows[] = {
#define FLAG(name, value, help, ...) {name, value, help},
#include "runtime/support/program_flags.def"
  };
  std::vector<completion::Flag> flags;
  for (const Row &row : rows) {
    // The value in brackets may be left out, and stands behind a '='.
    bool takesNext = row.value && *row.value != '[';
    flags.push_back({{std::string("--") + row.name},
                     takesNext ? row.value : "",
                     {},
                     row.help});
  }
  return flags;
}

static completion::Command describeRun() {
  completion::Command run = run::describeRun();
  auto isKnown = [&](const completion::Flag &flag) {
    return llvm::any_of(run.flags, [&](const completion::Flag &known) {
      return known.names == flag.names;
    });
  };
  std::vector<completion::Flag> more = flagsOfPrograms();
  for (completion::Flag &flag :
       driver::describeCommand(driver::Command::Compile).flags)
    if (llvm::is_contained(compilerFlags(),
                           std::string_view(flag.names.back()).substr(2)))
      more.push_back(std::move(flag));
  for (completion::Flag &flag : more)
    if (!isKnown(flag))
      run.flags.push_back(std::move(flag));
  return run;
}

std::vector<completion::Command> driver::allCommands() {
  using driver::Command;
  std::vector<completion::Command> commands;
  for (Command command :
       {Command::Compile, Command::Check, Command::Simulate, Command::Tune})
    commands.push_back(describeCommand(command));
  commands.push_back(describeRun());
  for (completion::Command &command : ckpt::describeCkpt())
    commands.push_back(std::move(command));
  commands.push_back(exporting::describeExport());
  commands.push_back(top::describeTop());
  commands.push_back(doctor::describeDoctor());
  commands.push_back(
      {"calibrate", "Measures this machine for --machine", {}, {}});
  commands.push_back({"diff", "Tells two schedules apart", {}, {}});
  return commands;
}
