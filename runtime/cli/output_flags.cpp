// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds outputs by name, for --metric and --predict. Names of ONNX tensors may
// contain '=' and ':', so a text is compared with the names that there are
// instead of being cut first.
#include "runtime/cli/output_flags.h"
#include "runtime/support/concat.h"
#include "runtime/support/spelling.h"

#include <algorithm>

namespace fsdpc::runtime {
namespace {

// Returns the index of the output that `text` names, alone or before '=', and
// sets `value` to what follows that sign. The longest name counts.
Result<size_t> findOutput(const std::string &flag, const std::string &text,
                          const Manifest &manifest, std::string &value) {
  size_t found = manifest.outputs.size(), longest = 0;
  std::vector<std::string> names;
  for (size_t i = 0; i < manifest.outputs.size(); ++i) {
    const std::string &name = manifest.outputs[i].name;
    names.push_back(name);
    bool begins = text == name || text.rfind(name + "=", 0) == 0;
    if (begins && name.size() > longest) {
      found = i;
      longest = name.size();
    }
  }
  if (names.empty())
    return commandLineError(
        flag + ": the program reports its loss only; compile it with "
               "'--keep-output=NAME'");
  std::string given = text.substr(0, text.rfind('='));
  if (found == names.size())
    return commandLineError(flag + ": the program has no output '" +
                            printable(given) + "'; it has " + listed(names) +
                            " (see --keep-output of fsdpc)");
  value = longest < text.size() ? text.substr(longest + 1) : "";
  return found;
}

// Takes ":mean" or ":sum" off the end of a text.
bool takeSum(std::string &text) {
  for (const char *suffix : {":sum", ":mean"}) {
    size_t size = std::string(suffix).size();
    if (text.size() > size && text.substr(text.size() - size) == suffix) {
      text.resize(text.size() - size);
      return size == 4;
    }
  }
  return false;
}

} // namespace

// Two metrics of one output may differ in name and in how they are combined.
Result<std::vector<Metric>> parseMetrics(const std::vector<std::string> &texts,
                                         const Manifest &manifest) {
  std::vector<Metric> metrics;
  for (std::string text : texts) {
    Metric metric;
    metric.sum = takeSum(text);
    auto output = findOutput("--metric", text, manifest, metric.name);
    FSDPC_TRY(output);
    metric.output = *output;
    const Output &wanted = manifest.outputs[*output];
    if (!wanted.isScalar())
      return commandLineError(
          "--metric: output '" + wanted.name + "' has shape " +
          shapeText(wanted.shape) +
          ", but a metric is a scalar; write it with --predict");
    if (metric.name.empty())
      metric.name = wanted.name;
    for (const Metric &other : metrics)
      if (other.name == metric.name)
        return commandLineError("--metric: two metrics are called '" +
                                printable(metric.name) +
                                "'; name them with OUTPUT=NAME");
    metrics.push_back(std::move(metric));
  }
  return metrics;
}

// The first axis must be a multiple of the microbatch's samples, so that each
// sample owns whole rows.
Result<std::vector<Prediction>>
parsePredictions(const std::vector<std::string> &texts,
                 const Manifest &manifest) {
  std::vector<Prediction> predictions;
  for (const std::string &text : texts) {
    Prediction prediction;
    auto output = findOutput("--predict", text, manifest, prediction.file);
    FSDPC_TRY(output);
    prediction.output = *output;
    const Output &wanted = manifest.outputs[*output];
    if (wanted.isScalar())
      return commandLineError("--predict: output '" + wanted.name +
                              "' is a scalar; log it with --metric");
    int64_t samples = samplesPerMicrobatch(manifest);
    if (wanted.shape[0] % samples != 0)
      return commandLineError(
          concat("--predict: output '", wanted.name, "' has shape ",
                 shapeText(wanted.shape),
                 ", whose first axis is not a multiple of the ", samples,
                 " samples of a microbatch"));
    if (prediction.file.empty())
      return commandLineError("--predict: '" + printable(text) +
                              "' names no file; write OUTPUT=FILE.npy");
    predictions.push_back(std::move(prediction));
  }
  return predictions;
}

} // namespace fsdpc::runtime
