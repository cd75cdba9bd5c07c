// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads samples by number, converts them to the input's dtype and checks bounds
// on the way. An index outside its table would read out of bounds in a kernel,
// which checks nothing.
#include "runtime/data/samples.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/data/data_files.h"
#include "runtime/numeric/dtype.h"
#include "runtime/numeric/shuffle.h"
#include "runtime/support/concat.h"
#include "runtime/support/diagnostics.h"

#include <algorithm>
#include <cmath>

namespace fsdpc::runtime {

// The data sources are in the order of the manifest's inputs (assignData). All
// checks of files come before the first step, so a run does not fail hours
// later on its data.
Status Samples::open(const Manifest &program, const Options &options,
                     int64_t microbatches) {
  manifest = &program;
  seed = options.seed;
  shuffle = options.shuffle;
  skipsCorrupt = options.skipCorrupt;
  perMicrobatch = samplesPerMicrobatch(program);
  sampled = size_t(
      std::count_if(program.inputs.begin(), program.inputs.end(),
                    [](const Input &input) { return !input.shape.empty(); }));
  FSDPC_TRY(openFiles(options));
  FSDPC_TRY(openStepFiles(options));
  if (options.splitAt >= 0)
    FSDPC_TRY(splitDocuments(options));
  FSDPC_TRY(addShards());
  FSDPC_TRY(addParts(options));

  // Less than a step of samples would repeat some within one step.
  if (!shards.empty() && samples / perMicrobatch < microbatches) {
    // Names the file that has the fewest samples, if there is one per input.
    const std::vector<SampleFile> &files = shards[0].files;
    auto fewest = std::min_element(
        files.begin(), files.end(),
        [](const auto &a, const auto &b) { return a.samples < b.samples; });
    std::string where = shards.size() == 1
                            ? "'" + fewest->file.path() + "' contains "
                            : concat("the ", shards.size(), " files of input '",
                                     program.inputs[0].name, "' contain ");
    return inputError(concat(where, samples, " samples, but one step takes ",
                             microbatches, " microbatches of ", perMicrobatch));
  }
  return program.buckets.empty() ? Status() : addBuckets(microbatches);
}

// The files of the first input decide how many shards and parts there are.
Status Samples::listFiles(const Options &options, Paths &all) {
  shards.clear();
  for (size_t i = 0; i < sampled; ++i) {
    const Input &input = manifest->inputs[i];
    const DataSource &source = options.data[i];
    auto listed = dataFiles(source.file);
    FSDPC_TRY(listed);
    std::vector<std::string> &paths = all.emplace_back();
    std::vector<Part> own;
    for (const std::vector<std::string> &entry : *listed) {
      own.push_back({paths.size(), 0, 0});
      paths.insert(paths.end(), entry.begin(), entry.end());
    }
    if (i == 0) {
      shards.resize(paths.size());
      parts = own;
    }
    const std::string pair =
        "inputs '" + manifest->inputs[0].name + "' and '" + input.name + "' ";
    if (paths.size() != shards.size())
      return inputError(
          concat(pair, "have ", shards.size(), " and ", paths.size(),
                 " files; file k of one belongs to file k of the other"));
    auto begins = [](const Part &a, const Part &b) {
      return a.firstShard == b.firstShard;
    };
    if (!options.mix.empty() &&
        !std::equal(parts.begin(), parts.end(), own.begin(), own.end(), begins))
      return commandLineError(
          "--mix: " + pair + "list their files in other parts: '" +
          options.data[0].file + "' and '" + source.file + "'");
    if (source.tokens && input.shape[0] != perMicrobatch)
      return commandLineError(
          "input '" + input.name +
          "' cannot be a token stream, since the model's inputs "
          "differ in their first axis and a microbatch is one "
          "sample; give it with --data or --eval");
  }
  return {};
}

// Returns an input with the shape that it has in a bucket.
Input Samples::inputIn(size_t input, size_t bucket) const {
  Input shaped = manifest->inputs[input];
  shaped.shape = shapeIn(shaped, bucket);
  return shaped;
}

Result<SampleFile> Samples::openFile(const DataSource &source, size_t input,
                                     const std::string &path,
                                     size_t bucket) const {
  Input shaped = inputIn(input, bucket);
  if (source.tokens)
    return openTokenWindows(shaped, path, source.width, source.shift);
  return openArraySamples(shaped, path, shaped.shape[0] / perMicrobatch);
}

// The samples of a bucket have numbers one after the other.
Status Samples::openFiles(const Options &options) {
  Paths paths;
  FSDPC_TRY(listFiles(options, paths));
  if (!manifest->buckets.empty())
    FSDPC_TRY(chooseBuckets(options, paths));
  size_t largest = 1; // of a value per step
  for (size_t i = 0; i < sampled; ++i)
    for (size_t k = 0; k < shards.size(); ++k) {
      auto file = openFile(options.data[i], i, paths[i][k], shards[k].bucket);
      FSDPC_TRY(file);
      largest = std::max(largest, size_t(file->sampleElements));
      shards[k].files.push_back(std::move(*file));
    }
  std::stable_sort(
      shards.begin(), shards.end(),
      [](const Shard &a, const Shard &b) { return a.bucket < b.bucket; });
  // No element is larger than 8 bytes, in the file or converted.
  raw.resize(largest * 8);
  converted.resize(largest * 8);
  return {};
}

Status Samples::openStepFiles(const Options &options) {
  stepFiles.clear();
  for (size_t i = sampled; i < manifest->inputs.size(); ++i) {
    const Input &input = manifest->inputs[i];
    const DataSource &source = options.data[i];
    if (source.tokens)
      return commandLineError("input '" + input.name +
                              "' has one value per step and cannot be a token "
                              "stream; give it with --data or --eval");
    auto file = openStepValues(input, source.file);
    FSDPC_TRY(file);
    stepFiles.push_back(std::move(*file));
  }
  return {};
}

// The tokens of one file, without its input's shift.
static TokenStream streamOf(const SampleFile &file) {
  auto skipped = uint64_t(file.shift) * uint64_t(dtypeBytes(file.dtype));
  return {&file.file, file.dtype, file.offset - skipped, file.tokens};
}

// The documents are those of the first input: the others are the same text, or
// lie beside it token by token, and may have other values at its ends.
Status Samples::splitDocuments(const Options &options) {
  bool found = shards.empty();
  for (Shard &shard : shards) {
    const SampleFile &first = shard.files[0];
    int64_t reach = 0;
    for (size_t i = 0; i < shard.files.size(); ++i) {
      const SampleFile &file = shard.files[i];
      const std::string name = "input '" + manifest->inputs[i].name + "'";
      if (!options.data[i].tokens)
        return commandLineError(
            "--split-at needs token streams, but " + name +
            " has samples; give its tokens with --tokens or "
            "--eval-tokens");
      if (file.tokens != first.tokens ||
          file.sampleElements != first.sampleElements)
        return inputError(
            concat("--split-at: '", file.file.path(), "' of ", name, " has ",
                   file.tokens, " tokens in windows of ", file.sampleElements,
                   ", '", first.file.path(), "' has ", first.tokens,
                   " in windows of ", first.sampleElements));
      reach = std::max(reach, file.shift + file.sampleElements);
    }
    auto built = DocumentWindows::build(streamOf(first), options.splitAt,
                                        first.sampleElements, reach);
    FSDPC_TRY(built);
    found |= built->hasEnd();
    auto windows = std::make_shared<DocumentWindows>(std::move(*built));
    for (SampleFile &file : shard.files) {
      file.documents = windows;
      file.samples = file.unshifted = windows->count();
    }
  }
  if (!found)
    return inputError(concat("--split-at: token ", options.splitAt,
                             " does not occur in '", options.data[0].file,
                             "'; it must be the one that ends each document"));
  return {};
}

// Sample i of one input belongs to sample i of the others, so files of other
// lengths do not belong together. Streams are compared without their shifts:
// the labels of text are the same file, one token on.
Status Samples::addShards() {
  samples = 0;
  for (Shard &shard : shards) {
    const SampleFile &first = shard.files[0];
    shard.begin = samples;
    shard.samples = first.samples;
    for (size_t i = 1; i < shard.files.size(); ++i) {
      const SampleFile &other = shard.files[i];
      if (other.unshifted != first.unshifted)
        return inputError(concat(
            "inputs '", manifest->inputs[0].name, "' and '",
            manifest->inputs[i].name, "' have different numbers of samples: '",
            first.file.path(), "' has ", first.unshifted, ", '",
            other.file.path(), "' has ", other.unshifted));
      shard.samples = std::min(shard.samples, other.samples);
    }
    if (__builtin_add_overflow(samples, shard.samples, &samples))
      return inputError("'" + first.file.path() +
                        "' and the files before it hold too many samples");
  }
  return {};
}

// Without --mix all files are one part.
Status Samples::addParts(const Options &options) {
  mixture = Mixture(options.mix);
  if (options.mix.empty() || manifest->inputs.empty()) {
    parts = {{0, 0, samples}};
    return {};
  }
  if (options.mix.size() != parts.size())
    return commandLineError(
        concat("--mix has ", options.mix.size(), " weights, but '",
               options.data[0].file, "' lists ", parts.size(),
               " parts; give a weight for each file or pattern between its "
               "commas"));
  for (size_t i = 0; i < parts.size(); ++i) {
    int64_t end =
        i + 1 < parts.size() ? shards[parts[i + 1].firstShard].begin : samples;
    parts[i].begin = shards[parts[i].firstShard].begin;
    parts[i].samples = end - parts[i].begin;
    if (parts[i].samples == 0)
      return inputError(concat("--mix: part ", i + 1, " of '",
                               options.data[0].file,
                               "' contains no whole sample"));
  }
  return {};
}

// Covers the samples only, so two ranks may name copies of a file. It reads as
// much of many files as of one.
Result<uint64_t> Samples::hashOf(size_t input) const {
  constexpr uint64_t mostPieces = 256;
  uint64_t combined = 0;
  if (input >= sampled) {
    const SampleFile &file = stepFiles[input - sampled];
    return runtime::hashOf(
        file.file, file.offset,
        uint64_t(file.samples) * uint64_t(dtypeBytes(file.dtype)), mostPieces);
  }
  for (const Shard &shard : shards) {
    const SampleFile &file = shard.files[input];
    int64_t elements = file.documents ? file.tokens - file.shift
                                      : file.samples * file.sampleElements;
    uint64_t bytes = uint64_t(elements) * uint64_t(dtypeBytes(file.dtype));
    Result<uint64_t> hash =
        runtime::hashOf(file.file, file.offset, bytes,
                        std::max<uint64_t>(2, mostPieces / shards.size()));
    FSDPC_TRY(hash);
    // Depends on the order of the files; the factor is 2^64 over the golden
    // ratio.
    combined = combined * 0x9e3779b97f4a7c15 + *hash;
  }
  return combined;
}

std::vector<std::string> Samples::paths(size_t input) const {
  if (input >= sampled)
    return {stepFiles[input - sampled].file.path()};
  std::vector<std::string> paths;
  for (const Shard &shard : shards)
    paths.push_back(shard.files[input].file.path());
  return paths;
}

// A shard may be empty; the last one that begins at or before the sample holds
// it.
Samples::Place Samples::find(size_t input, int64_t sample) const {
  auto next = std::upper_bound(
      shards.begin(), shards.end(), sample,
      [](int64_t value, const Shard &shard) { return value < shard.begin; });
  const Shard &shard = next[-1];
  const SampleFile &file = shard.files[input];
  sample -= shard.begin;
  return {file, sample, sample * file.sampleElements};
}

// Corrects the element of a window that does not lie where its number says: one
// of --split-at.
Status Samples::locate(size_t input, Place &place) {
  if (!place.file.documents)
    return {};
  const Shard &shard =
      *std::find_if(shards.begin(), shards.end(), [&](const Shard &s) {
        return &s.files[input] == &place.file;
      });
  auto begin = place.file.documents->begin(streamOf(shard.files[0]),
                                           place.sample, scratch);
  FSDPC_TRY(begin);
  place.element = *begin;
  return {};
}

// Number n is in epoch n / count. The epoch enters the permutation, so each
// epoch has another order.
int64_t Samples::placeIn(size_t part, int64_t number) const {
  int64_t begin = parts[part].begin, count = parts[part].samples;
  int64_t index = number % count;
  if (!shuffle)
    return begin + index;
  return begin + int64_t(shuffled(uint64_t(index), uint64_t(count),
                                  uint64_t(number / count), seed));
}

// The mixture says which part is next, and how much of it has been drawn.
// Without one there is one part.
Mixture::Drawn Samples::drawnAt(int64_t number) const {
  if (!mixture.isOn())
    return {0, number};
  auto [part, index] = mixture.at(number / perDraw);
  return {part, index * perDraw + number % perDraw};
}

int64_t Samples::sampleOf(int64_t number) const {
  if (perDraw == 0) // buckets, of which each is read by itself
    return number % samples;
  auto [part, index] = drawnAt(number);
  return placeIn(part, index);
}

// Past the last value it begins again, as samples do.
Samples::Place Samples::valueOf(size_t input, int64_t step) const {
  const SampleFile &file = stepFiles[input - sampled];
  int64_t value = step % file.samples;
  return {file, value, value};
}

Status Samples::readStepValues(int64_t step, void *const *buffers) {
  for (size_t i = sampled; i < manifest->inputs.size(); ++i) {
    const Input &input = manifest->inputs[i];
    bool isWanted = buffers && buffers[i];
    if (!isWanted && input.bound <= 0)
      continue;
    void *to = isWanted ? buffers[i] : converted.data();
    Place place = valueOf(i, step);
    FSDPC_TRY(readSample(i, place, raw, to));
    FSDPC_TRY(checkBounds(input, place, to));
  }
  return {};
}

// Called in every step; allocates nothing after the first one.
Status Samples::read(int64_t number, void *const *buffers, int64_t step) {
  if (manifest->inputs.empty())
    return {};
  FSDPC_TRY(readStepValues(step, buffers));
  for (int64_t row = 0; row < perMicrobatch; ++row)
    FSDPC_TRY(readOrReplace(sampleOf(number + row), row, buffers, true));
  return {};
}

Status Samples::check(int64_t number, void *const *buffers, int64_t step) {
  if (manifest->inputs.empty())
    return {};
  FSDPC_TRY(readStepValues(step, buffers));
  for (int64_t row = 0; row < perMicrobatch; ++row)
    FSDPC_TRY(readOrReplace(sampleOf(number + row), row, buffers, false));
  return {};
}

Status Samples::readFrom(size_t part, int64_t number, void *const *buffers) {
  if (manifest->inputs.empty())
    return {};
  FSDPC_TRY(readStepValues(0, buffers));
  for (int64_t row = 0; row < perMicrobatch; ++row)
    FSDPC_TRY(readOrReplace(placeIn(part, number + row), row, buffers,
                            buffers != nullptr));
  return {};
}

// The replacement depends on the sample's number alone, and not on what other
// rows were replaced by.
Status Samples::readOrReplace(int64_t sample, int64_t row, void *const *buffers,
                              bool counts) {
  // A disk that is gone altogether shall not be looked through.
  constexpr int64_t mostReplacements = 1000;
  Status first = readRow(sample, row, buffers), read = first;
  if (first || !skipsCorrupt)
    return first;
  if (counts && replacedSamples++ == 0)
    printWarning(first.error().message +
                 "; taking the next sample, and counting further ones in the "
                 "log");
  Part among = replacementsOf(sample);
  int64_t last = std::min(mostReplacements, among.samples - 1);
  for (int64_t next = 1; !read && next <= last; ++next)
    read = readRow(among.begin + (sample - among.begin + next) % among.samples,
                   row, buffers);
  if (!read)
    return first.error().reworded(concat(first.error().message,
                                         "; nor can the ", last,
                                         " samples after it be read"));
  return {};
}

// Reads one sample of every input to its row of the buffers.
Status Samples::readRow(int64_t sample, int64_t row, void *const *buffers) {
  for (size_t i = 0; i < sampled; ++i) {
    const Input &input = manifest->inputs[i];
    // Only values with bounds can be wrong, so a check skips all other inputs.
    bool isWanted = buffers && buffers[i];
    if (!isWanted && input.bound <= 0)
      continue;
    Place place = find(i, sample);
    int64_t bytes = place.file.sampleElements * dtypeBytes(input.dtype);
    void *to = isWanted ? static_cast<char *>(buffers[i]) + row * bytes
                        : converted.data();
    FSDPC_TRY(locate(i, place));
    FSDPC_TRY(readSample(i, place, raw, to));
    FSDPC_TRY(checkBounds(input, place, to));
  }
  return {};
}

// `raw` is the caller's, so that describeNonFinite can run beside `read`.
Status Samples::readSample(size_t i, const Place &place, std::vector<char> &raw,
                           void *to) const {
  const SampleFile &file = place.file;
  auto size = uint64_t(dtypeBytes(file.dtype));
  FSDPC_TRY(file.file.read(file.offset + uint64_t(place.element) * size,
                           raw.data(), uint64_t(file.sampleElements) * size));
  convert(raw.data(), file.dtype, to, manifest->inputs[i].dtype,
          file.sampleElements);
  return {};
}

// Compares in i64, whatever the input's type is.
Status Samples::checkBounds(const Input &input, const Place &place,
                            const void *values) {
  if (input.bound <= 0)
    return {};
  const SampleFile &file = place.file;
  widened.resize(size_t(file.sampleElements));
  convert(values, input.dtype, widened.data(), "i64", file.sampleElements);
  for (int64_t i = 0; i < file.sampleElements; ++i) {
    int64_t value = widened[size_t(i)];
    if ((value >= input.lower && value < input.bound) ||
        (input.hasIgnored && value == input.ignored))
      continue;
    return inputError(concat("'", file.file.path(), "' sample ", place.sample,
                             " element ", i, ": ", value, " is outside [",
                             input.lower, ", ", input.bound, ") of input '",
                             input.name, "'"));
  }
  return {};
}

// A NaN is always an error in the data, an infinity may be meant. So a NaN is
// returned at once, and an infinity only if no NaN follows.
std::string Samples::describeNonFinite(int64_t number, int64_t count,
                                       int64_t step) const {
  std::string infinity;
  std::vector<char> bytes(raw.size());
  std::vector<float> values;
  for (size_t i = 0; i < manifest->inputs.size(); ++i) {
    const Input &input = manifest->inputs[i];
    // Integers and booleans are always finite.
    if (input.dtype != "f32")
      continue;
    for (int64_t at = number; at < number + (i < sampled ? count : 1); ++at) {
      Place place = i < sampled ? find(i, sampleOf(at)) : valueOf(i, step);
      values.resize(size_t(place.file.sampleElements));
      if (!readSample(i, place, bytes, values.data()))
        break; // reported where it is read for training
      for (size_t e = 0; e < values.size(); ++e) {
        if (std::isfinite(values[e]) ||
            (!infinity.empty() && !std::isnan(values[e])))
          continue;
        std::string found = concat("input '", input.name, "' has ",
                                   std::isnan(values[e]) ? "nan"
                                   : values[e] > 0       ? "inf"
                                                         : "-inf",
                                   " in its data: '", place.file.file.path(),
                                   "' sample ", place.sample, " element ", e);
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
