// The update's data on the device, in addition to the rank's own memory: tables
// of the segments of norm and optimizer, made once; the step's numbers, which
// are the scale, the rates and the keys; and the report that it leaves for the
// host.
#pragma once

#include "runtime/core/rank.h"
#include "runtime/cuda/memory.h"

#include <functional>

namespace fsdpc::runtime {

// The head of a step's report on the device. The losses and their divisors
// follow it.
struct DeviceReport {
  double norm = 0;
  // Index in the last clip's list of the first sum that is not finite; the
  // length of the list if only a loss is not; -1 if the step counts.
  int64_t failed = -1;
};

class CudaUpdate {
public:
  CudaUpdate(CudaContext &context, CudaMemory &memory)
      : context(context), memory(memory) {}

  // Bytes of a report, and pinned bytes of numbers and reports.
  static int64_t reportBytes(const Manifest &manifest, int64_t accumulate);
  static int64_t pinnedBytes(const Manifest &manifest, int64_t accumulate);

  // Bytes of device memory for the buffers that a step may have to leave as
  // they were.
  static int64_t keptBytes(const Manifest &manifest);

  // Makes the tables, which must not move: call it once. The rank's memory must
  // have been allocated.
  Status prepare(fsdpc_rank &rank);
  bool isPrepared() const { return numbers != nullptr; }

  // Enqueues the copy of the step's numbers, before its first microbatch, on
  // stream COMPUTE. The update of the step before has been enqueued.
  void sendNumbers(const fsdpc_rank &rank, int64_t step);
  // Enqueues a copy of the loss's scale to where the microbatch reads it.
  void setLossScale(const fsdpc_rank &rank);
  // If steps may be left out, enqueues a copy of the model's buffers as they
  // are before a step; and, after its update, puts them back if it is left out.
  void keepBuffers() { copyBuffers(nullptr); }
  void restoreBuffers() { copyBuffers(&report->failed); }
  // Enqueues the copy of the step's report to the host, after all of its work.
  void sendReport(int64_t step);
  // Waits for the report of `step` and reads it. Ends the job if the norm is
  // not finite, unless such steps are skipped.
  void awaitReport(fsdpc_rank &rank, int64_t step, StepResults &results);

  // These implement calls of the C ABI (fsdpc.h), on stream COMPUTE.
  void reportLoss(fsdpc_rank &rank, const void *loss, const void *valid);
  void reportOutput(fsdpc_rank &rank, int32_t index, const void *value);
  void sumSquares(const fsdpc_rank &rank, int count, const int32_t *layouts,
                  void *sums);
  void clip(fsdpc_rank &rank, int count, const int32_t *layouts,
            const void *sums, double maxNorm, void *scale);

  // Sums of each member of a layout: `launch(operands, blocks)` enqueues the
  // kernel on segments of which the operands have the table, the rates, and
  // room for what it writes. Writes the digits of perMember sums per member.
  using Launch = std::function<void(OptimizerOperands &, int64_t blocks)>;
  void sumMembers(const fsdpc_rank &rank, int32_t layout, const void *scale,
                  int32_t perMember, double *digits, const Launch &launch);
  // Enqueues the rounding of those sums over all ranks, and returns where the
  // next optimizer finds them.
  double *roundSums(const fsdpc_rank &rank, int32_t layout, int32_t perMember,
                    const void *digits);

  // The optimizer kernel's number of blocks, its last two operands, and the
  // keys of a layout without a master (fsdpc.h).
  int64_t segments(int32_t layout) const {
    return optimizers[size_t(layout)].segments;
  }
  void *segmentTable(int32_t layout) const {
    return optimizers[size_t(layout)].table;
  }
  void *rates(int32_t layout) const {
    return numbers + stepWords + 4 * optimizers[size_t(layout)].firstMember;
  }
  void *keys(int32_t layout) const {
    return numbers + stepWords +
           4 * (members + optimizers[size_t(layout)].firstKey);
  }

private:
  struct Optimizer {
    int64_t segments = 0;
    void *table = nullptr;
    // The segments in which the rank sums its own elements, and the index of
    // each member's first one; null unless the optimizer takes sums.
    UpdateSegment *sumSegments = nullptr;
    int64_t *firsts = nullptr;
    int64_t sumCount = 0;
    // Indices among the members of all trainable layouts, and of those without
    // a master.
    int64_t firstMember = 0, firstKey = 0;
  };
  // Numbers are words of eight bytes: the factor of gradients (f64), the loss's
  // scale (f32), four per member (rates), and four per member that is rounded
  // (keys).
  static constexpr int64_t stepWords = 2;
  uint64_t *writeNumbers(const fsdpc_rank &rank, const StepNumbers &from,
                         uint64_t *to) const;

  Result<NormLayout> normOf(const fsdpc_rank &rank, size_t layout);
  Result<Optimizer> optimizerOf(const fsdpc_rank &rank, size_t layout);
  Status addSums(const fsdpc_rank &rank, size_t layout, Optimizer &optimizer);
  Status takeSums();
  // Returns the kernel's arguments for a row of the report.
  ReportLoss rowOf(const fsdpc_rank &rank, const void *value, size_t row) const;
  Status keep(const fsdpc_rank &rank);
  void copyBuffers(const int64_t *failed);
  // CudaMemory::uploadTable.
  template <typename T, typename Pointer>
  Status upload(const std::vector<T> &values, Pointer &table) {
    return memory.uploadTable(values, table);
  }

  CudaContext &context;
  CudaMemory &memory;
  // One per layout, indexed as the manifest's layouts.
  NormLayout *norms = nullptr; // in device memory
  int64_t mostSegments = 0;    // of a layout
  std::vector<Optimizer> optimizers;
  // Sums of groups, of segments and of members, which layouts use one after the
  // other. In device memory; with their numbers.
  double *groupSums = nullptr, *memberSums = nullptr;
  SquareSum *segmentSums = nullptr;
  int64_t groupCount = 0, segmentCount = 0, memberCount = 0;
  int64_t numberCount = 0; // of a step
  int64_t members = 0, keyed = 0;
  // In device memory. If steps may be skipped, `offered` has the numbers for
  // both ends of the step before, of which a kernel takes one.
  uint64_t *numbers = nullptr, *offered = nullptr;
  std::array<uint64_t *, 2> pinnedNumbers{}; // of even and odd steps
  int64_t accumulate = 0;                    // microbatches per step
  int64_t bytesOfReport = 0;                 // reportBytes() of this run
  // In device memory, of that many bytes.
  DeviceReport *report = nullptr;
  std::array<char *, 2> pinnedReports{};
  // Recorded after the report of an even or odd step has been copied.
  std::array<std::unique_ptr<OwnedEvent>, 2> reported;
  std::vector<int32_t> clipped; // layouts of the last clip
  // Buffers and their copies, in device memory; empty unless steps may be left
  // out.
  KeptBuffer *kept = nullptr;
  int64_t keptCount = 0, longestKept = 0;
};

} // namespace fsdpc::runtime
