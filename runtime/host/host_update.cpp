// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The update on the host after the norm (host_norm.cpp): sums per member, the
// optimizer, and what it changes, in the steps of --histogram-every. Each runs
// on the compute threads, by members, in blocks of one size. Offloaded operands
// come in pieces (host_offload.h).
#include "runtime/host/host_device.h"

#include "runtime/abi/member_sums.h"
#include "runtime/core/rank.h"
#include "runtime/host/host_factors.h"
#include "runtime/host/host_matrices.h"
#include "runtime/host/host_offload.h"
#include "runtime/host/host_squares.h"
#include "runtime/train/update_ratios.h"

#include <algorithm>
#include <array>
#include <mutex>

namespace fsdpc::runtime {

namespace {

constexpr int64_t sumBlock = 4096;    // elements per partial sum, and per copy
constexpr int64_t optimizerGrain = 4; // such blocks per piece of a thread
static_assert(sumBlock / sumGroup <= SquareSum::mostAdditions,
              "a block's groups are added without a carry in between");

} // namespace

// The rates change from step to step and are read when the kernel runs. They
// may be overwritten only after that, which the loop's synchronize after each
// update guarantees.
static void setRates(fsdpc_rank &rank, int32_t index) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  LayoutBuffers &buffers = rank.layouts[size_t(index)];
  // The rate, the member's step, its decay, and a place that kernels do not
  // read.
  for (size_t i = 0; i < layout.members.size(); ++i)
    // Steps count from 1 here, as in Adam's bias correction.
    buffers.rates[i] = {rank.numbers.lr * layout.members[i].rate,
                        double(rank.numbers.updates + 1 - buffers.since[i]),
                        layout.members[i].decay, 0};
  for (auto &key : buffers.roundingKeys)
    key[0] = int64_t(rank.seed), key[2] = rank.step;
}

// Adds the sums of the elements [first, last) of a layout to those of its
// members.
void HostDevice::addMembers(const fsdpc_rank &rank, const fsdpc_kernel &kernel,
                            int32_t index, size_t count, const double *factors,
                            const OptimizerOperands &operands, int64_t first,
                            int64_t last) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  const LayoutBuffers &buffers = rank.layouts[size_t(index)];
  pieces.clear();
  forEachMember(
      layout, first, last, [&](size_t member, int64_t from, int64_t to) {
        int64_t base = layout.members[member].offset;
        while (from < to) {
          int64_t end = base + ((from - base) / sumBlock + 1) * sumBlock;
          end = std::min(end, to);
          pieces.push_back({member, from, end});
          from = end;
        }
      });
  std::mutex adding;
  parallelFor(int64_t(pieces.size()), 4, [&](int64_t begin, int64_t end) {
    std::array<double, sumBlock / sumGroup * mostSums> groups;
    std::array<float, sumBlock> variances;
    auto own = operands; // a copy per piece of a thread
    for (auto piece = size_t(begin); piece < size_t(end); ++piece) {
      auto [member, from, to] = pieces[piece];
      if (factors)
        own.list[numberOperand] =
            variancesOf(buffers, layout.members[member], member, factors, from,
                        to, variances.data());
      own.list[own.count] = const_cast<double *>(buffers.rates[member].data());
      own.list[own.count + 1] = groups.data();
      kernel.host(from - buffers.partBegin, to - buffers.partBegin,
                  own.list.data());
      // The kernel wrote one sum per group of elements, those of one group
      // together.
      std::array<SquareSum, mostSums> ofPiece;
      size_t values = size_t((to - from + sumGroup - 1) / sumGroup) * count;
      for (size_t i = 0; i < values; ++i)
        ofPiece[i % count].add(groups[i]);
      std::lock_guard<std::mutex> lock(adding);
      for (size_t i = 0; i < count; ++i) {
        ofPiece[i].carry();
        memberTotals[member * count + i].add(ofPiece[i]);
      }
    }
  });
}

