// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The update's data on the device, in addition to the rank's own memory: tables
// of the segments of norm and optimizer, made once; the step's numbers, which
// are the scale, the rates and the keys; and the report that it leaves for the
// host.
#pragma once

#include "runtime/core/rank.h"
#include "runtime/cuda/kernels/factors.h"
#include "runtime/cuda/kernels/matrices.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/offload.h"

#include <functional>

namespace fsdpc::runtime {

/// The head of a step's report on the device. The losses and their divisors
/// follow it.
struct DeviceReport {
  double norm = 0;
  double zeroed = 0; ///< StepResults::zeroed
  /// Index in the last clip's list of the first sum that is not finite; the
  /// length of the list if only a loss is not; -1 if the step counts.
  int64_t failed = -1;
};

/// A range of the gradient for which this rank answers, of a layout whose
/// gradient is offloaded. `first` counts from the shard.
struct NormPiece {
  int32_t layout = 0;
  int64_t first = 0, elements = 0;
  size_t slot = 0; ///< of CudaOffload
  NormLayout table;
};

class CudaUpdate {
public:
  /// `offload` is null if nothing is offloaded.
  CudaUpdate(CudaContext &context, CudaMemory &memory, CudaOffload *offload)
      : context(context), memory(memory), offload(offload) {}

  /// Bytes of a report, and pinned bytes of numbers and reports.
  static int64_t reportBytes(const Manifest &manifest, int64_t accumulate);
  static int64_t pinnedBytes(const Manifest &manifest, int64_t accumulate);

  /// Bytes of device memory for the buffers that a step may have to leave as
  /// they were.
  static int64_t keptBytes(const Manifest &manifest);

  /// Makes the tables, which must not move: call it once. The rank's memory
  /// must have been allocated.
  Status prepare(fsdpc_rank &rank);
  bool isPrepared() const { return numbers != nullptr; }

  /// Enqueues the copy of the step's numbers, before its first microbatch, on
  /// stream COMPUTE. The update of the step before has been enqueued.
  void sendNumbers(const fsdpc_rank &rank, int64_t step);
  /// Enqueues that gradients with replaced elements are counted from 0 again,
  /// before the step's first microbatch.
  void clearZeroed(const fsdpc_rank &rank);
  /// Enqueues a copy of the loss's scale to where the microbatch reads it.
  void setLossScale(const fsdpc_rank &rank);
  /// If steps may be left out, enqueues a copy of the model's buffers as they
  /// are before a step; and, after its update, puts them back if it is left
  /// out.
  void keepBuffers() { copyBuffers(nullptr); }
  void restoreBuffers() { copyBuffers(&report->failed); }
  /// Enqueues the copy of the step's report to the host, after all of its work.
  void sendReport(int64_t step);
  /// Waits for the report of `step` and reads it. Ends the job if the norm is
  /// not finite, unless such steps are skipped.
  void awaitReport(fsdpc_rank &rank, int64_t step, StepResults &results);

  /// These implement calls of the C ABI (fsdpc.h), on stream COMPUTE.
  void reportLoss(fsdpc_rank &rank, const void *loss, const void *valid);
  void reportOutput(fsdpc_rank &rank, int32_t index, const void *value);
  void reportZeroed(const void *zeroed);
  void sumSquares(const fsdpc_rank &rank, int count, const int32_t *layouts,
                  void *sums);
  void clip(fsdpc_rank &rank, int count, const int32_t *layouts,
            const void *sums, double maxNorm, void *scale);

