// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts from the start of the process, since loading LLVM's libraries is a
// part of every compile that main() cannot measure.
#include "tools/fsdpc/Timing.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>
#include <unistd.h>

using namespace fsdpc::driver;

static double secondsOf(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

// Returns the seconds from the machine's start to the process's, in steps of
// 10 ms, as the kernel counts them (proc(5), field 22 of stat).
static double startOfProcess() {
  std::ifstream file("/proc/self/stat");
  std::string text(std::istreambuf_iterator<char>(file), {});
  // The name in parentheses may hold spaces. Field 3 follows it.
  std::istringstream fields(
      text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string field;
  for (int number = 3; number <= 22; ++number)
    fields >> field;
  double ticks = 0;
  if (!fields || llvm::StringRef(field).getAsDouble(ticks))
    return secondsOf(CLOCK_BOOTTIME);
  return ticks / double(sysconf(_SC_CLK_TCK));
}

Timing::Time Timing::now() {
  static const double start = startOfProcess();
  return {secondsOf(CLOCK_BOOTTIME) - start,
          secondsOf(CLOCK_PROCESS_CPUTIME_ID)};
}

Timing::Timing(TimingDetail detail) : detail(detail) {
  if (detail == TimingDetail::None)
    return;
  name = part = "start of fsdpc";
  begin("");
}

Timing::Row &Timing::rowOf(llvm::StringRef name) {
  auto row =
      llvm::find_if(rows, [&](const Row &row) { return row.name == name; });
  if (row != rows.end())
    return *row;
  rows.push_back({name.str(), {}});
  return rows.back();
}

void Timing::begin(llvm::StringRef nextPart, llvm::StringRef pass) {
  if (detail == TimingDetail::None)
    return;
  Time end = now();
  if (!part.empty()) {
    Row &row = rowOf(part);
    row.time.elapsed += end.elapsed - began.elapsed;
    row.time.processor += end.processor - began.processor;
    if (detail == TimingDetail::Passes)
      llvm::errs() << "timing: " << name << " "
                   << llvm::format("%.3f", end.processor - began.processor)
                   << " s\n";
  }
  part = nextPart.str();
  name = pass.empty() ? part : pass.str();
  began = end;
}

Timing::~Timing() {
  if (detail == TimingDetail::None)
    return;
  begin("");
  Row total{"total", began};
  auto print = [](const Row &row) {
    llvm::errs() << llvm::format("%-15s %9.3f %9.3f\n", row.name.c_str(),
                                 row.time.elapsed, row.time.processor);
  };
  llvm::errs() << llvm::format("%-15s %9s %9s\n", "seconds", "elapsed",
                               "processor");
  for (const Row &row : rows)
    print(row);
  print(total);
}
