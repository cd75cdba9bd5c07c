// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The samples of a program with several buckets (--dim of the compile): which
// bucket each file belongs to, and how buckets take turns.
#include "runtime/data/samples.h"
#include "runtime/support/concat.h"

#include <algorithm>

namespace fsdpc::runtime {

// The shapes of no two buckets' samples are equal (checkBuckets), so the files
// of all inputs together fit one bucket at most.
Status Samples::chooseBuckets(const Options &options, const Paths &paths) {
  std::string names;
  for (const std::string &name : manifest->buckets)
    names += (names.empty() ? "" : ", ") + name;
  if (!options.mix.empty())
    return commandLineError(
        "--mix: the program has the buckets " + names +
        ", which take turns by their numbers of samples; omit --mix");
  for (size_t i = 0; i < paths.size(); ++i)
    if (options.data[i].tokens)
      return commandLineError(
          "input '" + manifest->inputs[i].name +
          "' cannot be a token stream, which can be cut into the "
          "windows of any of the buckets " +
          names + "; give samples with --data or --eval");
  size_t buckets = manifest->buckets.size();
  for (size_t k = 0; k < shards.size(); ++k) {
    std::vector<bool> fits(buckets, true);
    for (size_t i = 0; i < paths.size(); ++i) {
      bool known = false; // some bucket has such samples
      Status first;
      for (size_t bucket = 0; bucket < buckets; ++bucket) {
        auto file = openFile(options.data[i], i, paths[i][k], bucket);
        known |= bool(file);
        fits[bucket] = fits[bucket] && file;
        if (!file && first)
          first = file.error();
      }
      if (!known)
        return first.error().reworded(first.error().message +
                                      "; the program has the buckets " + names);
    }
    auto found = std::find(fits.begin(), fits.end(), true);
    if (found == fits.end())
      return inputError(
          "the samples of '" + paths[0][k] + "' and of '" + paths.back()[k] +
          "', which belong together, have the shapes of different "
          "buckets (" +
          names + ")");
    shards[k].bucket = size_t(found - fits.begin());
  }
  return {};
}

// Each bucket with samples becomes a part. A step draws all its samples from
// one, and each has epochs of its own.
Status Samples::addBuckets(int64_t microbatches) {
  std::vector<Part> own;
  for (size_t k = 0; k < shards.size(); ++k) {
    if (shards[k].samples == 0)
      continue;
    if (own.empty() || own.back().bucket != shards[k].bucket)
      own.push_back({k, shards[k].begin, 0, shards[k].bucket});
    own.back().samples += shards[k].samples;
  }
  if (own.empty())
    return {}; // nothing will be read
  parts = own;
  perDraw = microbatches * perMicrobatch;
  if (perDraw == 0)
    return {};
  std::vector<double> weights;
  for (const Part &part : parts) {
    if (part.samples < perDraw)
      return inputError(
          concat("bucket '", manifest->buckets[part.bucket], "' has ",
                 part.samples, " samples, but one step takes ", microbatches,
                 " microbatches of ", perMicrobatch, " of one bucket"));
    weights.push_back(double(part.samples));
  }
  mixture = Mixture(weights);
  return {};
}

// Returns the samples among which one is replaced: all, but for those of other
// buckets, which have other shapes.
Samples::Part Samples::replacementsOf(int64_t sample) const {
  if (!manifest->buckets.empty())
    for (const Part &part : parts)
      if (sample < part.begin + part.samples)
        return part;
  return {0, 0, samples};
}

} // namespace fsdpc::runtime