  /// Sums of each member of a layout: `launch(operands, blocks)` enqueues the
  /// kernel on segments of which the operands have the table, the rates, and
  /// room for what it writes. Writes the digits of perMember sums per member.
  /// `factors` are the layout's, or null.
  using Launch = std::function<void(OptimizerOperands &, int64_t blocks)>;
  void sumMembers(const fsdpc_rank &rank, int32_t layout, const void *scale,
                  int32_t perMember, const double *factors, double *digits,
                  const Launch &launch);
  /// Runs a layout's optimizer in the same way, on all of this rank's part.
  /// `sums` are those of all ranks, or null.
  void optimize(const fsdpc_rank &rank, int32_t layout, const void *scale,
                int32_t perMember, const void *sums, const double *factors,
                const void *updates, const void *gradient,
                const Launch &launch);

  /// The averages of squares along rows and columns (factors.cpp).
  void sumFactors(const fsdpc_rank &rank, int count, const int32_t *layouts,
                  const void *scale, double clipValue, double *sums);
  void updateFactors(const fsdpc_rank &rank, int count, const int32_t *layouts,
                     const double *sums, double eps, double power,
                     double *factors);
  /// This rank's part of the updates of matrices (momentum.cpp), and memory for
  /// the digits of a matrix's norm.
  void momentumUpdates(const fsdpc_rank &rank, int32_t layout,
                       const void *scale, const MomentumStep &step,
                       void *updates);
  double *normOfMatrix() const { return matrixDigits; }
  /// The rows and columns of a layout's members.
  int64_t factorCount(int32_t layout) const {
    return optimizers[size_t(layout)].factorCount;
  }

private:
  /// Segments that one launch covers, and the elements of the part in which
  /// they lie, in whole groups: what has to be brought of an offloaded layout.
  struct Round {
    int64_t firstSegment = 0, segments = 0, firstElement = 0, elements = 0;
  };
  /// Segments in device memory, and the launches in which they are covered.
  struct Segments {
    UpdateSegment *table = nullptr;
    std::vector<Round> rounds;
  };
  struct Optimizer {
    Segments updates;
    /// The segments of what the rank answers for, by which it takes sums and
    /// momenta, and the index of each member's first one, for sums.
    Segments sums;
    int64_t *firsts = nullptr;
    /// Indices among the members of all trainable layouts, and of those without
    /// a master.
    int64_t firstMember = 0, firstKey = 0;
    /// The members' factors in device memory, null without any; how many blocks
    /// sum them, their rows and columns, the numbers that ranks add up, and
    /// matrices with rows.
    FactorMember *factors = nullptr;
    int64_t factorTasks = 0, factorCount = 0, factorSums = 0, matrices = 0;
    /// Where the updates of each matrix lie, from the part's element 0 on; null
    /// unless the optimizer takes updates of matrices.
    int64_t *places = nullptr;
  };
  /// Numbers are words of eight bytes: the factor of gradients (f64), the
  /// loss's scale (f32), four per member (rates), and four per member that is
  /// rounded (keys).
  static constexpr int64_t stepWords = 2;
  uint64_t *writeNumbers(const fsdpc_rank &rank, const StepNumbers &from,
                         uint64_t *to) const;

