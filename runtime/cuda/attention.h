// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention on a GPU. cuDNN's fused attention if the plan asks for it and the
// library takes it. Otherwise matrix products with a row softmax between them,
// for as many heads at a time as the bound on scores allows (cuda_scratch.h).
#pragma once

#include "runtime/abi/cuda_scratch.h"
#include "runtime/cuda/products.h"

namespace fsdpc::runtime {

class GpuAttention {
public:
  explicit GpuAttention(CudaContext &context) : context(context) {}
  GpuAttention(GpuAttention &&other);
  ~GpuAttention();

  /// Prepares for a plan. Returns a description of how it runs, for the log.
  /// `workspaceBytes` is the size of the memory that `run` will get. Fails if
  /// the plan cannot be run.
  Result<std::string> plan(const AttentionPlan &plan, Products &products,
                           bool deterministic, int64_t workspaceBytes);
  /// Enqueues the attention on stream COMPUTE. Operands are in the order of
  /// fsdpc_attention or fsdpc_attention_grad. `workspace` is
  /// libraryWorkspaceBytes for the products, followed by the chunk's scratch.
  void run(const void *const *operands, char *workspace) const;

private:
  Status planProducts(Products &products);
  /// The first head of a chunk: batch entry, key head, and query head among
  /// those that share the key head.
  struct Heads {
    int64_t batch, group, shared;
  };
  int64_t offset(const std::vector<int64_t> &strides, const Heads &heads,
                 bool ofKeys) const;
  /// `heads` is the first head of the chunk; the rest follows from `chunk`.
  void runChunk(const void *const *operands, char *workspace,
                const Heads &heads) const;
  SoftmaxRows rowsOf(const void *const *operands, char *scratch,
                     const Heads &heads) const;
  void runGradients(const void *const *operands, char *workspace,
                    const Heads &heads) const;

  CudaContext &context;
  AttentionPlan p;
  CudaAttention library = nullptr; ///< null: by products
  /// Heads per pass and the offsets in the scratch; unused if `library` is set.
  AttentionChunk chunk;
  int64_t element = 4; ///< bytes per element
  /// If true, dkey and dvalue are summed in f32 scratch and rounded once.
  bool sumsApart = false;
  Product scores, output;              ///< forward; backward uses `scores` too
  Product dweights, dquery;            ///< backward
  std::array<Product, 2> dkey, dvalue; ///< [0] overwrites, [1] adds
};

} // namespace fsdpc::runtime
