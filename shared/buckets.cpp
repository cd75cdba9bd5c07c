// The buckets of a program: the shapes of its inputs that it was compiled for.
// The data choose among them by the shape of their samples alone.
#include "shared/manifest.h"

#include <algorithm>

namespace fsdpc {
namespace {

// The largest number of elements of an input, as in the manifest's other
// checks.
constexpr int64_t mostElements = int64_t(1) << 48;

// Returns the elements of a shape without an extent below 1, or -1.
int64_t elementsOf(const std::vector<int64_t> &shape) {
  int64_t elements = 1;
  for (int64_t extent : shape)
    if (extent < 1 || __builtin_mul_overflow(elements, extent, &elements) ||
        elements > mostElements)
      return -1;
  return elements;
}

// Returns the manifest's inputs with the shapes that they have in a bucket.
Manifest inBucket(const Manifest &manifest, size_t bucket) {
  Manifest own;
  own.inputs = manifest.inputs;
  for (Input &input : own.inputs)
    input.shape = shapeIn(input, bucket);
  return own;
}

// Returns true if no input has samples of another shape in one bucket than in
// the other.
bool haveEqualSamples(const Manifest &one, const Manifest &other) {
  for (size_t i = 0; i < one.inputs.size(); ++i)
    if (!std::equal(one.inputs[i].shape.begin() + 1, one.inputs[i].shape.end(),
                    other.inputs[i].shape.begin() + 1,
                    other.inputs[i].shape.end()))
      return false;
  return true;
}

} // namespace

size_t bucketCount(const Manifest &manifest) {
  return std::max<size_t>(1, manifest.buckets.size());
}

const std::vector<int64_t> &shapeIn(const Input &input, size_t bucket) {
  return input.bucketShapes.empty() ? input.shape : input.bucketShapes[bucket];
}

std::string suffixOfBucket(size_t bucket) {
  return bucket == 0 ? "" : "_" + std::to_string(bucket);
}

Status checkBuckets(const Manifest &manifest) {
  const std::vector<std::string> &names = manifest.buckets;
  for (const Input &input : manifest.inputs) {
    // Axis 0 is the batch.
    if (input.shape.empty())
      return Error{"input '" + input.name + "' has no axis of samples"};
    if (input.bucketShapes.size() != names.size())
      return Error{"input '" + input.name + "' has " +
                   std::to_string(input.bucketShapes.size()) +
                   " shapes, but there are " + std::to_string(names.size()) +
                   " buckets"};
    for (const std::vector<int64_t> &shape : input.bucketShapes)
      // The memory of an input is that of `shape`.
      if (shape.size() != input.shape.size() || elementsOf(shape) < 0 ||
          elementsOf(shape) > elementsOf(input.shape))
        return Error{"input '" + input.name +
                     "' has a shape in a bucket that does not fit its memory"};
  }
  std::vector<Manifest> own;
  for (size_t bucket = 0; bucket < names.size(); ++bucket) {
    own.push_back(inBucket(manifest, bucket));
    int64_t samples = samplesPerMicrobatch(own.back()),
            first = samplesPerMicrobatch(own.front());
    if (samples != first)
      return Error{"a microbatch has " + std::to_string(first) +
                   " samples in bucket '" + names[0] + "' and " +
                   std::to_string(samples) + " in bucket '" + names[bucket] +
                   "'; buckets may differ in the shape of a sample only"};
    for (size_t other = 0; other < bucket; ++other)
      if (haveEqualSamples(own[bucket], own[other]))
        return Error{"samples have the same shape in the buckets '" +
                     names[other] + "' and '" + names[bucket] +
                     "', so data cannot choose between them; buckets must "
                     "differ in the shape of a sample"};
  }
  return {};
}

} // namespace fsdpc
