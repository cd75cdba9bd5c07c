// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tables, numbers and reports of an update. Numbers and reports have two pinned
// copies, for even and odd steps, since the host works on one step while the
// device runs the other.
#include "runtime/cuda/update.h"
#include "runtime/abi/cuda_scratch.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/support/concat.h"

#include <cstring>

namespace fsdpc::runtime {

namespace {

// Copies eight bytes or fewer into a word.
template <typename T> uint64_t wordOf(T value) {
  static_assert(sizeof value <= sizeof(uint64_t));
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}

} // namespace

// A loss, a divisor and one number per output for each microbatch; those of
// outputs that are not metrics are not used.
int64_t CudaUpdate::reportBytes(const Manifest &manifest, int64_t accumulate) {
  auto rows = 2 + int64_t(manifest.outputs.size());
  return int64_t(sizeof(DeviceReport)) +
         accumulate * rows * int64_t(sizeof(float));
}

int64_t CudaUpdate::pinnedBytes(const Manifest &manifest, int64_t accumulate) {
  // Four blocks are taken: numbers and a report for each parity.
  constexpr int64_t alignment = 4 * 4096;
  return 2 * (2 * 8 * stepNumberCount(manifest) +
              reportBytes(manifest, accumulate)) +
         alignment;
}

// Each copy may lose 4096 bytes in front of it, as may their table.
int64_t CudaUpdate::keptBytes(const Manifest &manifest) {
  int64_t bytes = 4096;
  for (const Buffer &buffer : manifest.buffers)
    bytes += int64_t(changingBytes(buffer) + sizeof(KeptBuffer)) + 4096;
  for (const Layout &layout : manifest.layouts)
    if (layout.compression)
      bytes += 2 * int64_t(sizeof(KeptBuffer));
  return bytes;
}

// A piece is in the slot that its table names, since graphs keep the table.
void CudaUpdate::addNormPiece(int32_t layout, int64_t first, int64_t elements) {
  NormPiece piece{layout, first, elements, normPieces.size() % 2, {}};
  piece.table.gradient = offload->slotMemory<float>(piece.slot);
  normPieces.push_back(piece);
}

// Segments are whole groups of one member, unless the member ends, and lie in
// what the rank answers for of its shard.
Result<NormLayout> CudaUpdate::normOf(const fsdpc_rank &rank, size_t index) {
  const Layout &layout = rank.manifest.layouts[index];
  const LayoutBuffers &buffers = rank.layouts[index];
  NormLayout norm;
  if (!layout.trainable)
    return norm;
  int64_t shard = buffers.shardOf(rank.job.rank);
  int64_t first = buffers.ownOf(rank.job.rank), last = first + buffers.own;
  std::vector<NormSegment> segments;
  size_t firstPiece = normPieces.size();
  for (int64_t begin = first; begin < last; begin += normBlock) {
    bool isOffloaded = layout.gradientOffloaded;
    if (isOffloaded && (begin - first) % offloadPieceElements == 0)
      addNormPiece(int32_t(index), begin - shard,
                   std::min(offloadPieceElements, last - begin));
    int64_t base = isOffloaded ? shard + normPieces.back().first : shard;
    size_t before = segments.size();
    forEachMember(layout, begin, std::min(begin + normBlock, last),
                  [&](size_t, int64_t from, int64_t to) {
                    segments.push_back({from - base, to - base});
                  });
    if (isOffloaded)
      normPieces.back().table.segmentCount += int64_t(segments.size() - before);
  }
  GradientShard gradient = gradientShardOf(rank, int32_t(index));
  norm.gradient = gradient.values, norm.type = gradient.type;
  norm.segmentCount = int64_t(segments.size());
  FSDPC_TRY(upload(segments, norm.segments));
  FSDPC_TRY(upload(std::vector<SquareSum>(segments.size()), norm.sums));
  int64_t done = 0;
  for (size_t i = firstPiece; i < normPieces.size(); ++i) {
    NormLayout &table = normPieces[i].table;
    table.segments = norm.segments + done;
    table.sums = norm.sums + done;
    done += table.segmentCount;
  }
  // The launch is sized by the longest layout, since one kernel sums a list of
  // layouts.
  mostSegments = std::max(mostSegments, norm.segmentCount);
  return norm;
}

// Cuts the part that this rank updates into segments of one member each.
Result<CudaUpdate::Optimizer> CudaUpdate::optimizerOf(const fsdpc_rank &rank,
                                                      size_t index) {
  const Layout &layout = rank.manifest.layouts[index];
  const LayoutBuffers &buffers = rank.layouts[index];
  Optimizer optimizer;
  if (!layout.trainable)
    return optimizer;
  FSDPC_TRY(addFactors(rank, index, optimizer));
  FSDPC_TRY(addMatrices(rank, index, optimizer));
  FSDPC_TRY(setSegments(layout, updatedSegments(rank, index), INT64_MAX,
                        optimizer.factors || optimizer.places,
                        optimizer.updates));
  optimizer.firstMember = members;
  optimizer.firstKey = keyed;
  members += int64_t(layout.members.size());
  keyed += int64_t(buffers.roundingKeys.size());
  FSDPC_TRY(addSums(rank, index, optimizer));
  return optimizer;
}

// Uploads every table once. Tables are read by captured graphs, so they must
// not move.
Status CudaUpdate::prepare(fsdpc_rank &rank) {
  std::vector<NormLayout> layouts;
  for (size_t i = 0; i < rank.layouts.size(); ++i) {
    auto norm = normOf(rank, i);
    FSDPC_TRY(norm);
    layouts.push_back(*norm);
    auto optimizer = optimizerOf(rank, i);
    FSDPC_TRY(optimizer);
    optimizers.push_back(*optimizer);
  }
  for (const NormPiece &piece : normPieces)
    layouts.push_back(piece.table);
  FSDPC_TRY(upload(layouts, norms));
  FSDPC_TRY(takeSums());
  numberCount = stepNumberCount(rank.manifest);
  size_t count = size_t(numberCount), ends = rank.skipsNonFinite ? 2 : 1;
  FSDPC_TRY(upload(std::vector<uint64_t>(count), numbers));
  if (rank.skipsNonFinite)
    FSDPC_TRY(upload(std::vector<uint64_t>(ends * count), offered));
  accumulate = rank.accumulate;
  bytesOfReport = reportBytes(rank.manifest, accumulate);
  FSDPC_TRY(upload(std::vector<char>(size_t(bytesOfReport)), report));
  for (size_t parity = 0; parity < 2; ++parity) {
    pinnedNumbers[parity] = static_cast<uint64_t *>(
        memory.takePinned(int64_t(ends * count * sizeof(uint64_t))));
    pinnedReports[parity] =
        static_cast<char *>(memory.takePinned(bytesOfReport));
    if (!pinnedNumbers[parity] || !pinnedReports[parity])
      return runError("out of pinned memory for an update");
    reported[parity] = std::make_unique<OwnedEvent>(context);
  }
  return rank.leavesOut ? keep(rank) : Status();
}

// Makes the copies of the model's buffers.
Status CudaUpdate::keep(const fsdpc_rank &rank) {
  std::vector<KeptBuffer> buffers;
  for (size_t i = 0; i < rank.buffers.size(); ++i) {
    auto bytes = int64_t(changingBytes(rank.manifest.buffers[i]));
    if (bytes == 0)
      continue;
    KeptBuffer buffer;
    buffer.own = static_cast<char *>(rank.buffers[i]);
    buffer.copy = static_cast<char *>(memory.takeDevice(bytes));
    buffer.bytes = bytes;
    if (!buffer.copy)
      return runError(concat("out of device memory for a copy of a buffer of ",
                             bytes, " bytes"));
    buffers.push_back(buffer);
    longestKept = std::max(longestKept, bytes);
  }
  // Residuals of gradients that are not finite would make all later steps so.
  // All ranks begin anew, as the factors of reductions are equal on all.
  for (size_t i = 0; i < rank.layouts.size(); ++i) {
    LayoutMemory sizes = layoutMemory(rank.manifest, rank.manifest.layouts[i],
                                      rank.job.size, rank.groupRanks);
    for (auto [values, bytes] :
         {std::pair(rank.layouts[i].residual, sizes.residual),
          std::pair(rank.layouts[i].compression, sizes.compression)}) {
      if (!values)
        continue;
      KeptBuffer buffer;
      buffer.own = reinterpret_cast<char *>(values);
      buffer.bytes = bytes;
      buffers.push_back(buffer);
      longestKept = std::max(longestKept, bytes);
    }
  }
  keptCount = int64_t(buffers.size());
  return upload(buffers, kept);
}

void CudaUpdate::copyBuffers(const int64_t *failed) {
  if (keptCount == 0)
    return;
  KeepBuffers k;
  k.buffers = kept, k.count = keptCount;
  k.failed = failed;
  context.launch(k, longestKept, FSDPC_STREAM_COMPUTE);
}

// Writes the numbers of a step to host memory and returns where they end.
uint64_t *CudaUpdate::writeNumbers(const fsdpc_rank &rank,
                                   const StepNumbers &from,
                                   uint64_t *to) const {
  *to++ = wordOf(from.gradientFactor);
  *to++ = wordOf(from.lossScale);
  for (size_t i = 0; i < rank.layouts.size(); ++i) {
    const Layout &layout = rank.manifest.layouts[i];
    if (!layout.trainable)
      continue;
    for (size_t m = 0; m < layout.members.size(); ++m) {
      const Member &member = layout.members[m];
      // The optimizer reads per member: learning rate, step from 1, weight
      // decay, and a word that pads the group to four.
      *to++ = wordOf(from.lr * member.rate);
      *to++ = wordOf(double(from.updates + 1 - rank.layouts[i].since[m]));
      *to++ = wordOf(member.decay);
      *to++ = 0;
    }
  }
  for (const LayoutBuffers &buffers : rank.layouts)
    for (const std::array<int64_t, 4> &key : buffers.roundingKeys) {
      *to++ = rank.seed;
      *to++ = uint64_t(key[1]);
      *to++ = uint64_t(rank.step);
      *to++ = uint64_t(key[3]);
    }
  return to;
}

// The numbers are copied on stream COMPUTE, so the copy follows the update of
// the step before. Its report in device memory says whether that was skipped.
void CudaUpdate::sendNumbers(const fsdpc_rank &rank, int64_t step) {
  size_t parity = size_t(step % 2);
  // The step before the last used this copy; wait until it is done.
  reported[parity]->await();
  uint64_t *pinned = pinnedNumbers[parity];
  uint64_t *end = writeNumbers(rank, rank.numbers, pinned);
  if (offered)
    end = writeNumbers(rank, rank.afterSkip, end);
  context.copy(offered ? offered : numbers, pinned,
               size_t(end - pinned) * sizeof(uint64_t), FSDPC_STREAM_COMPUTE);
  if (!offered)
    return;
  TakeNumbers take;
  take.skipped = &report->failed;
  take.offered = offered, take.numbers = numbers;
  take.count = numberCount;
  context.launch(take, take.count, FSDPC_STREAM_COMPUTE);
}

// Zero bytes are the number 0. The report of the step before has been copied by
// then, on the same stream.
void CudaUpdate::clearZeroed(const fsdpc_rank &rank) {
  if (rank.manifest.countsZeroed)
    context.fill(&report->zeroed, 0, sizeof report->zeroed,
                 FSDPC_STREAM_COMPUTE);
}

// A program without a scale does not read it.
void CudaUpdate::setLossScale(const fsdpc_rank &rank) {
  if (!rank.manifest.lossScale.isOn())
    return;
  auto *key = static_cast<RandomKey *>(rank.random[size_t(rank.slot)]);
  context.copy(&key->lossScale, numbers + 1, sizeof key->lossScale,
               FSDPC_STREAM_COMPUTE);
}

// Two steps later the same pinned copy is written again. By then the loop has
// read it (Device::results).
void CudaUpdate::sendReport(int64_t step) {
  size_t parity = size_t(step % 2);
  context.copy(pinnedReports[parity], report, size_t(bytesOfReport),
               FSDPC_STREAM_COMPUTE);
  reported[parity]->record(FSDPC_STREAM_COMPUTE);
}

void CudaUpdate::awaitReport(fsdpc_rank &rank, int64_t step,
                             StepResults &results) {
  size_t parity = size_t(step % 2);
  reported[parity]->await();
  DeviceReport seen;
  const char *pinned = pinnedReports[parity];
  std::memcpy(&seen, pinned, sizeof seen);
  // The losses of all microbatches, their divisors, then a row per output.
  size_t count = size_t(accumulate);
  auto *numbers = reinterpret_cast<const float *>(pinned + sizeof seen);
  results.losses.assign(numbers, numbers + count);
  results.valid.assign(numbers + count, numbers + 2 * count);
  results.metrics.assign(numbers + 2 * count,
                         numbers + (2 + rank.manifest.outputs.size()) * count);
  results.norm = seen.norm;
  results.zeroed = seen.zeroed;
  results.nonFinite = -1;
  // Without a layout it is a loss that is not finite.
  if (seen.failed < 0 || seen.failed >= int64_t(clipped.size()))
    return;
  results.nonFinite = clipped[size_t(seen.failed)];
  if (!rank.skipsNonFinite)
    stopAtGradient(rank, step, results.nonFinite);
}

// The report is: head, one loss per microbatch, one divisor per microbatch,
// then the rows of outputs.
ReportLoss CudaUpdate::rowOf(const fsdpc_rank &rank, const void *value,
                             size_t row) const {
  ReportLoss r;
  r.loss = static_cast<const float *>(value);
  r.random = static_cast<const uint32_t *>(rank.random[size_t(rank.slot)]);
  r.ranks = uint32_t(rank.job.size);
  r.losses = reinterpret_cast<float *>(report + 1) + row * size_t(accumulate);
  return r;
}

void CudaUpdate::reportLoss(fsdpc_rank &rank, const void *loss,
                            const void *valid) {
  ReportLoss r = rowOf(rank, loss, 0);
  r.valid = static_cast<const float *>(valid);
  r.valids = r.losses + accumulate;
  context.launch(r, 1, FSDPC_STREAM_COMPUTE);
}

void CudaUpdate::reportOutput(fsdpc_rank &rank, int32_t index,
                              const void *value) {
  const Output &output = rank.manifest.outputs.at(size_t(index));
  if (output.isScalar())
    context.launch(rowOf(rank, value, 2 + size_t(index)), 1,
                   FSDPC_STREAM_COMPUTE);
  else
    context.copy(rank.outputs[size_t(index)], value, bytesOf(output),
                 FSDPC_STREAM_COMPUTE);
}

// Adds on the device, since the graph of a section is replayed for several
// microbatches. All of a step's gradients are reported on one stream.
void CudaUpdate::reportZeroed(const void *zeroed) {
  CountZeroed c;
  c.zeroed = static_cast<const float *>(zeroed);
  c.sum = &report->zeroed;
  context.launch(c, 1, FSDPC_STREAM_COMPUTE);
}

void CudaUpdate::sumPieces(const fsdpc_rank &rank, int32_t layout) {
  for (size_t i = 0; i < normPieces.size(); ++i) {
    const NormPiece &piece = normPieces[i];
    if (piece.layout != layout || piece.table.segmentCount == 0)
      continue;
    void *gradient = rank.layouts[size_t(layout)].gradientShard;
    PieceOperand operand{&gradient, sizeof(float)};
    offload->bring({&operand, 1}, piece.first, piece.elements, piece.slot);
    SumSquareSegments sum;
    sum.layouts = norms;
    sum.list[0] = int32_t(rank.layouts.size() + i);
    sum.count = 1;
    context.launch(sum, piece.table.segmentCount, FSDPC_STREAM_COMPUTE);
    offload->takeBack();
  }
}

// Two kernels per group of layouts: segments first, then their sums.
void CudaUpdate::sumSquares(const fsdpc_rank &rank, int layoutCount,
                            const int32_t *layouts, void *sums) {
  for (int begin = 0; begin < layoutCount; begin += mostNormLayouts) {
    int count = std::min<int>(mostNormLayouts, layoutCount - begin);
    SumSquareSegments first;
    SumSquares second;
    first.layouts = second.layouts = norms;
    second.count = count;
    first.count = 0;
    for (int i = 0; i < count; ++i) {
      int32_t layout = second.list[i] = layouts[begin + i];
      if (rank.manifest.layouts[size_t(layout)].gradientOffloaded)
        sumPieces(rank, layout);
      else
        first.list[first.count++] = layout;
    }
    second.sums = static_cast<double *>(sums) + begin * normDigits;
    if (rank.leavesOut && begin == 0) {
      second.losses = reinterpret_cast<const float *>(report + 1);
      second.microbatches = accumulate;
    }
    if (first.count > 0)
      context.launch(first, mostSegments, FSDPC_STREAM_COMPUTE);
    context.launchBlocks(second, int64_t(count), FSDPC_STREAM_COMPUTE);
  }
}

void CudaUpdate::clip(fsdpc_rank &rank, int count, const int32_t *layouts,
                      const void *sums, double maxNorm, void *scale) {
  // A replayed graph does not come here. The list stays valid, since every
  // replay clips the same layouts.
  clipped.assign(layouts, layouts + count);
  Clip c;
  c.sums = static_cast<const double *>(sums);
  c.count = count;
  c.toMean = reinterpret_cast<const double *>(numbers);
  c.maxNorm = maxNorm;
  c.scale = static_cast<float *>(scale);
  c.norm = &report->norm;
  c.failed = &report->failed;
  c.skips = rank.skipsNonFinite;
  context.launchBlocks(c, 1, FSDPC_STREAM_COMPUTE);
}

} // namespace fsdpc::runtime
