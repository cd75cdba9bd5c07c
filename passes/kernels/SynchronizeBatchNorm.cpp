// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// synchronize-batch-norm: takes the statistics of batch norms over the
// microbatches of all ranks, in the forward and in the backward, as PyTorch's
// SyncBatchNorm does. A norm becomes two parts with a sum over ranks between
// them.
//
// The sums are f64, where the variance may be computed as E[x²] - E[x]²: each
// rank's own variance is computed from centred values in f32, and what E[x]²
// cancels is far below its rounding.
#include "passes/kernels/Inherit.h"
#include "passes/kernels/Passes.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/RunningStatistics.h"
#include "compiler/dialects/nn/DecomposeBatchNorm.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/NormOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_SYNCHRONIZEBATCHNORM
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// The means over ranks of two vectors of channels in f64, and the number of
// ranks.
struct RankMeans {
  Value first, second, ranks;
};

// Sums the values, and a 1 of each rank: the number of ranks is not known
// before the program runs.
RankMeans meansOverRanks(OpBuilder &builder, nn::DecomposeBuilder &b,
                         Value first, Value second) {
  Location loc = first.getLoc();
  RankedTensorType type = nn::tensorType(first);
  int64_t channels = type.getNumElements();
  Value one = b.constant(type.clone({1}), 1);
  RankedTensorType packed = type.clone({2 * channels + 1});
  Value values = nn::ConcatOp::create(builder, loc, packed,
                                      ValueRange{first, second, one}, 0);
  Value sums = fsdp::AllReduceOp::create(builder, loc, packed, values);
  auto part = [&](int64_t begin, int64_t count) -> Value {
    return nn::SliceOp::create(builder, loc, type.clone({count}), sums,
                               ArrayRef<int64_t>{begin}, ArrayRef<int64_t>{1});
  };
  Value ranks = b.broadcast(part(2 * channels, 1), channels);
  return {b.div(part(0, channels), ranks),
          b.div(part(channels, channels), ranks), ranks};
}

// Returns a statistic per channel as a vector in f64.
Value widen(nn::DecomposeBuilder &b, OpBuilder &builder, Value statistic) {
  return b.cast(
      b.reshape(statistic, nn::tensorType(statistic).getNumElements()),
      builder.getF64Type());
}

// Updates the running statistics from those of all ranks, which are equal on
// every rank and count once. As in PyTorch the running variance is unbiased,
// for the number of elements on all ranks; `count` is the number on one rank.
void updateRunning(nn::DecomposeBuilder &b, nn::BatchNormOp op, Value mean,
                   Value variance, Value ranks, int64_t count) {
  auto replace = [&](fsdp::UpdateStatisticsOp update, Value statistic) {
    // The norm, or the importer's factor for the elements of one rank.
    Operation *before = update.getStatistic().getDefiningOp();
    update.getStatisticMutable().assign(
        b.leave(statistic, update.getStatistic().getType()));
    update.setMode(fsdp::nameOf(fsdp::BufferMode::Local));
    if (before != op && isOpTriviallyDead(before))
      before->erase();
  };
  if (auto update = fsdp::updateOf(op.getMean()))
    replace(update, mean);
  if (auto update = fsdp::updateOf(op.getVariance())) {
    Value all = b.mul(ranks, double(count));
    // A single element has the variance 0, whatever the factor.
    Value others = b.binary<nn::MaximumOp>(b.add(all, -1), b.constant(all, 1));
    replace(update, b.mul(variance, b.div(all, others)));
  }
}

void synchronize(nn::BatchNormOp op) {
  OpBuilder builder(op);
  nn::DecomposeBuilder b(builder, op.getLoc());
  Value x = b.enter(op.getInput());
  nn::BatchMoments own = nn::batchMoments(b, x);
  Value ownMean = widen(b, builder, own.mean);
  Value ownSquare =
      b.add(widen(b, builder, own.variance), b.mul(ownMean, ownMean));
  RankMeans all = meansOverRanks(builder, b, ownMean, ownSquare);
  Value variance = b.sub(all.second, b.mul(all.first, all.first));
  updateRunning(b, op, all.first, variance, all.ranks,
                nn::tensorType(x).getNumElements() / nn::shapeOf(x)[1]);
  Value narrowMean = b.leave(all.first, op.getMean().getType());
  Value narrowVariance = b.leave(variance, op.getVariance().getType());
  Value centred = b.sub(x, nn::channels(b, narrowMean, x));
  Value y = nn::normalised(b, op, centred, nn::channels(b, narrowVariance, x));
  op.getResult().replaceAllUsesWith(b.leave(y, op.getResult().getType()));
  op.getMean().replaceAllUsesWith(narrowMean);
  op.getVariance().replaceAllUsesWith(narrowVariance);
}

// The cotangents of weight and bias stay the rank's own, since the reduction of
// gradients sums them; that of the input takes the sums' means over ranks.
void synchronize(nn::BatchNormGradOp op) {
  OpBuilder builder(op);
  nn::DecomposeBuilder b(builder, op.getLoc());
  nn::BatchNormSums sums = nn::batchNormSums(b, op);
  RankMeans all = meansOverRanks(builder, b, widen(b, builder, sums.dbias),
                                 widen(b, builder, sums.dweight));
  auto narrow = [&](Value mean) {
    return nn::channels(b, b.leave(mean, op.getMean().getType()), sums.input);
  };
  Value dbias = narrow(all.first), dweight = narrow(all.second);
  Value dx = nn::inputCotangent(b, op, sums, dbias, dweight);
  op.getDinput().replaceAllUsesWith(b.leave(dx, op.getDinput().getType()));
  op.getDweight().replaceAllUsesWith(
      b.leave(sums.dweight, op.getDweight().getType()));
  op.getDbias().replaceAllUsesWith(
      b.leave(sums.dbias, op.getDbias().getType()));
}

template <typename OpTy> int64_t synchronizeAll(func::FuncOp function) {
  auto ops = llvm::to_vector(function.getOps<OpTy>());
  for (OpTy op : ops) {
    Operation *before = op->getPrevNode();
    synchronize(op);
    inheritAttributes(before, op);
    op->erase();
  }
  return ops.size();
}

struct SynchronizeBatchNorm
    : fsdpc::passes::impl::SynchronizeBatchNormBase<SynchronizeBatchNorm> {
  void runOnOperation() override {
    if (!fsdp::CompileOptions::of(getOperation()).syncBatchnorm)
      return markAllAnalysesPreserved();
    auto microbatch = fsdp::getMicrobatch(getOperation());
    if (failed(microbatch))
      return signalPassFailure();
    // The import has added up the statistics of two calls, with factors for the
    // elements of one rank.
    for (auto update : microbatch->getOps<fsdp::UpdateStatisticsOp>())
      if (update.getStatistic().getDefiningOp<nn::AddOp>()) {
        update.emitError("'--sync-batchnorm' is not supported for a batch norm "
                         "that the model calls twice, as that of buffer '")
            << update.getBuffer() << "'";
        return signalPassFailure();
      }
    int64_t norms = synchronizeAll<nn::BatchNormOp>(*microbatch);
    if (norms == 0) {
      getOperation().emitError("'--sync-batchnorm' has no effect: the model "
                               "has no batch norm in training mode");
      return signalPassFailure();
    }
    synchronized += norms + synchronizeAll<nn::BatchNormGradOp>(*microbatch);
  }
};

} // namespace
