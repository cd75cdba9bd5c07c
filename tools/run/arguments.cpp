// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the flags of `fsdpc run` itself, with CLI11, which throws, and checks
// what they need of the program's flags. Errors end with where the help is,
// since a wrong flag may belong to any of three commands.
#include "tools/run/arguments.h"

#include "runtime/support/concat.h"
#include "runtime/support/help_format.h"

#include <CLI/CLI.hpp>

#include <charconv>

namespace fsdpc::run {
namespace {

const char *const help =
    "Compiles a model if needed, starts it on the ranks and hosts that you "
    "name, watches the job, and starts it again from its newest checkpoint "
    "after a fault. Takes the flags of a compile (fsdpc --help-all) and of the "
    "program (PROGRAM --help) in any order; a compiled program takes only the "
    "latter. A model file that is called 'run' is written './run'.\n\n"
    "  fsdpc run gpt.onnx --data input_ids=tokens.npy --steps 1000 "
    "--lr=3e-4\n"
    "  fsdpc run gpt.onnx -np 4 --param-dtype=bf16 --data …    # four ranks of "
    "this host\n"
    "  fsdpc run ./train -np 16 --hosts node1:8,node2:8 --data …    # two "
    "hosts\n"
    "  fsdpc run ./train -np 16 --hosts node1:8,node2:8 --restarts 5 "
    "--min-ranks 8 --data … --steps 100000 --checkpoint ckpt "
    "--checkpoint-every 30m    # unattended: goes on with one host if the "
    "other dies\n\n"
    "A program starts under mpirun if Open MPI is installed. Without it the "
    "ranks of one host are threads, and those of several hosts are started "
    "by ssh. All hosts need the same folders under the same paths: the "
    "working folder, the program, data and checkpoints.\n\n"
    "A job is started again if it ends with 4 (interrupted; not by a signal "
    "to this command), 5 (a machine or link failed), 137, 143 (a rank was "
    "killed) or 205 (mpirun lost a host). SIGTERM or Ctrl-C lets the job save "
    "and end; a second one kills it. The exit code is the job's (docs/jobs.md "
    "has the table).";

Error fault(const std::string &message) {
  return commandLineError(message + " (see fsdpc run --help)");
}

// Reads a flag of the program that counts here as well; its own parser names
// what is wrong with the value.
int64_t numberOf(const std::vector<std::string> &words, const char *flag,
                 int64_t otherwise) {
  std::string text = valueOf(words, flag);
  int64_t number = 0;
  auto [end, code] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  bool whole = code == std::errc() && end == text.data() + text.size();
  return whole && number > 0 ? number : otherwise;
}

// Decides on ranks, slots and microbatches.
Status completeRanks(Arguments &arguments, int64_t given) {
  std::vector<Host> &hosts = arguments.hosts;
  int64_t count = std::max<int64_t>(hosts.size(), 1);
  for (Host &host : hosts)
    if (host.slots == 0)
      host.slots = given > 0 ? (given + count - 1) / count : 1;
  arguments.ranks = given > 0 ? given : hosts.empty() ? 1 : slotsOf(hosts);
  if (!hosts.empty() && arguments.ranks > slotsOf(hosts))
    return fault(concat("-np ", arguments.ranks, " is more than the ",
                        slotsOf(hosts), " slots of --hosts ", listOf(hosts)));
  arguments.shardGroup = numberOf(arguments.program, "--shard-group", 1);
  std::string accumulate = valueOf(arguments.program, "--accumulate");
  if (arguments.microbatches == 0)
    arguments.microbatches =
        arguments.ranks * numberOf(arguments.program, "--accumulate", 1);
  else if (!accumulate.empty())
    return fault("--microbatches sets --accumulate; omit one of them");
  if (arguments.microbatches % arguments.ranks != 0)
    return fault(concat("--microbatches ", arguments.microbatches,
                        " is not a multiple of -np ", arguments.ranks));
  if (arguments.minRanks > arguments.ranks)
    return fault(concat("--min-ranks ", arguments.minRanks,
                        " is more than -np ", arguments.ranks));
  if (arguments.minRanks == 0)
    arguments.minRanks = arguments.ranks;
  return {};
}

Status complete(Arguments &arguments, const std::string &ranks,
                const std::string &hosts) {
  if (arguments.target.empty())
    return fault("no model or program given; fsdpc run MODEL.onnx --data "
                 "NAME=FILE --steps S");
  if (!arguments.isModel() && !arguments.compiler.empty())
    return fault("'" + arguments.compiler[0] +
                 "' is a flag of the compile, and '" + arguments.target +
                 "' is compiled; give the .onnx model");
  for (const char *flag : {"--info", "--manifest"})
    if (std::ranges::find(arguments.program, flag) != arguments.program.end())
      return fault(std::string("'") + flag +
                   "' trains nothing; give it to the program itself");
  if (!valueOf(arguments.program, "--ranks").empty())
    return fault("'--ranks' is decided by -np");
  if (!hosts.empty()) {
    Result<std::vector<Host>> parsed = parseHosts(hosts);
    FSDPC_TRY(parsed);
    arguments.hosts = std::move(*parsed);
  }
  int64_t given = 0;
  if (ranks != "auto") {
    auto [end, code] =
        std::from_chars(ranks.data(), ranks.data() + ranks.size(), given);
    if (code != std::errc() || end != ranks.data() + ranks.size() ||
        given < 1 || given > (1 << 20))
      return fault("-np: '" + ranks + "' is neither a number from 1 nor auto");
  }
  FSDPC_TRY(completeRanks(arguments, given));
  arguments.checkpoint = valueOf(arguments.program, "--checkpoint");
  if (arguments.restarts > 0 && arguments.checkpoint.empty())
    return fault("--restarts needs --checkpoint DIR, from which a run goes on");
  if (arguments.agent.find_first_not_of(' ') == std::string::npos)
    return fault("--rsh: '" + arguments.agent + "' names no program");
  return {};
}

void addFlags(CLI::App &app, Arguments &arguments, std::string &ranks,
              std::string &hosts) {
  app.add_option("--np", ranks,
                 "ranks, also -np N; auto: the slots of --hosts, or 1 (default "
                 "auto)")
      ->option_text("N");
  app.add_option("--hosts", hosts,
                 "where ranks run, filled in this order: names or addresses, "
                 "with the ranks that each takes (default: this host)")
      ->option_text("HOST[:SLOTS],...");
  app.add_option("--restarts", arguments.restarts,
                 "how often a job without a new checkpoint is started again "
                 "after a fault (default 0); needs the program's --checkpoint")
      ->option_text("R")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--min-ranks", arguments.minRanks,
                 "go on with fewer ranks, at least so many, if hosts do not "
                 "answer: the most that divide the microbatches of a step, "
                 "with the same bits (default: all ranks)")
      ->option_text("M")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--microbatches", arguments.microbatches,
                 "microbatches of a step over all ranks, for which "
                 "--accumulate is set (default: N times --accumulate)")
      ->option_text("V")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--host-timeout", arguments.hostSeconds,
                 "seconds to wait before a restart until enough hosts answer "
                 "(default 300)")
      ->option_text("S")
      ->check(CLI::Range(0., 1e6));
  app.add_option("--launcher", arguments.launcher,
                 "auto, threads (one host, no MPI), mpirun, or ssh (TCP, no "
                 "MPI) (default auto)")
      ->option_text("NAME")
      ->check(CLI::IsMember({"auto", "threads", "mpirun", "ssh"}));
  app.add_option("--rsh", arguments.agent,
                 "the remote shell, with its options (default ssh)")
      ->option_text("COMMAND");
  app.add_option("--cache", arguments.cache,
                 "keeps programs in DIR/programs and the code of kernels in "
                 "DIR/kernels, or nowhere with none (default: fsdpc in "
                 "$XDG_CACHE_HOME or ~/.cache)")
      ->option_text("DIR");
}

} // namespace

