// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of optimizers in rounds of segments, and sums over whole
// parameters, with the bits of the host: a kernel of the program sums groups of
// 16 elements, and exact sums add these up (runtime/numeric/square_sum.h). Each
// rank sums what it answers for in norms.
#include "runtime/abi/member_sums.h"
#include "runtime/abi/cuda_scratch.h"
#include "runtime/comm/failure.h"
#include "runtime/cuda/update.h"
#include "runtime/support/concat.h"
#include "runtime/support/round_up.h"

namespace fsdpc::runtime {

static_assert(sumGroup == squareGroup);
static_assert(optimizerSegment / sumGroup <= SquareSum::mostAdditions,
              "a segment's groups are added without a carry in between");

// Returns the segments of elements [first, last) of a layout, which count from
// `base`. A block of threads works on one segment, so long members are cut.
static std::vector<UpdateSegment> cut(const Layout &layout, int64_t first,
                                      int64_t last, int64_t base) {
  std::vector<UpdateSegment> segments;
  forEachMember(
      layout, first, last, [&](size_t member, int64_t from, int64_t to) {
        for (; from < to; from += optimizerSegment)
          segments.push_back({from - base,
                              std::min(from + optimizerSegment, to) - base,
                              int64_t(member)});
      });
  return segments;
}

// Segments begin at multiples of a group from their member's begin, as shards
// do.
std::vector<UpdateSegment> CudaUpdate::ownSegments(const fsdpc_rank &rank,
                                                   size_t index) {
  const LayoutBuffers &buffers = rank.layouts[index];
  int64_t first = buffers.ownOf(rank.job.rank);
  return cut(rank.manifest.layouts[index], first, first + buffers.own,
             buffers.partBegin);
}

std::vector<UpdateSegment> CudaUpdate::updatedSegments(const fsdpc_rank &rank,
                                                       size_t index) {
  const LayoutBuffers &buffers = rank.layouts[index];
  int64_t first = buffers.partBegin;
  return cut(rank.manifest.layouts[index], first, first + buffers.part, first);
}

Status CudaUpdate::addSums(const fsdpc_rank &rank, size_t index,
                           Optimizer &optimizer) {
  const Layout &layout = rank.manifest.layouts[index];
  int64_t perMember = layout.sums;
  if (perMember == 0)
    return {};
  auto memberTotal = int64_t(layout.members.size());
  std::vector<UpdateSegment> segments = ownSegments(rank, index);
  std::vector<int64_t> firsts(layout.members.size() + 1, 0);
  for (size_t i = 0; i < segments.size(); ++i)
    firsts[size_t(segments[i].member) + 1] = int64_t(i) + 1;
  // A member of which the rank has nothing ends where the one before does.
  for (size_t m = 1; m < firsts.size(); ++m)
    firsts[m] = std::max(firsts[m], firsts[m - 1]);
  segmentCount = std::max(segmentCount, int64_t(segments.size()) * perMember);
  memberCount = std::max(memberCount, memberTotal * perMember);
  groupCount = groupSumsCap / int64_t(sizeof(double));
  FSDPC_TRY(setSegments(layout, segments, segmentsPerSum(int32_t(perMember)),
                        optimizer.factors, optimizer.sums));
  return upload(firsts, optimizer.firsts);
}

// Takes the memory that layouts with sums share.
Status CudaUpdate::takeSums() {
  FSDPC_TRY(upload(std::vector<double>(size_t(groupCount)), groupSums));
  FSDPC_TRY(upload(std::vector<SquareSum>(size_t(segmentCount)), segmentSums));
  FSDPC_TRY(upload(std::vector<float>(size_t(elementCount)), elementNumbers));
  FSDPC_TRY(upload(std::vector<double>(size_t(digitCount)), matrixDigits));
  return upload(std::vector<double>(size_t(memberCount)), memberSums);
}

Status CudaUpdate::setSegments(const Layout &layout,
                               const std::vector<UpdateSegment> &segments,
                               int64_t most, bool takesNumbers, Segments &to) {
  constexpr int64_t mostNumbers = elementNumbersCap / int64_t(sizeof(float));
  int64_t mostElements =
      std::min(takesNumbers ? mostNumbers : INT64_MAX,
               layout.isOffloaded() ? offloadPieceElements : INT64_MAX);
  for (size_t i = 0; i < segments.size(); ++i) {
    const UpdateSegment &segment = segments[i];
    bool fits = !to.rounds.empty() && to.rounds.back().segments < most &&
                segment.to - to.rounds.back().firstElement <= mostElements;
    if (!fits)
      to.rounds.push_back({int64_t(i), 0, segment.from, 0});
    Round &round = to.rounds.back();
    ++round.segments;
    round.elements = roundUp(segment.to - round.firstElement, sumGroup);
    if (takesNumbers)
      elementCount = std::max(elementCount, round.elements);
  }
  return upload(segments, to.table);
}

void CudaUpdate::sumMembers(const fsdpc_rank &rank, int32_t index,
                            const void *scale, int32_t perMember,
                            const double *factors, double *digits,
                            const Launch &launch) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  const Optimizer &optimizer = optimizers[size_t(index)];
  if (perMember != layout.sums)
    fail(inputError(
        concat("optimizer '", layout.optimizer, "' of layout '", layout.name,
               "' takes ", perMember,
               " sums per parameter, for which no memory is planned")));
  size_t slot = 0;
  for (const Round &round : optimizer.sums.rounds) {
    SumGroups add;
    add.segments = optimizer.sums.table + round.firstSegment;
    add.count = round.segments;
    add.room = optimizerSegment / sumGroup * perMember;
    add.perMember = perMember;
    add.groups = groupSums;
    add.sums = segmentSums + round.firstSegment * perMember;
    OptimizerOperands operands =
        memberSumOperands(rank, index, scale, factors != nullptr);
    if (factors) {
      multiplyFactors(optimizer, optimizer.sums, round, factors);
      setNumbers(operands, round);
    }
    operands.push(optimizer.sums.table + round.firstSegment);
    operands.push(rates(optimizer));
    operands.push(groupSums);
    if (layout.isOffloaded())
      offload->bring(rank, index, operands, /*areChanged=*/false,
                     round.firstElement, round.elements, slot = 1 - slot);
    launch(operands, add.count);
    if (layout.isOffloaded())
      offload->takeBack();
    context.launch(add, add.count * perMember, FSDPC_STREAM_COMPUTE);
  }
  SumMembers sum;
  sum.firsts = optimizer.firsts;
  sum.members = int64_t(layout.members.size());
  sum.perMember = perMember;
  sum.sums = segmentSums;
  sum.digits = digits;
  context.launchBlocks(sum, sum.members * perMember, FSDPC_STREAM_COMPUTE);
}

