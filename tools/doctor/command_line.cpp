// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The command line of `fsdpc doctor`, with CLI11, which throws.
#include "runtime/support/diagnostics.h"
#include "runtime/support/help_format.h"
#include "runtime/support/programs.h"
#include "tools/doctor/doctor.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>

namespace fsdpc::doctor {

static const char *const help =
    "Says what this machine has for fsdpc and its programs, what it lacks, and "
    "what\nmends that. Ends with 1 if a compile or a run cannot work here.\n"
    "A model file that is called 'doctor' is written './doctor'.";

completion::Command describeDoctor() {
  return {"doctor", help, completion::flagsOf(CLI::App()), {}};
}

int runDoctor(int argc, char **argv, const std::string &toolkit) {
  CLI::App app(help, "fsdpc doctor");
  HelpFormat::setOn(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp &help) {
    return app.exit(help);
  } catch (const CLI::ParseError &error) {
    return int(runtime::printError(commandLineError(
        error.what() + std::string(" (see fsdpc doctor --help)"))));
  }
  std::vector<Finding> findings = judge(gather(ownProgram(), toolkit));
  std::cout << reportOf(findings) << std::flush;
  if (!std::cout)
    return int(
        runtime::printError(runError("cannot write the report to stdout")));
  bool wrong =
      std::any_of(findings.begin(), findings.end(), [](const Finding &finding) {
        return finding.verdict == Verdict::wrong;
      });
  return wrong ? 1 : 0;
}

} // namespace fsdpc::doctor
