// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses the samples of each microbatch and reads them: --data, --tokens,
// --shuffle. The order depends on the seed and the number of the sample alone,
// so ranks need not agree on anything.
//
// Where the program has several buckets, the shape of a file's samples says in
// which of them they belong, and all microbatches of a step are of one bucket.
// Buckets take turns in proportion to their samples. A step is the least that
// can be of one bucket at every number of ranks: ranks run the same function at
// the same time, and which microbatches they run together depends on their
// number.
#pragma once

#include "runtime/cli/command_line.h"
#include "runtime/data/mixture.h"
#include "runtime/data/sample_file.h"

namespace fsdpc::runtime {

/// The open files of all inputs. Not safe for concurrent use; each rank has its
/// own. Inputs may lie in several files each; the samples of file k of one
/// input belong to those of file k of the others.
class Samples {
public:
  /// Samples that are drawn one after the other: those of an entry of the lists
  /// (--mix), or of a bucket.
  struct Part {
    size_t firstShard = 0;
    int64_t begin = 0; ///< the number of its first sample
    int64_t samples = 0;
    size_t bucket = 0;
  };

  /// Opens the files of every input and checks dtype, rank and shape, that
  /// files which belong together hold equally many samples, and that all hold
  /// those of one step of `microbatches` microbatches, in every bucket that has
  /// files. With 0 microbatches, samples have no order but their own.
  Status open(const Manifest &manifest, const Options &options,
              int64_t microbatches);

  /// Returns a hash of the samples of one input and of their number.
  Result<uint64_t> hashOf(size_t input) const;

  /// Number of samples. Token streams with a shift have fewer than without, and
  /// the fewest count.
  int64_t count() const { return samples; }
  /// Samples per microbatch.
  int64_t batch() const { return perMicrobatch; }

  /// Returns the sample with number n of the run. Numbers continue over epochs:
  /// number n is sample n mod count of epoch n / count, in that epoch's order.
  /// With --mix, each part has epochs of its own.
  int64_t sampleOf(int64_t number) const;

  /// Reads the microbatch that begins at `number` into one buffer per input,
  /// those without an axis the value of the step, and checks that values with
  /// bounds lie within them. With --skip-corrupt a sample that fails is
  /// replaced by the first one after it that does not, which is the same one at
  /// every number of ranks.
  Status read(int64_t number, void *const *buffers, int64_t step = 0);
  /// Checks the same, and reads only inputs that have bounds or whose buffer is
  /// not null; `buffers` may be null. Replaced samples do not count.
  Status check(int64_t number, void *const *buffers, int64_t step = 0);
  /// Reads samples of one part, from sample `number` of the part on, or checks
  /// them if `buffers` is null. Past its end it begins again. Inputs without an
  /// axis have the value of the first step.
  Status readFrom(size_t part, int64_t number, void *const *buffers);
  const std::vector<Part> &allParts() const { return parts; }
  /// Returns the bucket of the microbatch that begins at `number`.
  size_t bucketOf(int64_t number) const {
    return manifest->buckets.empty() ? 0 : parts[drawnAt(number).part].bucket;
  }
  /// Returns how many samples were replaced in what was read into buffers.
  int64_t replaced() const { return replacedSamples; }

  /// Looks for numbers that are not finite in the `count` samples from `number`
  /// on, and in the values of a step. Returns a description of the first NaN,
  /// or else of the first infinity, and what to do, or an empty string. For
  /// error messages: slow, and safe to call on any thread.
  std::string describeNonFinite(int64_t number, int64_t count,
                                int64_t step = 0) const;

  /// Returns the paths of the files of one input.
  std::vector<std::string> paths(size_t input) const;

private:
  /// Files that belong together, one per input with samples.
  struct Shard {
    std::vector<SampleFile> files;
    int64_t begin = 0; ///< the number of its first sample
    int64_t samples = 0;
    size_t bucket = 0;
  };
  using Paths = std::vector<std::vector<std::string>>; ///< per input and shard
  /// A sample of one input.
  struct Place {
    const SampleFile &file;
    int64_t sample;  ///< in the file
    int64_t element; ///< its first one
  };
  Status listFiles(const Options &options, Paths &paths);
  Status openFiles(const Options &options);
  Status openStepFiles(const Options &options);
  Input inputIn(size_t input, size_t bucket) const;
  Result<SampleFile> openFile(const DataSource &source, size_t input,
                              const std::string &path, size_t bucket) const;
  Status chooseBuckets(const Options &options, const Paths &paths);
  Status addBuckets(int64_t microbatches);
  Status splitDocuments(const Options &options);
  Status addShards();
  Status addParts(const Options &options);
  Mixture::Drawn drawnAt(int64_t number) const;
  Part replacementsOf(int64_t sample) const;
  int64_t placeIn(size_t part, int64_t number) const;
  Place find(size_t input, int64_t sample) const;
  Status locate(size_t input, Place &place);
  Status readOrReplace(int64_t sample, int64_t row, void *const *buffers,
                       bool counts);
  Place valueOf(size_t input, int64_t step) const;
  Status readStepValues(int64_t step, void *const *buffers);
  Status readRow(int64_t sample, int64_t row, void *const *buffers);
  Status readSample(size_t input, const Place &place, std::vector<char> &raw,
                    void *to) const;
  Status checkBounds(const Input &input, const Place &place,
                     const void *values);

  const Manifest *manifest = nullptr;
  size_t sampled = 0; ///< inputs with samples, which are the first ones
  /// The files of the other inputs, which have a value per step.
  std::vector<SampleFile> stepFiles;
  std::vector<Shard> shards;
  std::vector<Part> parts;
  Mixture mixture;                  ///< of the parts
  int64_t perDraw = 1;              ///< samples that the mixture draws together
  std::vector<char> raw, converted; ///< one sample, as in the file and as used
  DocumentWindows::Scratch scratch;
  std::vector<int64_t> widened; ///< one sample of values with bounds
  int64_t samples = 0, perMicrobatch = 0;
  uint64_t seed = 0;
  bool shuffle = false, skipsCorrupt = false;
  int64_t replacedSamples = 0;
};

} // namespace fsdpc::runtime
