// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The page is a template (report.html, which the build embeds with its style
// and its script) with the plan as JSON in it. The script draws all of it from
// that; no text of the model ever becomes markup.
#include "tools/plan/Report.h"

#include "compiler/codegen/Files.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::plan;

static constexpr llvm::StringLiteral kPage =
#include "tools/plan/report_page.inc"
    ;
static constexpr llvm::StringLiteral kPlace = "@PLAN@";

// JSON inside of a script element: '<' could end the element, so it is written
// as an escape, which only texts contain.
static std::string escaped(StringRef text) {
  std::string result;
  result.reserve(text.size());
  for (char c : text)
    if (c == '<')
      result += "\\u003c";
    else
      result += c;
  return result;
}

LogicalResult plan::writeReport(Plan &plan, const Estimate &estimate,
                                StringRef model, StringRef path,
                                StringRef trace) {
  llvm::json::Object object = toJson(plan, estimate);
  object["model"] =
      llvm::json::fixUTF8(llvm::sys::path::filename(model.rtrim("/")));
  if (!trace.empty()) {
    FailureOr<llvm::json::Object> measured = readTrace(plan, trace);
    if (failed(measured))
      return failure();
    object["trace"] = std::move(*measured);
  }
  auto [before, after] = kPage.split(kPlace);
  std::string text =
      (before +
       escaped(
           llvm::formatv("{0}", llvm::json::Value(std::move(object))).str()) +
       after)
          .str();
  std::string fault = codegen::writeFile(path, text);
  if (!fault.empty())
    return emitError(plan.module.getLoc(), fault);
  return success();
}
