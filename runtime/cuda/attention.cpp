// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention by cuDNN or by products. By products, a chunk of heads runs at a
// time, so that the scores, which take queries × keys per head, stay within a
// bound. The products of a chunk cover all of its heads, except those that sum
// dkey and dvalue over the query heads of a key head: these run head by head,
// in order.
//
// dkey and dvalue of several heads are summed in f32 and rounded once.
#include "runtime/cuda/attention.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/core/plan_checks.h"
#include "runtime/numeric/reduce.h"
#include "runtime/support/concat.h"

#include <algorithm>

namespace fsdpc::runtime {

// Written out because the library's plan has one owner: the moved-from object
// must not destroy it.
GpuAttention::GpuAttention(GpuAttention &&other)
    : context(other.context), p(other.p),
      library(std::exchange(other.library, nullptr)), chunk(other.chunk),
      element(other.element), sumsApart(other.sumsApart), scores(other.scores),
      output(other.output), dweights(other.dweights), dquery(other.dquery),
      dkey(other.dkey), dvalue(other.dvalue) {}

GpuAttention::~GpuAttention() {
  if (library)
    context.api.destroyAttention(library);
}

Result<std::string> GpuAttention::plan(const AttentionPlan &plan,
                                       Products &products, bool deterministic,
                                       int64_t workspaceBytes) {
  p = plan;
  FSDPC_TRY(checkAttention(p));
  element = dtypeBytes(p.dtype);
  std::string why = "as compiled";
  // Any failure of the library, also its asking for more memory than the plan
  // reserved for it, falls back to products. The reason goes to the log.
  if (p.library != "products") {
    CudaChoice chosen;
    CudaStatus status =
        context.api.planAttention(p, deterministic, library, chosen);
    if (status != cudaOk) {
      library = nullptr;
      why = refusal(context, status, chosen);
    } else if (int64_t(chosen.workspaceBytes) > workspaceBytes) {
      context.api.destroyAttention(library);
      library = nullptr;
      why = concat("cuDNN asks for ", chosen.workspaceBytes,
                   " bytes of workspace");
    } else {
      return chosen.algorithm;
    }
  }
  chunk = attentionChunk(p);
  FSDPC_TRY(planProducts(products));
  return concat("by products, ", chunk.heads(), " heads at a time; ", why);
}

namespace {

// The plans of a chunk's products. Their batch axes are: batch entry, key head,
// query head among those that share it. Scores and weights of a chunk are
// dense: queries × keys per head.
struct ChunkProducts {
  const AttentionPlan &p;
  const AttentionChunk &chunk;

  // A plan over all heads of a chunk, still without strides.
  MatmulPlan shapeOf(int64_t m, int64_t n, int64_t k) const {
    MatmulPlan plan;
    plan.batch = {chunk.batches, chunk.groups, chunk.shared};
    plan.m = m, plan.n = n, plan.k = k;
    plan.dtypeA = plan.dtypeB = plan.dtypeC = p.dtype;
    return plan;
  }
  // Strides of (batch entry, key head, query head). Query heads that share a
  // key head are adjacent, so a key head is heads / groups query heads wide.
  std::vector<int64_t> ofHeads(const std::vector<int64_t> &strides) const {
    return {strides[0], p.heads / p.groups * strides[1], strides[1]};
  }
  // The stride of 0 gives all query heads of a group the same key head.
  std::vector<int64_t> ofKeys(const std::vector<int64_t> &strides) const {
    return {strides[0], strides[1], 0};
  }
  // Strides of scores and weights in the scratch.
  std::vector<int64_t> dense() const {
    int64_t cells = p.queries * p.keys;
    return {chunk.groups * chunk.shared * cells, chunk.shared * cells, cells};
  }

