// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes of the phase `kernels`: after it, every op is a library call, a view or the
// launch of an outlined kernel, and has its cost; every kernel has its plan. Passes that take work out of
// kernels (into strides, products and epilogues) run before the rest is grouped.
#ifndef FSDPC_PASSES_KERNELS
#define FSDPC_PASSES_KERNELS

include "mlir/Pass/PassBase.td"

def StrideAttention : Pass<"stride-attention", "::mlir::ModuleOp"> {
  let summary = "Lets attention read its operands and write its results in place";
  let description = [{
    Projections make one row per token, attention takes one matrix per head. The pass marks
    the transposes, slices, concats and reshapes between them `nn.strided`: a marked op has
    no memory of its own, and attention's plan has strides instead. The mark "operand" says
    that the result is read from the operand's memory, "result" that the operands are
    written into the result's memory. An op is marked only if all ops that read it, or that
    make it, are attention or marked themselves; a slice only if such ops read all of the
    tensor that is sliced. On GPUs, rows whose dense form begins at multiples of 16 bytes do
    so in the other tensor too, as libraries require; otherwise they are copied.

    Before:
    ```mlir
    %h = nn.reshape %qkv : tensor<4x256x1152xf32> -> tensor<4x256x3x6x64xf32>
    %p = nn.transpose %h [2, 0, 3, 1, 4] : …
    %q = nn.slice %p [0, 0, 0, 0, 0] by [1, 1, 1, 1, 1] : …
    …
    %o, %lse = nn.attention %q0, %k0, %v0 : …
    %t = nn.transpose %o [0, 2, 1, 3] : …
    ```
    After:
    ```mlir
    %h = nn.reshape %qkv {nn.strided = "operand"} : …
    %p = nn.transpose %h [2, 0, 3, 1, 4] {nn.strided = "operand"} : …
    %q = nn.slice %p [0, 0, 0, 0, 0] by [1, 1, 1, 1, 1] {nn.strided = "operand"} : …
    …
    %o, %lse = nn.attention %q0, %k0, %v0 : …
    %t = nn.transpose %o [0, 2, 1, 3] {nn.strided = "result"} : …
    ```
  }];
}

def DecomposeLinearCrossEntropy : Pass<"decompose-linear-cross-entropy", "::mlir::ModuleOp"> {
  let summary = "Writes the loss and its gradients as products on blocks of rows";
  let description = [{
    A block of logits has about 64 MiB (256 on CUDA), but at least 128 rows. One kernel reads
    each row of a block once and writes its loss and the gradient of its logits. That
    gradient is multiplied into rows of the input's gradient and added to the weight's
    gradient, before the next block takes the same memory. On CUDA the weight's gradient is
    summed over blocks in f32 and rounded at the end; on the host in the weight's type. On CUDA,
    rows of logits are padded to multiples of 64 elements (8 where that would add more than
    an eighth): the weight by zeros, and the logits by a bias of -inf, so that the padding has
    no share in the loss and gradients of 0.

    Before:
    ```mlir
    %loss, %valid, %dx, %dw = nn.linear_cross_entropy mean %x, %w, %t {transpose_weight} : tensor<1024x384xf32>, tensor<50257x384xf32>, …
    ```
    After, for each block:
    ```mlir
    %x1 = nn.slice %x [128, 0] by [1, 1] : tensor<1024x384xf32> -> tensor<128x384xf32>
    %l1 = nn.matmul %x1, %w {transpose_b} : …
    %loss1, %g1 = nn.cross_entropy_rows %l1, %t1, %weight1, %factor1 : tensor<128x50257xf32>, …
    %dx1 = nn.matmul %g1, %w : …
    %dw1 = nn.matmul %g1, %x1 accumulate %dw0 {transpose_a} : …
    ```
    and at the end the rows are joined:
    ```mlir
    %dx = nn.concat %dx0, %dx1, … {axis = 0 : i64} : …
    ```
  }];
  let dependentDialects = ["::fsdpc::nn::NNDialect"];
}