double *CudaUpdate::roundSums(const fsdpc_rank &rank, int32_t index,
                              int32_t perMember, const void *digits) {
  RoundSums sums;
  sums.digits = static_cast<const double *>(digits);
  sums.count =
      int64_t(rank.manifest.layouts[size_t(index)].members.size()) * perMember;
  sums.sums = memberSums;
  context.launch(sums, sums.count, FSDPC_STREAM_COMPUTE);
  return memberSums;
}

// A rank may own only padding of a layout, and then has no rounds.
void CudaUpdate::optimize(const fsdpc_rank &rank, int32_t index,
                          const void *scale, int32_t perMember,
                          const void *sums, const double *factors,
                          const void *updates, const void *gradient,
                          const Launch &launch) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  const Optimizer &optimizer = optimizers[size_t(index)];
  if (optimizer.updates.rounds.empty())
    return;
  double *rounded = sums ? roundSums(rank, index, perMember, sums) : nullptr;
  size_t slot = 0;
  for (const Round &round : optimizer.updates.rounds) {
    OptimizerOperands operands =
        optimizerOperands(rank, index, scale, gradient, factors || updates);
    if (layout.noMaster)
      operands.list[operands.count - 2] = keys(optimizer);
    if (factors)
      multiplyFactors(optimizer, optimizer.updates, round, factors);
    if (updates)
      placeUpdates(optimizer, round, updates);
    if (factors || updates)
      setNumbers(operands, round);
    operands.push(optimizer.updates.table + round.firstSegment);
    operands.push(rates(optimizer));
    if (rounded)
      operands.push(rounded);
    if (layout.isOffloaded())
      offload->bring(rank, index, operands, /*areChanged=*/true,
                     round.firstElement, round.elements, slot = 1 - slot);
    launch(operands, round.segments);
    if (layout.isOffloaded())
      offload->takeBack();
  }
  if (layout.isOffloaded())
    offload->settle();
}

} // namespace fsdpc::runtime