  // A tensor's rows times the keys' rows, transposed: f32, queries × keys.
  MatmulPlan byKeys(const std::vector<int64_t> &rows,
                    const std::vector<int64_t> &keys, int64_t width) const {
    MatmulPlan plan = shapeOf(p.queries, p.keys, width);
    plan.strideA = ofHeads(rows), plan.lda = rows[2];
    plan.strideB = ofKeys(keys), plan.ldb = keys[2], plan.transposeB = true;
    plan.strideC = dense(), plan.ldc = p.keys, plan.dtypeC = "f32";
    return plan;
  }
  // Weights times the keys' rows.
  MatmulPlan ofWeights(const std::vector<int64_t> &keys,
                       const std::vector<int64_t> &rows, int64_t width) const {
    MatmulPlan plan = shapeOf(p.queries, width, p.keys);
    plan.strideA = dense(), plan.lda = p.keys;
    plan.strideB = ofKeys(keys), plan.ldb = keys[2];
    plan.strideC = ofHeads(rows), plan.ldc = rows[2];
    return plan;
  }
  // Transposed weights times a tensor's rows, for one query head of each key
  // head. `apart` is for sums in f32 scratch.
  MatmulPlan toKeys(const std::vector<int64_t> &rows,
                    const std::vector<int64_t> &keys, int64_t width, bool add,
                    bool apart) const {
    MatmulPlan plan = shapeOf(p.keys, width, p.queries);
    // A batch over the query heads would write the same rows of dkey several
    // times. They run one after the other instead, and accumulate.
    plan.batch[2] = 1;
    plan.strideA = dense(), plan.lda = p.keys, plan.transposeA = true;
    plan.strideB = ofHeads(rows), plan.ldb = rows[2];
    if (apart) {
      plan.strideC = {chunk.groups * p.keys * width, p.keys * width, 0};
      plan.ldc = width, plan.dtypeC = "f32";
    } else {
      plan.strideC = ofKeys(keys), plan.ldc = keys[2];
    }
    plan.accumulate = add;
    return plan;
  }
};

} // namespace

// Plans the products of one chunk. All chunks have the same shape, because a
// chunk divides the heads evenly (attentionChunk).
Status GpuAttention::planProducts(Products &products) {
  bool isShared = p.heads != p.groups;
  // An f32 result can accumulate in place. A 16-bit one would be rounded
  // after every head.
  sumsApart = p.backward && element != 4 && isShared;
  ChunkProducts plans = {p, chunk};
  auto make = [&](Product &product, const MatmulPlan &plan) -> Status {
    Result<Product> made = products.plan(plan);
    FSDPC_TRY(made);
    product = std::move(*made);
    return {};
  };
  FSDPC_TRY(make(scores, plans.byKeys(p.strideQuery, p.strideKey, p.width)));
  if (!p.backward)
    return make(output,
                plans.ofWeights(p.strideValue, p.strideOutput, p.valueWidth));
  FSDPC_TRY(
      make(dweights, plans.byKeys(p.strideGrad, p.strideValue, p.valueWidth)));
  FSDPC_TRY(
      make(dquery, plans.ofWeights(p.strideKey, p.strideDQuery, p.width)));
  // The first query head of a group overwrites, the others add.
  for (bool add : {false, true}) {
    if (add && !isShared)
      continue;
    FSDPC_TRY(make(dkey[add], plans.toKeys(p.strideQuery, p.strideDKey, p.width,
                                           add, sumsApart)));
    FSDPC_TRY(make(dvalue[add], plans.toKeys(p.strideGrad, p.strideDValue,
                                             p.valueWidth, add, sumsApart)));
  }
  return {};
}

// Returns the byte offset of a chunk's first head in a tensor.
int64_t GpuAttention::offset(const std::vector<int64_t> &strides,
                             const Heads &heads, bool ofKeys) const {
  int64_t head =
      ofKeys ? heads.group : heads.group * (p.heads / p.groups) + heads.shared;
  return (heads.batch * strides[0] + head * strides[1]) * element;
}

// Arguments of the row kernel for one chunk.
SoftmaxRows GpuAttention::rowsOf(const void *const *operands, char *scratch,
                                 const Heads &heads) const {
  SoftmaxRows rows;
  rows.scores = reinterpret_cast<float *>(scratch);
  rows.weights = scratch + chunk.weights;
  rows.lse = static_cast<float *>(const_cast<void *>(operands[5]));
  rows.mask = operands[p.backward ? 6 : 3];
  if (!p.dtypeMask.empty()) {
    std::copy(p.strideMask.begin(), p.strideMask.end(), rows.maskStrides);
    rows.maskType = p.dtypeMask == "i1" ? MaskType::keep : MaskType::added;
    rows.addedType = wireType(p.dtypeMask);
  }
  rows.type = wireType(p.dtype);
  rows.causal = p.causal;
  rows.scale = float(p.scale);
  rows.headsOfBatch = p.heads;
  rows.firstHead =
      heads.batch * p.heads + heads.group * (p.heads / p.groups) + heads.shared;
  rows.heads = chunk.heads();
  rows.queries = p.queries, rows.keys = p.keys;
  return rows;
}

// The backward pass of one chunk, after its scores. Cotangents of queries are
// complete per chunk; those of keys and values are summed over the query heads
// that share them, which may span chunks.
void GpuAttention::runGradients(const void *const *operands, char *workspace,
                                const Heads &heads) const {
  char *scratch = workspace + libraryWorkspaceBytes;
  char *dscores = scratch + chunk.dscores;
  auto at = [&](int operand, const std::vector<int64_t> &strides,
                const Heads &from, bool ofKeys) {
    return static_cast<char *>(const_cast<void *>(operands[operand])) +
           offset(strides, from, ofKeys);
  };
  dweights.run(context,
               {at(0, p.strideGrad, heads, false),
                at(3, p.strideValue, heads, true), scratch + chunk.dweights},
               workspace);
  SoftmaxGradRows rows;
  rows.rows = rowsOf(operands, scratch, heads);
  rows.dweights = reinterpret_cast<float *>(scratch + chunk.dweights);
  rows.dscores = dscores;
  rows.grad = operands[0], rows.output = operands[4];
  std::copy(p.strideGrad.begin(), p.strideGrad.end(), rows.gradStrides);
  std::copy(p.strideOutput.begin(), p.strideOutput.end(), rows.outputStrides);
  rows.valueWidth = p.valueWidth;
  context.launchBlocks(rows, chunk.heads() * p.queries, FSDPC_STREAM_COMPUTE);
  dquery.run(context,
             {dscores, at(2, p.strideKey, heads, true),
              at(7, p.strideDQuery, heads, false)},
             workspace);

  // `cells` is the bytes of one head of weights or dscores.
  int64_t shared = p.heads / p.groups, cells = p.queries * p.keys * element;
  void *dkeys =
      sumsApart ? scratch + chunk.dkey : at(8, p.strideDKey, heads, true);
  void *dvalues =
      sumsApart ? scratch + chunk.dvalue : at(9, p.strideDValue, heads, true);
  for (int64_t j = 0; j < chunk.shared; ++j) {
    Heads head = {heads.batch, heads.group, heads.shared + j};
    // Counted over the whole group, not over the chunk: the sums continue in
    // the next chunk.
    bool add = head.shared > 0;
    dvalue[add].run(context,
                    {scratch + chunk.weights + j * cells,
                     at(0, p.strideGrad, head, false), dvalues},
                    workspace);
    dkey[add].run(
        context,
        {dscores + j * cells, at(1, p.strideQuery, head, false), dkeys},
        workspace);
  }
  // The sums of a group are complete only with its last chunk.
  if (!sumsApart || heads.shared + chunk.shared < shared)
    return;
  auto store = [&](void *from, int operand, const std::vector<int64_t> &strides,
                   int64_t width) {
    StoreRows s;
    s.from = static_cast<float *>(from);
    s.to = const_cast<void *>(operands[operand]);
    s.type = wireType(p.dtype);
    std::copy(strides.begin(), strides.end(), s.strides);
    s.headsOfBatch = p.groups;
    s.firstHead = heads.batch * p.groups + heads.group;
    s.heads = chunk.batches * chunk.groups;
    s.rows = p.keys, s.width = width;
    context.launch(s, s.heads * s.rows * s.width, FSDPC_STREAM_COMPUTE);
  };
  store(dkeys, 8, p.strideDKey, p.width);
  store(dvalues, 9, p.strideDValue, p.valueWidth);
}

// Scores, softmax and the weighted sum of one chunk; backward, its gradients.
void GpuAttention::runChunk(const void *const *operands, char *workspace,
                            const Heads &heads) const {
  char *scratch = workspace + libraryWorkspaceBytes;
  int first = p.backward ? 1 : 0; // the query; key and value follow it
  auto from = [&](int operand) {
    return static_cast<const char *>(operands[operand]);
  };
  scores.run(context,
             {from(first) + offset(p.strideQuery, heads, false),
              from(first + 1) + offset(p.strideKey, heads, true), scratch},
             workspace);
  if (p.backward)
    return runGradients(operands, workspace, heads);
  context.launchBlocks(rowsOf(operands, scratch, heads),
                       chunk.heads() * p.queries, FSDPC_STREAM_COMPUTE);
  output.run(
      context,
      {scratch + chunk.weights, from(2) + offset(p.strideValue, heads, true),
       const_cast<char *>(from(4)) + offset(p.strideOutput, heads, false)},
      workspace);
}

void GpuAttention::run(const void *const *operands, char *workspace) const {
  if (library) {
    context.check(context.api.attention(library, operands, workspace,
                                        context.streams[FSDPC_STREAM_COMPUTE]));
    return;
  }
  for (int64_t b = 0; b < p.batch; b += chunk.batches)
    for (int64_t g = 0; g < p.groups; g += chunk.groups)
      for (int64_t j = 0; j < p.heads / p.groups; j += chunk.shared)
        runChunk(operands, workspace, {b, g, j});
}

} // namespace fsdpc::runtime
