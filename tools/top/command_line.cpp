// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The command line of `fsdpc top`, with CLI11, which throws. On a terminal the
// table is redrawn until Ctrl-C, or until all runs are done; elsewhere it is
// printed once, since nothing can be redrawn.
#include "runtime/support/diagnostics.h"
#include "runtime/support/help_format.h"
#include "runtime/support/output_file.h"
#include "tools/top/top.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <thread>
#include <unistd.h>

namespace fsdpc::top {
namespace {

struct Arguments {
  std::vector<std::string> logs;
  std::string plot;
  bool once = false;
  double interval = 2;
};

int report(const Error &error) { return int(runtime::printError(error)); }

Status update(std::vector<RunLog> &logs) {
  for (RunLog &log : logs)
    FSDPC_TRY(log.update());
  return {};
}

// Returns true if every run has logged its last step.
bool allDone(const std::vector<RunLog> &logs) {
  return std::all_of(logs.begin(), logs.end(), [](const RunLog &log) {
    return log.done() >= log.steps();
  });
}

// Prints the table until all runs are done. Returns the exit code.
int watch(const Arguments &arguments, std::vector<RunLog> &logs) {
  bool redraw = !arguments.once && isatty(STDOUT_FILENO);
  for (;;) {
    if (Status updated = update(logs); !updated)
      return report(updated.error());
    std::chrono::duration<double> now =
        std::chrono::system_clock::now().time_since_epoch();
    std::string table = tableOf(logs, now.count());
    // Home, the table, and the rest of the screen is cleared: no flicker.
    std::cout << (redraw ? "\x1b[H\x1b[2J" : "") << table << std::flush;
    if (!std::cout)
      return report(runError("cannot write the table to stdout"));
    if (!redraw || allDone(logs))
      return 0;
    std::this_thread::sleep_for(
        std::chrono::duration<double>(arguments.interval));
  }
}

// The losses of a step and of its microbatches are different numbers, which one
// picture would show as a difference between the runs.
Status checkLossMeans(const std::vector<RunLog> &logs) {
  auto other = std::find_if(logs.begin(), logs.end(), [&](const RunLog &log) {
    return log.lossMean() != logs.front().lossMean();
  });
  if (other == logs.end())
    return {};
  auto describe = [](const RunLog &log) {
    return "'" + log.name() + "' has " +
           (log.lossMean().empty() ? "no means over targets"
                                   : "--loss-mean=" + log.lossMean());
  };
  return inputError(
      "the losses are different means: " + describe(logs.front()) + ", " +
      describe(*other) + "; plot them apart");
}

const char *const help =
    "Shows running and finished jobs by the logs that they write with --log.\n"
    "A model file that is called 'top' is written './top'.\n\n"
    "  fsdpc top run.jsonl\n"
    "  fsdpc top runs/*.jsonl --plot curves.svg";

void addFlags(CLI::App &app, Arguments &arguments) {
  app.add_option("LOG", arguments.logs, "logs, a line of the table each")
      ->required();
  app.add_flag(
      "--once", arguments.once,
      "prints the table once, as it also is if stdout is not a terminal");
  app.add_option("--interval", arguments.interval,
                 "seconds between two tables (default 2)")
      ->option_text("S")
      ->check(CLI::Range(0.1, 3600.));
  app.add_option("--plot", arguments.plot,
                 "writes the curves of loss, norm, learning rate and "
                 "throughput as an image, instead of the table; a PNG needs "
                 "rsvg-convert")
      ->option_text("FILE.svg|FILE.png");
}

} // namespace

completion::Command describeTop() {
  Arguments arguments;
  CLI::App app;
  addFlags(app, arguments);
  return {"top", help, completion::flagsOf(app), {}};
}

int runTop(int argc, char **argv) {
  Arguments arguments;
  CLI::App app(help, "fsdpc top");
  HelpFormat::setOn(app);
  addFlags(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp &help) {
    return app.exit(help);
  } catch (const CLI::ParseError &error) {
    return report(commandLineError(error.what() +
                                   std::string(" (see fsdpc top --help)")));
  }
  std::vector<RunLog> logs(arguments.logs.begin(), arguments.logs.end());
  if (arguments.plot.empty())
    return watch(arguments, logs);
  runtime::outliveReaders();
  const std::string &plot = arguments.plot;
  std::string ending =
      plot.substr(plot.size() - std::min<size_t>(4, plot.size()));
  if (ending != ".svg" && ending != ".png")
    return report(commandLineError("--plot: '" + plot +
                                   "' does not end in .svg or .png"));
  if (Status updated = update(logs); !updated)
    return report(updated.error());
  if (Status same = checkLossMeans(logs); !same)
    return report(same.error());
  std::string image = plotOf(logs);
  Status written = ending == ".png"
                       ? writePng(plot, image)
                       : writeWhole(plot, image.data(), image.size());
  return written ? 0 : report(written.error());
}

} // namespace fsdpc::top
