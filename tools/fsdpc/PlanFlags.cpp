// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The flags of `fsdpc simulate` and `fsdpc tune`, with CLI11, which throws.
// They say how a plan is run or varied. What a plan is made of are the options
// of the table, which both commands take as a compile does.
#include "tools/fsdpc/PlanFlags.h"

#include "compiler/options/OptionTable.h"

#include "llvm/ADT/STLExtras.h"

#include <CLI/CLI.hpp>
#include <algorithm>

using namespace fsdpc;
using namespace fsdpc::driver;

// Reads "COUNT,SHARE": so many ranks are slower by that share.
static std::string readStragglers(const std::string &text,
                                  schedule::Unevenness &unevenness) {
  auto [count, share] = llvm::StringRef(text).split(',');
  if (count.getAsInteger(10, unevenness.stragglers) ||
      unevenness.stragglers < 0 || share.getAsDouble(unevenness.straggling) ||
      !(unevenness.straggling >= 0 && unevenness.straggling <= 100))
    return "'" + text + "' is not COUNT,SHARE, as in 2,0.1 for two ranks " +
           "whose ops take a tenth longer";
  return "";
}

void driver::addPlanFlags(CLI::App &app, CommandLine &line) {
  PlanFlags &plan = line.plan;
  auto group = [](CLI::Option *option, const char *text) {
    option->group("Plan")->option_text(text);
  };
  group(app.add_option("--accumulate", plan.accumulate,
                       "microbatches of a step (default 1)")
            ->check(CLI::Range(int64_t(1), int64_t(1) << 20)),
        "K");
  group(app.add_option("--json", plan.json, "also writes the figures as JSON"),
        "FILE");
  // One value per use, so that the model's name is not taken for another.
  CLI::Option *ranks = app.add_option("--ranks", plan.ranks)
                           ->type_size(1)
                           ->allow_extra_args(false)
                           ->check(CLI::Range(int64_t(1), int64_t(1) << 20));
  if (line.command == Command::Tune) {
    ranks->multi_option_policy(CLI::MultiOptionPolicy::Throw)
        ->description("the ranks of the job, as --plan-ranks");
    group(ranks, "N");
    // A size as --memory-limit takes it, which it sets.
    app.add_option_function<std::string>(
           "--memory",
           [&line](const std::string &text) {
             std::string fault = fsdp::setOption(
                 *fsdp::findOption("memory-limit"), text, line.options);
             if (!fault.empty())
               throw CLI::ValidationError("--memory", fault);
           },
           "what a rank may take, as --memory-limit (default: the machine's)")
        ->option_text("SIZE")
        ->group("Plan");
    group(app.add_option("--batch-dim", plan.batchDim,
                         "the symbolic dimension, fixed by --dim, that "
                         "microbatches may cut"),
          "NAME");
    group(app.add_option("--measure", plan.measured,
                         "compiles and runs so many of the fastest on this "
                         "machine (--target=host)")
              ->check(CLI::Range(int64_t(1), int64_t(32))),
          "COUNT");
    return;
  }
  ranks->delimiter(',')->description(
      "numbers of ranks; the schedule is the one for --plan-ranks, the first "
      "of them unless given (default: 8 to 16384)");
  group(ranks, "N[,N...]");
  group(app.add_option("--jitter", plan.unevenness.jitter,
                       "standard deviation of an op's time, as a share of it "
                       "(default 0)")
            ->check(CLI::Range(0.0, 1.0)),
        "SHARE");
  app.add_option_function<std::string>(
         "--stragglers",
         [&plan](const std::string &text) {
           std::string fault = readStragglers(text, plan.unevenness);
           if (!fault.empty())
             throw CLI::ValidationError("--stragglers", fault);
         },
         "so many ranks, drawn at random, are slower by that share")
      ->option_text("COUNT,SHARE")
      ->group("Plan");
  group(app.add_option("--seed", plan.unevenness.seed,
                       "what is drawn at random (default 0)"),
        "S");
}

// A dump keeps its own.
void driver::setRanks(CommandLine &line) {
  if (line.plan.ranks.empty() || llvm::StringRef(line.model).ends_with(".mlir"))
    return;
  auto set = [&](const char *name, int64_t value) {
    const fsdp::OptionInfo *option = fsdp::findOption(name);
    if (!llvm::is_contained(line.options.given, option))
      fsdp::setOption(*option, std::to_string(value), line.options);
  };
  set("plan-ranks", line.plan.ranks.front());
  int64_t most =
      *std::max_element(line.plan.ranks.begin(), line.plan.ranks.end());
  if (most > line.options.maxRanks)
    set("max-ranks", most);
}