// Sums each member's elements in this rank's shard. The kernel sums groups of
// elements; the groups are added exactly, so neither threads nor ranks show,
// nor pieces of what is offloaded. Replicas of a shard sum a part of it each.
void HostDevice::sumMembers(const fsdpc_rank &rank, const fsdpc_kernel &kernel,
                            int32_t index, int32_t perMember, const void *scale,
                            const double *factors, double *sums) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  size_t count = size_t(perMember);
  // Has its capacity after the first step.
  memberTotals.assign(layout.members.size() * count, SquareSum());
  sumPieces(rank, index, layout.isOffloaded(),
            memberSumOperands(rank, index, scale, factors != nullptr),
            [&](const OptimizerOperands &operands, int64_t from, int64_t to) {
              addMembers(rank, kernel, index, count, factors, operands, from,
                         to);
            });
  // Members of which this rank holds nothing add 0.
  for (size_t i = 0; i < memberTotals.size(); ++i)
    memberTotals[i].write(sums + i * normDigits);
}

// A rank sums its shard, also where it keeps the whole state.
void HostDevice::memberSums(fsdpc_rank &rank, const fsdpc_kernel *kernel,
                            int32_t count, const int32_t *layouts,
                            const void *scale, int32_t perMember, void *sums,
                            const void *factors) {
  // Now, on the loop's thread; the lambda runs later.
  for (int32_t i = 0; i < count; ++i)
    setRates(rank, layouts[i]);
  layouts = keep(FSDPC_STREAM_COMPUTE, layouts, count);
  run(FSDPC_STREAM_COMPUTE, [=, this, &rank] {
    auto *to = static_cast<double *>(sums);
    auto *ofLayout = static_cast<const double *>(factors);
    for (int32_t i = 0; i < count; ++i) {
      sumMembers(rank, *kernel, layouts[i], perMember, scale, ofLayout, to);
      if (factors)
        ofLayout += countOf(rank.layouts[size_t(layouts[i])].factors);
      to += rank.manifest.layouts[size_t(layouts[i])].members.size() *
            size_t(perMember) * normDigits;
    }
  });
}

// Runs `update` on a member's elements [from, to), block by block, and adds to
// `ratios` what it changed of those for which this rank answers: each replica
// of a shard answers for a part of it. A block's copies are all the memory that
// this takes, and blocks begin with a group (square_sum.h), so the sums are the
// same for any number of ranks and threads.
template <class Update>
static void measure(const fsdpc_rank &rank, int32_t layout, size_t member,
                    const char *part, int64_t from, int64_t to,
                    UpdateRatios &ratios, const Update &update) {
  const LayoutBuffers &buffers = rank.layouts[size_t(layout)];
  int64_t first = buffers.ownOf(rank.job.rank);
  WireType type = rank.manifest.layouts[size_t(layout)].noMaster
                      ? computeTypeOf(rank, layout)
                      : WireType::f32;
  std::array<float, sumBlock> before, after;
  UpdateSums sums;
  for (int64_t last; from < to; from = last) {
    last = std::min(from + sumBlock, to);
    int64_t begin = std::max(from, first);
    int64_t end = std::max(begin, std::min(last, first + buffers.own));
    const char *values =
        part + (begin - buffers.partBegin) * elementBytes(type);
    castToWire(values, type, WireType::f32, end - begin, before.data());
    update(from, last);
    castToWire(values, type, WireType::f32, end - begin, after.data());
    addSquares(before.data(), end - begin, sums.values);
    for (int64_t i = 0; i < end - begin; ++i)
      before[size_t(i)] = after[size_t(i)] - before[size_t(i)];
    addSquares(before.data(), end - begin, sums.changes);
  }
  ratios.add(size_t(layout), member, sums);
}

namespace {

// The arguments of a layout's optimizer beside the layout's memory.
struct OptimizerCall {
  fsdpc_kernel_body body;
  int32_t layout, perMember;
  const double *sums, *factors;
  const void *updates;
  UpdateRatios *ratios;
};

} // namespace

