// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See Measure.h. A step's time does not depend on the values of its inputs, so
// any that the program accepts will do. The first steps warm up and do not
// count; of the others the median is printed, which a busy moment hardly moves.
#include "tools/plan/Measure.h"

#include "compiler/codegen/Executable.h"
#include "compiler/codegen/Files.h"
#include "passes/pipeline/Pipeline.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/support/concat.h"
#include "runtime/support/input_file.h"
#include "runtime/support/json_text.h"
#include "runtime/support/programs.h"
#include "tools/fsdpc/TextStreams.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::plan;

namespace {

constexpr int kSteps = 12, kWarmUp = 4;

// Returns an array of NumPy's format 1.0 (.npy): a header in text, padded to a
// multiple of 64 bytes, and the elements.
std::string npyOf(const Input &input, int64_t samples) {
  std::string shape = concat(samples, ",");
  int64_t elements = samples;
  // One without axes has a value per step.
  for (int64_t size : ArrayRef(input.shape).drop_front(!input.shape.empty())) {
    shape += concat(" ", size, ",");
    elements *= size;
  }
  StringRef type = input.dtype == "i64"   ? "<i8"
                   : input.dtype == "i32" ? "<i4"
                   : input.dtype == "f32" ? "<f4"
                                          : "|b1";
  std::string header =
      llvm::formatv("{{'descr': '{0}', 'fortran_order': False, 'shape': ({1}), "
                    "}",
                    type, shape);
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string text("\x93NUMPY\x01\x00", 8);
  text += char(header.size() & 0xff);
  text += char(header.size() >> 8);
  text += header;
  auto append = [&](auto value) {
    text.append(reinterpret_cast<const char *>(&value), sizeof value);
  };
  // Indices go through their whole range; numbers lie in [-1, 1].
  for (int64_t i = 0; i < elements; ++i) {
    int64_t index = input.bound > 0 ? i * 7919 % input.bound : i % 2;
    if (input.dtype == "i64")
      append(index);
    else if (input.dtype == "i32")
      append(int32_t(index));
    else if (input.dtype == "f32")
      append(float(i % 201 - 100) / 100);
    else
      append(uint8_t(i % 2));
  }
  return text;
}

LogicalResult fail(const Twine &what) {
  driver::textErr() << "error: --measure: " << what << "\n";
  return failure();
}

// Returns the median of the measured steps in a log.
FailureOr<double> medianStepMs(StringRef log) {
  Result<std::string> text = readText(log.str(), uint64_t(1) << 30);
  if (!text)
    return failure();
  std::vector<double> times;
  for (StringRef rest = *text; !rest.empty();) {
    StringRef line;
    std::tie(line, rest) = rest.split('\n');
    auto json = runtime::parseJsonOrNull(line, /*deepest=*/8);
    auto ms = json.find("step_ms");
    if (ms != json.end() && ms->is_number())
      times.push_back(ms->get<double>());
  }
  if (times.size() <= kWarmUp)
    return failure();
  times.erase(times.begin(), times.begin() + kWarmUp);
  llvm::sort(times);
  return times[times.size() / 2];
}

// Compiles and runs one plan. Returns the measured milliseconds of a step.
FailureOr<double> run(Planner &planner, const SearchRequest &request,
                      const Point &point, StringRef folder) {
  FailureOr<OwningOpRef<ModuleOp>> module = planner.moduleOf(point.settings);
  if (failed(module))
    return failure();
  pipeline::PipelineOptions options;
  options.unedited = true;
  if (failed(pipeline::runPipeline(**module, options)))
    return failure();
  codegen::ExecutableOptions executable;
  executable.path = (folder + "/program").str();
  FailureOr<Manifest> manifest = codegen::buildExecutable(**module, executable);
  if (failed(manifest))
    return failure();
  std::string log = (folder + "/log.jsonl").str(),
              output = (folder + "/output").str();
  Result<std::string> mpirun = findProgram("mpirun");
  if (!mpirun)
    return fail(mpirun.error().message + "; install Open MPI");
  std::vector<std::string> words = {*mpirun,
                                    "--allow-run-as-root",
                                    "--oversubscribe",
                                    "-np",
                                    std::to_string(request.options.planRanks),
                                    executable.path,
                                    "--steps",
                                    std::to_string(kSteps),
                                    "--accumulate",
                                    std::to_string(point.accumulate),
                                    "--threads",
                                    std::to_string(request.options.planThreads),
                                    "--log",
                                    log};
  // Nodes as the machine has them, so that the same links are used.
  int64_t node = request.machine.ranksPerNode;
  if (node > 0 && request.options.planRanks % node == 0) {
    words.push_back("--ranks-per-node");
    words.push_back(std::to_string(node));
  }
  int64_t microbatches = request.options.planRanks * point.accumulate;
  for (auto [number, input] : llvm::enumerate(manifest->inputs)) {
    std::string path = llvm::formatv("{0}/input-{1}.npy", folder, number);
    int64_t samples = input.shape.empty() ? 1 : input.shape[0];
    if (std::string fault =
            codegen::writeFile(path, npyOf(input, samples * microbatches));
        !fault.empty())
      return fail(fault);
    words.push_back("--data");
    words.push_back(input.name + "=" + path);
  }
  if (std::string fault = codegen::runProgram(words, folder, output);
      !fault.empty())
    return fail(fault);
  FailureOr<double> ms = medianStepMs(log);
  if (failed(ms))
    return fail("the program has logged too few steps");
  return ms;
}

} // namespace

LogicalResult plan::measure(Planner &planner, const SearchRequest &request,
                            const SearchResult &result, int64_t count) {
  SmallVector<const Point *> points;
  for (const Point &point : result.points)
    if (point.isValid())
      points.push_back(&point);
  llvm::stable_sort(points, [](const Point *a, const Point *b) {
    return a->estimate.stepUs < b->estimate.stepUs;
  });
  points.resize(std::min<size_t>(count, points.size()));
  driver::textOut() << llvm::formatv("{0,14} {1,14} {2,8}  {3}\n",
                                     "predicted ms", "measured ms", "ratio",
                                     "flags");
  llvm::outs().flush();
  for (const Point *point : points) {
    codegen::TemporaryFolder folder(UnknownLoc::get(planner.context()));
    if (!folder.valid())
      return failure();
    FailureOr<double> ms = run(planner, request, *point, folder.path());
    if (failed(ms))
      return failure();
    double predicted = point->estimate.stepUs / 1e3;
    driver::textOut() << llvm::formatv(
        "{0,14:F3} {1,14:F3} {2,8:F3}  {3}\n", predicted, *ms, predicted / *ms,
        point->settings.empty() ? "(the flags as given)"
                                : flagsOf(point->settings));
    llvm::outs().flush();
  }
  return success();
}