  void addNormPiece(int32_t layout, int64_t first, int64_t elements);
  Result<NormLayout> normOf(const fsdpc_rank &rank, size_t layout);
  /// Sums the segments of a layout whose gradient is offloaded, piece by piece.
  void sumPieces(const fsdpc_rank &rank, int32_t layout);
  Result<Optimizer> optimizerOf(const fsdpc_rank &rank, size_t layout);
  Status addSums(const fsdpc_rank &rank, size_t layout, Optimizer &optimizer);
  Status addFactors(const fsdpc_rank &rank, size_t layout,
                    Optimizer &optimizer);
  Status addMatrices(const fsdpc_rank &rank, size_t layout,
                     Optimizer &optimizer);
  Status takeSums();
  /// The segments of what the rank answers for in sums, and of what it updates.
  static std::vector<UpdateSegment> ownSegments(const fsdpc_rank &rank,
                                                size_t layout);
  static std::vector<UpdateSegment> updatedSegments(const fsdpc_rank &rank,
                                                    size_t layout);
  /// Cuts segments of a layout into rounds of at most `most` segments, and of
  /// as many elements as there is room for: if the layout is offloaded, and if
  /// the kernel takes a number for each element.
  Status setSegments(const Layout &layout,
                     const std::vector<UpdateSegment> &segments, int64_t most,
                     bool takesNumbers, Segments &to);
  /// Rounds sums over all ranks, and returns where the next optimizer finds
  /// them.
  double *roundSums(const fsdpc_rank &rank, int32_t layout, int32_t perMember,
                    const void *digits);
  /// Write the numbers of a round's elements: averages of squares, or updates.
  void multiplyFactors(const Optimizer &optimizer, const Segments &segments,
                       const Round &round, const double *factors);
  void placeUpdates(const Optimizer &optimizer, const Round &round,
                    const void *updates);
  /// Sets the operand of an element's number. The kernel counts elements from
  /// the part's begin; the address may lie outside of the block.
  void setNumbers(OptimizerOperands &operands, const Round &round) const {
    operands.list[numberOperand] =
        reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(elementNumbers) -
                                 uintptr_t(round.firstElement) * sizeof(float));
  }
  /// The double[4] of a layout's members, and the int64[4] of those without a
  /// master (fsdpc.h).
  uint64_t *rates(const Optimizer &optimizer) const {
    return numbers + stepWords + 4 * optimizer.firstMember;
  }
  uint64_t *keys(const Optimizer &optimizer) const {
    return numbers + stepWords + 4 * (members + optimizer.firstKey);
  }
  /// Returns the kernel's arguments for a row of the report.
  ReportLoss rowOf(const fsdpc_rank &rank, const void *value, size_t row) const;
  Status keep(const fsdpc_rank &rank);
  void copyBuffers(const int64_t *failed);
  /// CudaMemory::uploadTable.
  template <typename T, typename Pointer>
  Status upload(const std::vector<T> &values, Pointer &table) {
    return memory.uploadTable(values, table);
  }

  CudaContext &context;
  CudaMemory &memory;
  CudaOffload *offload;
  /// One per layout, indexed as the manifest's layouts.
  NormLayout *norms =
      nullptr; ///< in device memory, with those of pieces behind
  std::vector<NormPiece> normPieces;
  int64_t mostSegments = 0; ///< of a layout
  std::vector<Optimizer> optimizers;
  /// Sums of groups, of segments and of members, which layouts use one after
  /// the other. In device memory; with their numbers.
  double *groupSums = nullptr, *memberSums = nullptr;
  SquareSum *segmentSums = nullptr;
  float *elementNumbers = nullptr; ///< of a round's elements
  double *matrixDigits = nullptr;
  int64_t groupCount = 0, segmentCount = 0, memberCount = 0, elementCount = 0,
          digitCount = 0;
  int64_t numberCount = 0; ///< of a step
  int64_t members = 0, keyed = 0;
  /// In device memory. If steps may be skipped, `offered` holds two sets of
  /// numbers: for a previous step that was taken, and for one that was skipped.
  /// A kernel chooses between them.
  uint64_t *numbers = nullptr, *offered = nullptr;
  std::array<uint64_t *, 2> pinnedNumbers{}; ///< of even and odd steps
  int64_t accumulate = 0;                    ///< microbatches per step
  int64_t bytesOfReport = 0;                 ///< reportBytes() of this run
  /// In device memory, of that many bytes.
  DeviceReport *report = nullptr;
  std::array<char *, 2> pinnedReports{};
  /// Recorded after the report of an even or odd step has been copied.
  std::array<std::unique_ptr<OwnedEvent>, 2> reported;
  std::vector<int32_t> clipped; ///< layouts of the last clip
  /// Buffers and their copies, in device memory; empty unless steps may be left
  /// out.
  KeptBuffer *kept = nullptr;
  int64_t keptCount = 0, longestKept = 0;
};

} // namespace fsdpc::runtime