// Runs the optimizer on the elements [begin, end) of the part that this rank
// updates, which begin and end with a block.
static void update(const fsdpc_rank &rank, const OptimizerCall &call,
                   const OptimizerOperands &operands, int64_t begin,
                   int64_t end) {
  const Layout &layout = rank.manifest.layouts[size_t(call.layout)];
  const LayoutBuffers &buffers = rank.layouts[size_t(call.layout)];
  // A copy: the last operands are the key, the rates and the sums of the member
  // at hand.
  auto own = operands;
  // In blocks, so that the variances of a piece lie on the stack.
  std::array<float, sumBlock> variances;
  auto runBlock = [&](int64_t from, int64_t to) {
    call.body(from - buffers.partBegin, to - buffers.partBegin,
              own.list.data());
  };
  auto updateMember = [&](size_t member, int64_t from, int64_t to) {
    own.list[own.count] = const_cast<double *>(buffers.rates[member].data());
    own.list[own.count + 1] = const_cast<double *>(
        call.sums ? call.sums + member * size_t(call.perMember) : nullptr);
    if (layout.noMaster)
      own.list[own.count - 2] =
          const_cast<int64_t *>(buffers.roundingKeys[member].data());
    if (call.updates)
      own.list[numberOperand] =
          updatesOf(buffers, layout, member, call.updates);
    if (!call.factors)
      return runBlock(from, to);
    for (; from < to; from += sumBlock) {
      int64_t last = std::min(from + sumBlock, to);
      own.list[numberOperand] =
          variancesOf(buffers, layout.members[member], member, call.factors,
                      from, last, variances.data());
      runBlock(from, last);
    }
  };
  forEachMember(
      layout, buffers.partBegin + begin, buffers.partBegin + end,
      [&](size_t member, int64_t from, int64_t to) {
        if (!call.ratios)
          return updateMember(member, from, to);
        measure(rank, call.layout, member,
                static_cast<char *>(operands.list[0]), from, to, *call.ratios,
                [&](int64_t a, int64_t b) { updateMember(member, a, b); });
      });
}

// With sums the rates have been set for them, and a kernel that reads these may
// be running.
void HostDevice::optimizer(fsdpc_rank &rank, const fsdpc_kernel *kernel,
                           int32_t index, const void *scale, int32_t perMember,
                           const void *sums, const void *factors,
                           const void *updates, const void *gradient) {
  if (!sums)
    setRates(rank, index);
  OptimizerOperands operands =
      optimizerOperands(rank, index, scale, gradient, factors || updates);
  OptimizerCall call{kernel->host,
                     index,
                     perMember,
                     static_cast<const double *>(sums),
                     static_cast<const double *>(factors),
                     updates,
                     rank.updateRatios};

  run(FSDPC_STREAM_COMPUTE, [=, this, &rank]() mutable {
    if (reported.nonFinite >= 0)
      return;
    const Layout &layout = rank.manifest.layouts[size_t(index)];
    // Has its capacity after the first step.
    roundedSums.resize(sums ? layout.members.size() * size_t(perMember) : 0);
    int64_t failed; // an infinite sum is the program's to judge
    for (size_t i = 0; i < roundedSums.size(); ++i)
      roundedSums[i] = sumOfSquares(
          static_cast<const double *>(sums) + i * normDigits, 1, failed);
    call.sums = sums ? roundedSums.data() : nullptr;
    auto updatePart = [&](int64_t from, int64_t to) {
      int64_t blocks = (to - from + sumBlock - 1) / sumBlock;
      parallelFor(blocks, optimizerGrain, [&](int64_t begin, int64_t end) {
        update(rank, call, operands, from + begin * sumBlock,
               std::min(from + end * sumBlock, to));
      });
    };
    if (!layout.isOffloaded())
      return updatePart(0, rank.layouts[size_t(index)].part);
    updatePieces(rank, index, [&](const ShardPiece &piece) {
      placePiece(operands, rank, index, piece);
      updatePart(piece.begin, piece.end);
    });
  });
}

} // namespace fsdpc::runtime
