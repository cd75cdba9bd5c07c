// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc diff` on two files, each a dump of the phases `schedule` and `memory`,
// or a table of --schedule-table. Both become tables, and those are compared
// row by row.
#include "tools/plan/Diff.h"

#include "compiler/analysis/RankMemory.h"
#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/schedule/table.h"
#include "compiler/schedule/table_diff.h"
#include "passes/pipeline/Dump.h"
#include "passes/pipeline/Registration.h"
#include "passes/schedule/Passes.h"
#include "passes/schedule/ScheduleIR.h"
#include "runtime/support/input_file.h"
#include "tools/fsdpc/Diagnostics.h"
#include "tools/fsdpc/TextStreams.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::plan;

namespace {

// Code 1 says that the two differ, as with diff(1), so what cannot be read
// is 3.
enum Outcome { equal = 0, different = 1, usageFault = 2, unreadable = 3 };

constexpr StringLiteral kHelp =
    "Tells two schedules apart: the actions that stand elsewhere, and what "
    "that "
    "changes.\n\n"
    "usage: fsdpc diff A B\n\n"
    "A, B: a dump of 'schedule-prefetch' or later, or a file of "
    "--schedule-table\n"
    "Exit code 0: equal, 1: different, 3: one cannot be read.\n";

// Returns the table of a dump's schedule.
FailureOr<std::string> tableOfDump(StringRef path, MLIRContext *context) {
  OwningOpRef<ModuleOp> module = pipeline::readDump(path, context);
  if (!module)
    return failure();
  // A dump may have been edited, and a schedule can be read only if it is one.
  PassManager manager(context);
  manager.addPass(passes::createVerifySchedule());
  FailureOr<func::FuncOp> function = fsdp::getMicrobatch(*module);
  if (failed(function) || failed(manager.run(*module)))
    return failure();
  FailureOr<passes::ScheduleIR> ir = passes::readSchedule(*function);
  if (failed(ir))
    return failure();
  ir->problem.baseBytes = analysis::RankMemory(*module).total();
  return schedule::writeTable(ir->problem, ir->schedule);
}

FailureOr<std::string> tableOf(StringRef path, MLIRContext *context) {
  if (path.ends_with(".mlir"))
    return tableOfDump(path, context);
  constexpr uint64_t most = 16 << 20; // as of a table that --schedule names
  Result<std::string> text = readText(path.str(), most);
  if (!text)
    return emitError(UnknownLoc::get(context), "cannot read '")
           << path << "': " << text.error().message;
  return *std::move(text);
}

} // namespace

int plan::runDiff(int argc, char **argv) {
  StringRef first = argc > 1 ? argv[1] : "";
  if (first == "--help" || first == "-h") {
    driver::textOut() << kHelp;
    return equal;
  }
  if (argc != 3 || first.starts_with("-") ||
      StringRef(argv[2]).starts_with("-")) {
    driver::textErr()
        << "error: 'fsdpc diff' takes two files, dumps or tables (see "
           "--help)\n";
    return usageFault;
  }
  DialectRegistry registry;
  pipeline::registerDialects(registry);
  MLIRContext context(registry);
  context.printOpOnDiagnostic(false);
  driver::DiagnosticPrinter diagnostics(&context, /*quiet=*/false);
  FailureOr<std::string> a = tableOf(argv[1], &context);
  if (failed(a))
    return unreadable;
  FailureOr<std::string> b = tableOf(argv[2], &context);
  if (failed(b))
    return unreadable;
  Result<schedule::TableDifference> difference =
      schedule::diffTables(*a, argv[1], *b, argv[2]);
  if (!difference) {
    driver::textErr() << "error: " << difference.error().message << "\n";
    return unreadable;
  }
  driver::textOut() << "A: " << argv[1] << "\nB: " << argv[2] << "\n"
                    << difference->text;
  if (difference->equal)
    driver::textOut() << "the schedules are equal\n";
  return difference->equal ? equal : different;
}
