// Reads samples by number, converts them to the input's dtype and checks bounds
// on the way. An index outside its table would read out of bounds in a kernel,
// which checks nothing.
#include "runtime/core/samples.h"
#include "runtime/core/dtype.h"
#include "runtime/core/shuffle.h"
#include "shared/memory_plan.h"

#include <algorithm>
#include <cmath>

namespace fsdpc::runtime {

// The data sources are in the order of the manifest's inputs (assignData).
Status Samples::open(const Manifest &program, const Options &options,
                     int64_t microbatches) {
  manifest = &program;
  seed = options.seed;
  shuffle = options.shuffle;
  files.clear();
  size_t largest = 0;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Input &input = program.inputs[i];
    const DataSource &source = options.data[i];
    Result<SampleFile> file =
        source.tokens
            ? openTokenWindows(input, source.file, source.width, source.shift)
            : openNpySamples(input, source.file);
    FSDPC_TRY(file);
    if (input.shape[0] != program.inputs[0].shape[0])
      return Error{"inputs '" + program.inputs[0].name + "' and '" +
                   input.name + "' differ in their first axis: " +
                   std::to_string(program.inputs[0].shape[0]) + " and " +
                   std::to_string(input.shape[0]) + " samples per microbatch"};
    samples = i == 0 ? file->samples : std::min(samples, file->samples);
    largest = std::max(largest, size_t(file->sampleElements));
    files.push_back(std::move(*file));
  }
  FSDPC_TRY(checkCounts());
  // No element is larger than 8 bytes, in the file or converted.
  raw.resize(largest * 8);
  converted.resize(largest * 8);
  perMicrobatch = program.inputs.empty() ? 1 : program.inputs[0].shape[0];

  // Less than a step of samples would repeat some within one step.
  for (const SampleFile &file : files)
    // Names the file that has the fewest samples.
    if (file.samples == samples && samples / perMicrobatch < microbatches)
      return Error{"'" + file.file.path() + "' contains " +
                   std::to_string(samples) + " samples, but one step takes " +
                   std::to_string(microbatches) + " microbatches of " +
                   std::to_string(perMicrobatch)};
  return {};
}

// Sample i of one input belongs to sample i of the others, so files of other
// lengths do not belong together. Streams are compared without their shifts:
// the labels of text are the same file, one token on.
Status Samples::checkCounts() const {
  for (size_t i = 1; i < files.size(); ++i)
    if (files[i].unshifted != files[0].unshifted)
      return Error{
          "inputs '" + manifest->inputs[0].name + "' and '" +
          manifest->inputs[i].name + "' have different numbers of samples: '" +
          files[0].file.path() + "' has " + std::to_string(files[0].unshifted) +
          ", '" + files[i].file.path() + "' has " +
          std::to_string(files[i].unshifted)};
  return {};
}

// Covers the samples only, so two ranks may name copies of a file.
Result<uint64_t> Samples::hashOf(size_t input) const {
  const SampleFile &file = files[input];
  uint64_t bytes = uint64_t(file.samples * file.sampleElements) *
                   uint64_t(dtypeBytes(file.dtype));
  return runtime::hashOf(file.file, file.offset, bytes);
}

// The epoch enters the permutation, so each epoch has another order.
int64_t Samples::sampleOf(int64_t number) const {
  int64_t index = number % samples;
  if (!shuffle)
    return index;
  return int64_t(shuffled(uint64_t(index), uint64_t(samples),
                          uint64_t(number / samples), seed));
}

// Called in every step; allocates nothing after the first one.
Status Samples::read(int64_t number, void *const *buffers) {
  for (size_t i = 0; i < files.size(); ++i) {
    const Input &input = manifest->inputs[i];
    // Only values with bounds can be wrong, so a check skips all other inputs.
    if (!buffers && input.bound <= 0)
      continue;
    int64_t bytes = files[i].sampleElements * dtypeBytes(input.dtype);
    for (int64_t row = 0; row < perMicrobatch; ++row) {
      void *to = buffers ? static_cast<char *>(buffers[i]) + row * bytes
                         : converted.data();
      int64_t sample = sampleOf(number + row);
      FSDPC_TRY(readSample(i, sample, raw, to));
      FSDPC_TRY(checkBounds(input, files[i], sample, to));
    }
  }
  return {};
}

// `raw` is the caller's, so that describeNonFinite can run beside `read`.
Status Samples::readSample(size_t i, int64_t sample, std::vector<char> &raw,
                           void *to) const {
  const SampleFile &file = files[i];
  uint64_t bytes =
      uint64_t(file.sampleElements) * uint64_t(dtypeBytes(file.dtype));
  FSDPC_TRY(file.file.read(file.offset + uint64_t(sample) * bytes, raw.data(),
                           bytes));
  convert(raw.data(), file.dtype, to, manifest->inputs[i].dtype,
          file.sampleElements);
  return {};
}

// Compares in i64, whatever the input's type is.
Status Samples::checkBounds(const Input &input, const SampleFile &file,
                            int64_t sample, const void *values) {
  if (input.bound <= 0)
    return {};
  widened.resize(size_t(file.sampleElements));
  convert(values, input.dtype, widened.data(), "i64", file.sampleElements);
  for (int64_t i = 0; i < file.sampleElements; ++i) {
    int64_t value = widened[size_t(i)];
    if ((value >= input.lower && value < input.bound) ||
        (input.hasIgnored && value == input.ignored))
      continue;
    return Error{
        "'" + file.file.path() + "' sample " + std::to_string(sample) +
        " element " + std::to_string(i) + ": " + std::to_string(value) +
        " is outside [" + std::to_string(input.lower) + ", " +
        std::to_string(input.bound) + ") of input '" + input.name + "'"};
  }
  return {};
}

// A NaN is always an error in the data, an infinity may be meant. So a NaN is
// returned at once, and an infinity only if no NaN follows.
std::string Samples::describeNonFinite(int64_t number, int64_t count) const {
  std::string infinity;
  std::vector<char> bytes(raw.size());
  std::vector<float> values;
  for (size_t i = 0; i < files.size(); ++i) {
    const Input &input = manifest->inputs[i];
    // Integers and booleans are always finite.
    if (input.dtype != "f32")
      continue;
    values.resize(size_t(files[i].sampleElements));
    for (int64_t at = number; at < number + count; ++at) {
      int64_t sample = sampleOf(at);
      if (!readSample(i, sample, bytes, values.data()))
        break; // reported where it is read for training
      for (size_t e = 0; e < values.size(); ++e) {
        if (std::isfinite(values[e]) ||
            (!infinity.empty() && !std::isnan(values[e])))
          continue;
        std::string found = "input '" + input.name + "' has " +
                            (std::isnan(values[e]) ? "nan"
                             : values[e] > 0       ? "inf"
                                                   : "-inf") +
                            " in its data: '" + files[i].file.path() +
                            "' sample " + std::to_string(sample) + " element " +
                            std::to_string(e);
        if (std::isnan(values[e]))
          return found + "; correct it";
        infinity = found + "; correct it, or if it is meant, as in a mask, "
                           "use a lower --lr";
      }
    }
  }
  return infinity;
}

} // namespace fsdpc::runtime
