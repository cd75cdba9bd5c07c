// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Averages of squares along rows and columns on a GPU
// (kernels/factors.h). Averages of elements, which follow from them, exist for
// a round of segments at a time.
#include "runtime/abi/cuda_scratch.h"
#include "runtime/core/factor_averages.h"
#include "runtime/cuda/update.h"

#include <algorithm>
#include <limits>

namespace fsdpc::runtime {

static_assert(sizeof(FactorMember) <= factorMemberBytes);

Status CudaUpdate::addFactors(const fsdpc_rank &rank, size_t index,
                              Optimizer &optimizer) {
  const Layout &layout = rank.manifest.layouts[index];
  const LayoutBuffers &buffers = rank.layouts[index];
  if (buffers.factors.empty())
    return {};
  if (!layout.factored)
    return inputError("optimizer '" + layout.optimizer + "' of layout '" +
                      layout.name +
                      "' has factors, for which no memory is planned");
  std::vector<FactorMember> own(buffers.factors.size());
  for (size_t i = 0; i < own.size(); ++i) {
    const MemberFactors &from = buffers.factors[i];
    FactorMember &m = own[i];
    static_cast<FactorAverages &>(m) = averagesOf(from);
    m.offset = layout.members[i].offset - buffers.partBegin;
    m.firstTask = optimizer.factorTasks;
    m.firstMatrix = optimizer.matrices;
    optimizer.factorTasks += factorTasks(m);
    optimizer.matrices += m.factored ? m.matrices : 0;
    optimizer.factorCount += from.shape.count();
    optimizer.factorSums += from.shape.sumCount();
  }
  return upload(own, optimizer.factors);
}

// An offloaded gradient comes in pieces, which add to the sums of those before.
// The first launch also writes 0 where this rank has nothing.
void CudaUpdate::sumFactors(const fsdpc_rank &rank, int count,
                            const int32_t *layouts, const void *scale,
                            double clipValue, double *sums) {
  for (int i = 0; i < count; ++i) {
    const Optimizer &optimizer = optimizers[size_t(layouts[i])];
    const Layout &layout = rank.manifest.layouts[size_t(layouts[i])];
    const LayoutBuffers &buffers = rank.layouts[size_t(layouts[i])];
    OptimizerOperands operands = memberSumOperands(rank, layouts[i], scale);
    SumFactors sum;
    sum.members = optimizer.factors;
    sum.count = int64_t(layout.members.size());
    sum.tasks = optimizer.factorTasks;
    sum.scale = static_cast<const float *>(scale);
    sum.limit = clipValue > 0 ? float(clipValue)
                              : std::numeric_limits<float>::infinity();
    sum.sums = sums;
    sum.begin = buffers.ownOf(rank.job.rank) - buffers.partBegin;
    int64_t last = sum.begin + buffers.own;
    bool isOffloaded = layout.gradientOffloaded && buffers.own > 0;
    int64_t piece = isOffloaded ? offloadPieceElements : buffers.own;
    size_t slot = 0;
    do {
      sum.end = std::min(sum.begin + piece, last);
      void *gradient = operands.list[1];
      if (isOffloaded) {
        PieceOperand operand{&gradient, sizeof(float)};
        offload->bring({&operand, 1}, sum.begin, sum.end - sum.begin,
                       slot = 1 - slot);
      }
      sum.gradient = static_cast<const float *>(gradient);
      context.launchBlocks(sum, sum.tasks, FSDPC_STREAM_COMPUTE);
      if (isOffloaded)
        offload->takeBack();
      sum.begin = sum.end;
      sum.adds = true;
    } while (sum.begin < last);
    sums += optimizer.factorSums;
  }
}

// All ranks have the same sums and keep all averages, so all update them alike.
void CudaUpdate::updateFactors(const fsdpc_rank &rank, int count,
                               const int32_t *layouts, const double *sums,
                               double eps, double power, double *factors) {
  for (int i = 0; i < count; ++i) {
    const Optimizer &optimizer = optimizers[size_t(layouts[i])];
    UpdateFactors update;
    update.members = optimizer.factors;
    update.count =
        int64_t(rank.manifest.layouts[size_t(layouts[i])].members.size());
    update.numbers = optimizer.factorCount;
    update.sums = sums;
    update.rates = reinterpret_cast<const double *>(rates(optimizer));
    update.power = power;
    update.factors = factors;
    update.failed = &report->failed;
    context.launch(update, update.numbers, FSDPC_STREAM_COMPUTE);
    ScaleRows scale;
    scale.members = optimizer.factors;
    scale.count = update.count;
    scale.matrices = optimizer.matrices;
    scale.eps = eps;
    scale.factors = factors;
    context.launchBlocks(scale, scale.matrices, FSDPC_STREAM_COMPUTE);
    sums += optimizer.factorSums;
    factors += optimizer.factorCount;
  }
}

void CudaUpdate::multiplyFactors(const Optimizer &optimizer,
                                 const Segments &segments, const Round &round,
                                 const double *factors) {
  MultiplyFactors multiply;
  multiply.segments = segments.table + round.firstSegment;
  multiply.count = round.segments;
  multiply.first = round.firstElement;
  multiply.members = optimizer.factors;
  multiply.factors = factors;
  multiply.values = elementNumbers;
  context.launchBlocks(multiply, multiply.count, FSDPC_STREAM_COMPUTE);
}

} // namespace fsdpc::runtime
