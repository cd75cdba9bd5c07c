// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The buckets of a program: the shapes of its inputs that it was compiled for.
// The data choose among them by the shape of their samples alone.
#include "runtime/abi/manifest.h"
#include "runtime/abi/plan_shapes.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <map>

namespace fsdpc {
namespace {

// Returns the manifest's inputs with the shapes that they have in a bucket.
Manifest inBucket(const Manifest &manifest, size_t bucket) {
  Manifest own;
  for (const Input &input : manifest.inputs)
    own.inputs.push_back({input.name, shapeIn(input, bucket), input.dtype});
  return own;
}

// Returns the shapes of a sample of each input.
std::vector<std::vector<int64_t>> sampleShapes(const Manifest &own) {
  std::vector<std::vector<int64_t>> shapes;
  for (const Input &input : own.inputs)
    if (!input.shape.empty())
      shapes.emplace_back(input.shape.begin() + 1, input.shape.end());
  return shapes;
}

} // namespace

size_t bucketCount(const Manifest &manifest) {
  return std::max<size_t>(1, manifest.buckets.size());
}

const std::vector<int64_t> &shapeIn(const Input &input, size_t bucket) {
  return input.bucketShapes.empty() ? input.shape : input.bucketShapes[bucket];
}

std::string suffixOfBucket(size_t bucket) {
  return bucket == 0 ? "" : concat("_", bucket);
}

Status checkBuckets(const Manifest &manifest) {
  const std::vector<std::string> &names = manifest.buckets;
  for (const Input &input : manifest.inputs) {
    if (input.bucketShapes.size() != names.size())
      return inputError(
          concat("input '", input.name, "' has ", input.bucketShapes.size(),
                 " shapes, but there are ", names.size(), " buckets"));
    for (const std::vector<int64_t> &shape : input.bucketShapes)
      // The memory of an input is that of `shape`.
      if (shape.size() != input.shape.size() || elementsOf(shape, 1) < 0 ||
          elementsOf(shape, 1) > elementsOf(input.shape, 1))
        return inputError(
            "input '" + input.name +
            "' has a shape in a bucket that does not fit its memory");
  }
  // By the shapes of a sample, which differ in each bucket.
  std::map<std::vector<std::vector<int64_t>>, size_t> known;
  int64_t first = 0;
  for (size_t bucket = 0; bucket < names.size(); ++bucket) {
    Manifest own = inBucket(manifest, bucket);
    int64_t samples = samplesPerMicrobatch(own);
    if (bucket == 0)
      first = samples;
    if (samples != first)
      return inputError(
          concat("a microbatch has ", first, " samples in bucket '", names[0],
                 "' and ", samples, " in bucket '", names[bucket],
                 "'; buckets may differ in the shape of a sample only"));
    auto [other, isNew] = known.try_emplace(sampleShapes(own), bucket);
    if (!isNew)
      return inputError("samples have the same shape in the buckets '" +
                        names[other->second] + "' and '" + names[bucket] +
                        "', so data cannot choose between them; buckets must "
                        "differ in the shape of a sample");
  }
  return {};
}

} // namespace fsdpc
