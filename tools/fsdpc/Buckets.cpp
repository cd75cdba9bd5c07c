// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The lists of --dim. They are the driver's: the table of options, and so every
// dump, knows of one value per dimension. The driver imports the model once per
// bucket and links the modules (passes/pipeline/LinkBuckets.h).
#include "tools/fsdpc/Buckets.h"

#include "compiler/options/OptionTable.h"
#include "runtime/support/concat.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>

using namespace fsdpc;
using namespace fsdpc::driver;
using fsdpc::fsdp::CompileOptions;

size_t driver::bucketCount(const CommandLine &line) {
  size_t count = 1;
  for (const auto &[name, values] : line.dims)
    count = std::max(count, values.size());
  return count;
}

// The values have been checked by takeDimension.
CompileOptions driver::optionsOf(const CommandLine &line, size_t bucket) {
  CompileOptions options = line.options;
  for (const auto &[name, values] : line.dims)
    (void)fsdp::setOption(*fsdp::findOption("dim"), name + "=" + values[bucket],
                          options);
  return options;
}

std::string driver::nameOfBucket(const CommandLine &line, size_t bucket) {
  std::string text;
  for (const auto &[name, values] : line.dims)
    text += (text.empty() ? "" : ",") + name + "=" + values[bucket];
  return text;
}

// The handlers before this one print the diagnostic.
driver::BucketErrors::BucketErrors(mlir::MLIRContext *context,
                                   const CommandLine &line, size_t bucket)
    : ScopedDiagnosticHandler(context) {
  if (bucketCount(line) == 1)
    return;
  setHandler([name = nameOfBucket(line, bucket)](mlir::Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
      diagnostic << " (bucket '" << name << "')";
    return mlir::failure();
  });
}

std::string driver::dumpFolderOf(const CommandLine &line, size_t bucket) {
  if (line.dumpFolder.empty() || bucketCount(line) == 1)
    return line.dumpFolder;
  return line.dumpFolder + "/" + nameOfBucket(line, bucket);
}

// A later value of a name replaces the earlier one. The options keep the first
// value of a list.
std::string driver::takeDimension(llvm::StringRef text, CommandLine &line) {
  auto [name, list] = text.rsplit('=');
  llvm::SmallVector<llvm::StringRef> values;
  list.split(values, ',');
  for (llvm::StringRef value : llvm::reverse(values))
    if (std::string fault = fsdp::setOption(
            *fsdp::findOption("dim"),
            values.size() == 1 ? text : (name + "=" + value).str(),
            line.options);
        !fault.empty())
      return fault;
  line.dims.erase(name.str());
  if (values.size() > 1)
    line.dims[name.str()] =
        std::vector<std::string>(values.begin(), values.end());
  return "";
}

// Names the flag or the command that is of one shape, or returns "".
static std::string findSingle(const CommandLine &line) {
  if (line.command == Command::Simulate)
    return "fsdpc simulate";
  if (line.command == Command::Tune)
    return "fsdpc tune";
  if (line.command == Command::Compile &&
      line.last != pipeline::Phase::Executable)
    return "--compile-to";
  if (llvm::StringRef(line.model).ends_with(".mlir"))
    return line.model;
  for (auto [flag, value] : {std::pair("--schedule-table", &line.scheduleTable),
                             {"--profile", &line.profile},
                             {"--report", &line.report},
                             {"--schedule", &line.options.schedule.text}})
    if (!value->empty())
      return flag;
  return "";
}

std::string driver::checkBuckets(const CommandLine &line) {
  size_t buckets = bucketCount(line);
  for (const auto &[name, values] : line.dims)
    if (values.size() != buckets)
      return concat("'--dim=", name, "=", llvm::join(values, ","), "' has ",
                    values.size(), " values, but another '--dim' has ", buckets,
                    "; value k of each makes bucket k");
  for (size_t bucket = 1; bucket < buckets; ++bucket)
    for (size_t other = 0; other < bucket; ++other)
      if (nameOfBucket(line, bucket) == nameOfBucket(line, other))
        return "'--dim' names the bucket '" + nameOfBucket(line, bucket) +
               "' twice";
  std::string single = buckets > 1 ? findSingle(line) : "";
  if (single.empty())
    return "";
  return "'" + single +
         "' is of one shape, and '--dim' names several buckets; give it one "
         "value";
}
