// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints diagnostics and progress. MLIR's own handler shows file locations and
// whole ops; users of a compiler for models want the name of the ONNX node.
// Everything goes to stderr, since stdout may carry the compiled module.
#include "tools/fsdpc/Diagnostics.h"
#include "runtime/support/concat.h"
#include "tools/fsdpc/TextStreams.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Location.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <set>
#include <utility>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::driver;

// Returns the name of the node, or the position in a dump, or "". The first
// name or position in the location decides. Locations nest: a fused op has
// those of all its parts.
static std::string placeOf(Location location) {
  std::string place;
  location->walk([&](Location inner) {
    if (auto name = dyn_cast<NameLoc>(inner)) {
      place = "node '" + name.getName().str() + "'";
      return WalkResult::interrupt();
    }
    if (auto file = dyn_cast<FileLineColLoc>(inner)) {
      place = concat(file.getFilename().str(), ":", file.getLine(), ":",
                     file.getColumn());
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return place;
}

// Returns the text with its further lines indented. They may come from a name
// with an end of line, and must not look like messages of ours.
static std::string withIndentedLines(const std::string &text) {
  std::string result;
  for (char c : text)
    result += c == '\n' ? std::string("\n    ") : std::string(1, c);
  return result;
}

// Returns the lines of a diagnostic and its notes.
static std::string textOf(Diagnostic &diagnostic, StringRef indent) {
  StringRef kind;
  switch (diagnostic.getSeverity()) {
  case DiagnosticSeverity::Error:
    kind = "error";
    break;
  case DiagnosticSeverity::Warning:
    kind = "warning";
    break;
  case DiagnosticSeverity::Note:
    kind = "note";
    break;
  case DiagnosticSeverity::Remark:
    kind = "remark";
    break;
  }
  std::string place = placeOf(diagnostic.getLocation());
  std::string text =
      withIndentedLines(concat(indent.str(), kind.str(), ": ", diagnostic.str(),
                               place.empty() ? "" : " (" + place + ")"));
  text += "\n";
  for (Diagnostic &note : diagnostic.getNotes())
    text += textOf(note, "  ");
  return text;
}

// Only remarks are hidden by --quiet: warnings may change what a user does.
// What all shapes of a model have in common is said once.
DiagnosticPrinter::DiagnosticPrinter(MLIRContext *context, bool quiet)
    : ScopedDiagnosticHandler(context, [quiet, said = std::set<std::string>()](
                                           Diagnostic &diagnostic) mutable {
        if (quiet && diagnostic.getSeverity() == DiagnosticSeverity::Remark)
          return success();
        std::string text = textOf(diagnostic, "");
        if (!said.insert(text).second)
          return success();
        // The message would otherwise continue the line of the pass.
        Progress::clear();
        textErr() << text;
        return success();
      }) {}

Progress::Progress(bool quiet, unsigned steps)
    : shown(!quiet && llvm::sys::Process::StandardErrIsDisplayed()),
      steps(steps) {}

// One per process, as there is one terminal.
static bool hasLine = false; // the terminal shows a name

void Progress::step(StringRef name) {
  clear();
  if (!shown)
    return;
  llvm::errs() << "[" << ++count << "/" << steps << "] " << name;
  hasLine = true;
}

// Returns to the beginning of the line (\r) and erases it (\033[K).
void Progress::clear() {
  if (std::exchange(hasLine, false))
    llvm::errs() << "\r\033[K";
}