def SynchronizeBatchNorm : Pass<"synchronize-batch-norm", "::mlir::ModuleOp"> {
  let summary = "Takes the statistics of batch norms over all ranks";
  let description = [{
    For `--sync-batchnorm`. A batch norm of `@microbatch` becomes the rank's own moments, a
    sum over ranks, and the normalisation; its gradient becomes the rank's own sums, a sum
    over ranks, and the cotangent of the input. The sums are of two numbers per channel
    in f64 and of a 1, which gives the number of ranks. All ranks then have the same
    statistics, so the running ones take them once, without communication; their variance
    is unbiased for the elements of all ranks. A norm that the backward computes again is
    summed again, on all ranks alike. `@evaluate` is not changed. A module that the
    model calls twice is refused.

    Before:
    ```mlir
    %y, %mean, %variance = nn.batch_norm %x, %w, %b {epsilon = 1.0e-5 : f64} : tensor<2x3x4x4xf32>, …
    ```
    After:
    ```mlir
    %s = nn.reduce sum %x [0, 2, 3] : tensor<2x3x4x4xf32> -> tensor<1x3x1x1xf32>
    …
    %own = nn.concat %mean0, %square0, %one {axis = 0 : i64} : (tensor<3xf64>, tensor<3xf64>, tensor<1xf64>) -> tensor<7xf64>
    %all = fsdp.all_reduce %own : tensor<7xf64>
    %ranks = nn.slice %all [6] by [1] : tensor<7xf64> -> tensor<1xf64>
    …
    %y = nn.add %scaled, %bias : tensor<2x3x4x4xf32>
    ```
  }];
  let statistics = [Statistic<"synchronized", "synchronized", "norms and gradients synchronized">];
  let dependentDialects = ["::fsdpc::nn::NNDialect", "::fsdpc::fsdp::FSDPDialect"];
}

def FuseEpilogues : Pass<"fuse-epilogues", "::mlir::ModuleOp"> {
  let summary = "Lets a GPU's matrix products compute what surrounds them";
  let description = [{
    For `--target=cuda` and its emulation. cuBLASLt adds a row to its sums before it rounds
    and writes them; a kernel would read and write the result once more. The sum must be
    the only reader of the product and of the same unit and direction, the product must not
    accumulate yet, and its right operand must be one matrix.

    With `--math=fast`, a product of bf16 or f16 also computes, under the same conditions
    (`nn.fused_matmul`):

    - the tanh form of GELU behind it, and GELU's input where the gradient reads that;
    - GELU's gradient behind it;
    - the sum with another tensor of its result's type, as of a residual;
    - for the gradient of a weight, the gradient of the bias, unless a kernel makes the rows
      that it adds, which then adds them as it goes.

    Before:
    ```mlir
    %x = nn.matmul %a, %w {transpose_b} : tensor<8x16xf32>, tensor<48x16xf32> -> tensor<8x48xf32>
    %b = nn.broadcast %bias : tensor<48xf32> -> tensor<8x48xf32>
    %h = nn.add %x, %b : tensor<8x48xf32>
    ```
    After:
    ```mlir
    %h = nn.matmul %a, %w accumulate %bias {transpose_b} : tensor<8x16xf32>, tensor<48x16xf32>, accumulate tensor<48xf32> -> tensor<8x48xf32>
    ```
  }];
  let statistics = [Statistic<"biases", "biases", "biases that products add">,
                    Statistic<"gelus", "gelus", "GELUs and gradients that products compute">,
                    Statistic<"addends", "addends", "tensors that products add">,
                    Statistic<"sums", "sums", "gradients of biases that products compute">];
}