completion::Command describeRun() {
  Arguments arguments;
  std::string ranks, hosts;
  CLI::App app;
  addFlags(app, arguments, ranks, hosts);
  return {"run", help, completion::flagsOf(app), {}};
}

bool Arguments::isModel() const { return target.ends_with(".onnx"); }

Result<Arguments> parseArguments(const std::vector<std::string> &words,
                                 bool &helped) {
  Result<Words> sorted = sortWords(words);
  FSDPC_TRY(sorted);
  Arguments arguments;
  std::string ranks = "auto", hosts;
  CLI::App app(help, "fsdpc run MODEL.onnx|PROGRAM");
  HelpFormat::setOn(app);
  addFlags(app, arguments, ranks, hosts);
  try {
    // CLI11 takes the words from the back.
    app.parse(
        std::vector<std::string>(sorted->own.rbegin(), sorted->own.rend()));
  } catch (const CLI::CallForHelp &call) {
    app.exit(call);
    helped = true;
    return arguments;
  } catch (const CLI::ParseError &error) {
    return fault(error.what());
  }
  arguments.target = sorted->target;
  arguments.compiler = std::move(sorted->compiler);
  arguments.program = std::move(sorted->program);
  FSDPC_TRY(complete(arguments, ranks, hosts));
  return arguments;
}

} // namespace fsdpc::run
