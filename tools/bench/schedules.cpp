// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Solves scheduling problems of real models with every rule and prints how far
// each is from the lower bound, with and without memory limits.
//
// usage: schedule_bench PROBLEM.json…   (from schedule-prefetch{problem=FILE})
#include "compiler/schedule/bound.h"
#include "compiler/schedule/problem_json.h"
#include "compiler/schedule/solvers.h"
#include "runtime/support/diagnostics.h"

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

using namespace fsdpc::schedule;

namespace {

Solved solveAs(Problem problem, Prefetch mode) {
  problem.options.prefetch = mode;
  return solve(problem);
}

// The lost time in ms, or a dash where the rule does not fit the limit.
void cell(const Solved &solved) {
  if (auto *found = std::get_if<Solution>(&solved))
    std::printf(" %9.2f", found->timeline.lostUs() / 1e3);
  else
    std::printf(" %9s", "-");
}

// The bound, each rule's lost time, then by how many percent the solver's is
// above the bound, its peak and the processor's seconds of its search, which
// other work on the machine hardly changes.
void row(const Problem &problem) {
  double bound = leastLostUs(problem);
  std::printf(" %9.2f", bound / 1e3);
  for (Prefetch mode : {Prefetch::None, Prefetch::Post, Prefetch::Pre})
    cell(solveAs(problem, mode));
  std::clock_t begin = std::clock();
  Solved solved = solveAs(problem, Prefetch::Auto);
  double seconds = double(std::clock() - begin) / CLOCKS_PER_SEC;
  cell(solved);
  if (auto *found = std::get_if<Solution>(&solved))
    std::printf(" %6.2f %9.1f", 100 * (found->timeline.lostUs() / bound - 1),
                double(found->peakBytes) / (1 << 20));
  else
    std::printf(" %6s %9s", "", "");
  std::printf(" %8.3f\n", seconds);
}

} // namespace

static int printTable(int count, char **files) {
  std::printf("%-24s %9s %9s %9s %9s %9s %9s %6s %9s %8s\n", "lost ms",
              "cap MiB", "bound", "none", "post", "pre", "auto", "gap %",
              "auto MiB", "s");
  for (int i = 1; i < count; ++i) {
    std::ifstream file(files[i]);
    std::string text(std::istreambuf_iterator<char>(file), {});
    fsdpc::Result<Problem> problem = problemFromJson(text);
    if (!problem) {
      std::fprintf(stderr, "error: '%s' is %s\n", files[i],
                   problem.error().message.c_str());
      return 1;
    }
    std::string name = std::filesystem::path(files[i]).stem();
    Solved none = solveAs(*problem, Prefetch::None);
    Solved pre = solveAs(*problem, Prefetch::Pre);
    int64_t least = std::get<Solution>(none).peakBytes;
    int64_t most = std::get<Solution>(pre).peakBytes;
    // Limits between the two, and above.
    for (double share : {0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0}) {
      Problem capped = *problem;
      capped.options.memoryLimit =
          least + int64_t(share * double(most - least));
      std::printf("%-24s %9.1f", name.c_str(),
                  double(*capped.options.memoryLimit) / (1 << 20));
      row(capped);
    }
    std::printf("%-24s %9s", name.c_str(), "none");
    row(*problem);
  }
  return 0;
}

int main(int count, char **files) {
  return fsdpc::runtime::guarded([&] { return printTable(count, files); });
}