def OutlineKernels : Pass<"outline-kernels", "::mlir::ModuleOp"> {
  let summary = "Groups ops into kernels, each a private function and its launch";
  let description = [{
    Every op of `@microbatch` that is neither a library call nor a view joins a group. A
    group works on one domain (a shape) and reduces along one set of axes, or none. A
    consumer joins its producer's group if that still holds, if nothing outside has to run
    in between, and if unit and direction are the same. Fusion, and with it the bits,
    therefore does not depend on the strategy. A group has at most 64 ops, including those
    that are copied into it (see below), so the compiler's time grows with the number of ops
    and not with the length of a chain. Kernels of usual models have up to a dozen. A concat
    of more than 64 tensors becomes a tree of concats.

    Ops that only move elements (broadcast, slice, iota), and what is computed from indices
    and constants alone (a causal mask), are copied into each of their consumers, up to 16 ops at a time. A slice
    that is one contiguous piece of its operand stays as a view of it; a concat of such
    pieces stays where each operand can be written in its place.

    A sum over rows (the gradient of a bias or of a norm's weight) becomes sums over fixed
    blocks of at most 64 rows, and a sum of these. The first join a kernel that goes
    through the same rows, so that they cost no pass over memory of their own.

    For GPUs, maps of a backward that read the same rows are one kernel too (an activation
    that is computed again, and its gradient), a norm's statistics are read in the kernel that
    computes them, and up to 16 sums over blocks of one shape in a unit are one kernel.

    Before:
    ```mlir
    %b = nn.broadcast %bias : tensor<48xf32> -> tensor<8x48xf32>
    %h = nn.add %x, %b : tensor<8x48xf32>
    %y = nn.gelu erf %h : tensor<8x48xf32>
    ```
    After:
    ```mlir
    %y = nn.launch @gelu_8x48(%x, %bias) : (tensor<8x48xf32>, tensor<48xf32>) -> tensor<8x48xf32>
    ```
  }];
  let dependentDialects = ["::fsdpc::nn::NNDialect", "::mlir::func::FuncDialect"];
  let statistics = [Statistic<"kernels", "kernels", "kernels outlined">,
                    Statistic<"fused", "ops-fused", "ops in them">];
}

def MergeKernels : Pass<"merge-kernels", "::mlir::ModuleOp"> {
  let summary = "Keeps one of each set of kernels of equal structure";
  let description = [{
    The layers of a model repeat: 12 blocks have 12 copies of each kernel, and LLVM takes
    60 ms for each.

    Before:
    ```mlir
    %a = nn.launch @gelu_8x48(%x) …
    %b = nn.launch @gelu_8x48_0(%a) …
    ```
    After:
    ```mlir
    %a = nn.launch @gelu_8x48(%x) …
    %b = nn.launch @gelu_8x48(%a) …
    ```
  }];
  let statistics = [Statistic<"merged", "kernels-merged", "kernels that had a twin">];
}

def TieOperands : Pass<"tie-operands", "::mlir::ModuleOp"> {
  let summary = "Says which results may take an operand's memory";
  let description = [{
    The launch of a kernel without reductions may write a result over an operand of the same
    size, if the kernel reads that operand at the result's index alone and nothing reads it
    later. The gradient of logits may take the memory of the logits, and an embedding's
    gradient that of what it adds to. The planner decides whether they do.

    Before:
    ```mlir
    %y = nn.launch @gelu_8x48(%x) : (tensor<8x48xf32>) -> tensor<8x48xf32>
    ```
    After:
    ```mlir
    %y = nn.launch @gelu_8x48(%x) {tied = array<i64: 0>} : (tensor<8x48xf32>) -> tensor<8x48xf32>
    ```
  }];
  let statistics = [Statistic<"ties", "ties", "results tied">];
}

def ChooseLibraries : Pass<"choose-libraries", "::mlir::ModuleOp"> {
  let summary = "Says which library computes each product, convolution, pooling and attention";
  let description = [{
    For `--target=cuda` and its emulation. Products are cuBLASLt's, convolutions cuDNN's,
    pooling the runtime's own. Attention is cuDNN's where its fused kernels take it: in
    bf16, with head widths that are multiples of 8 up to 128, and no mask but the causal one with
    as many queries as keys. Elsewhere it is `products`: batched products with a softmax of
    rows between them. `--attention=products` chooses that everywhere;
    `--attention=cudnn` makes it an error that cuDNN does not take an attention.

    Before:
    ```mlir
    %o, %lse = nn.attention %q, %k, %v {causal, scale = 0.125 : f64} : …
    ```
    After:
    ```mlir
    %o, %lse = nn.attention %q, %k, %v {causal, nn.library = "cudnn", scale = 0.125 : f64} : …
    ```
  }];
}

def AnnotateCosts : Pass<"annotate-costs", "::mlir::ModuleOp"> {
  let summary = "Annotates each op with operations, bytes moved and expected time";
  let description = [{
    Writes `fsdp.flops`, `fsdp.bytes` and `fsdp.cost_us` (microseconds) by the cost model of
    compiler/schedule, for `--machine` or the target's default, and `--plan-threads`.

    Before:
    ```mlir
    %y = nn.matmul %x, %w : …
    ```
    After:
    ```mlir
    %y = nn.matmul %x, %w {fsdp.bytes = 5505024 : i64, fsdp.cost_us = 15098.9 : f64, fsdp.flops = 1207959552 : i64} : …
    ```
  }];
}

def DecomposeKernels : Pass<"decompose-kernels", "::mlir::ModuleOp"> {
  let summary = "Writes the composites in kernels as primitives";
  let description = [{
    The templates of kernels compute primitives: elementwise ops, ops that move elements,
    and reductions. A composite that outlining has put into a kernel (`nn.softmax`,
    `nn.layer_norm`, …) says itself what it is in primitives
    (`DecomposeOpInterface`).

    Before:
    ```mlir
    func.func private @softmax_4x256(%x: tensor<4x256xf32>) -> tensor<4x256xf32> attributes {nn.kernel} {
      %y = nn.softmax %x {axis = 1 : i64} : tensor<4x256xf32>
    ```
    After:
    ```mlir
      %m = nn.reduce max %x axes [1] : tensor<4x256xf32> -> tensor<4x1xf32>
      %b = nn.broadcast %m : …
      %d = nn.sub %x, %b : …
      %e = nn.exp %d : …
      %s = nn.reduce sum %e axes [1] : …
      …
    ```
  }];
  let dependentDialects = ["::fsdpc::nn::NNDialect"];
}

def PlanKernels : Pass<"plan-kernels", "::mlir::ModuleOp"> {
  let summary = "Decides how each kernel computes: template, loops, outer range";
  let description = [{
    Writes `#nn.kernel_plan` on each kernel. The template follows from the reductions: none
    is a `map`; reductions over leading axes are a `column`; others are a `row`, in stages of
    loops one after the other. The lanes of a loop are chosen so that every address is
    linear in the lane. The plan depends on the kernel's body alone, never on the processor
    or on threads.

    On the host, values that cost more to compute again than to read back are kept from
    stage to stage (`nn.kept`). A thread of a GPU computes them again.

    Before:
    ```mlir
    func.func private @softmax_4x256(%x: tensor<4x256xf32>) -> tensor<4x256xf32> attributes {nn.kernel} {
      …
      %e = nn.exp %d : tensor<4x256xf32>
    ```
    After:
    ```mlir
    func.func private @softmax_4x256(%x: tensor<4x256xf32>) -> tensor<4x256xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<row rows 4 stages[256, 256, 256] extent 4 grain 4>} {
      …
      %e = nn.exp %d {nn.kept} : tensor<4x256xf32>
    ```
    The third stage reads the exponentials that the second has stored.
  }];
  let dependentDialects = ["::fsdpc::nn::NNDialect"];
  let statistics = [Statistic<"planned", "planned", "kernels planned">];
}

def VerifyKernels : Pass<"verify-kernels", "::mlir::ModuleOp"> {
  let summary = "Checks what holds after the phase `kernels`";
  let description = [{
    Refuses a module that breaks one of these rules, and changes nothing. A plan that was
    edited in a dump is compiled as written, or refused here.

    **Constraints**
    - In `@microbatch`, every `nn` op is a library call, a launch, a constant, or a name of
      memory (a view, a strided op, a concat of pieces). Launches agree with their kernels
      (the verifier of `nn.launch`).
    - A kernel holds primitives only, and has a plan. Kernels that the runtime calls by
      itself (`nn.optimizer`, `nn.rows`) have none.
    - The template is the one that follows from the body, since each adds up in an order of
      its own, and all stages that the body needs are there.
    - The lanes of each stage divide its elements, blocks are multiples of 64 lanes and
      cover them, and the extent is rows · blocks / rows_per_block.
    - The lanes of a stage that reduces rows are a run of adjacent elements, or a divisor of
      it that is a multiple of 64: both keep the order of the reduction.
    - No reduction is read by another row than its own.
    - The grain is at most the extent, and the stack holds what is kept. A value marked
      `nn.kept` is a row of f32 that a later stage reads.

    Refused, since 768 elements are not a multiple of 500 lanes:
    ```mlir
    func.func private @gelu_8x768(…) -> … attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 8 stages[500] extent 8 grain 2>} {
    ```
  }];
}

#endif
