// Stage `kernels`: every op becomes a library call or an outlined kernel.
#ifndef FSDPC_PASSES_KERNELS
#define FSDPC_PASSES_KERNELS

include "mlir/Pass/PassBase.td"

def StrideAttention : Pass<"stride-attention", "::mlir::ModuleOp"> {
  let summary = "Lets attention read its operands and write its results where they lie";
  let description = [{
    Projections make one row a token, attention takes one matrix a head. The
    transposes, slices, concats and reshapes between are marked `nn.strided`: they
    have no memory of their own, and attention's plan has strides instead. "operand"
    says that a result is read where the operand lies, "result" that operands are
    written where the result lies. An op is marked only where attentions alone read
    it, or make it, and a tensor that is sliced only where they read all of it.

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
    A block of logits has about 64 MiB (on CUDA 256), but at least 128 rows. Its row kernel reads
    each row once, writes the row's loss and the logits' gradient, which is
    multiplied into rows of the input's gradient and added to the weight's before
    the next block takes the same memory.

    Before:
    ```mlir
    %loss, %valid, %dx, %dw = nn.linear_cross_entropy mean %x, %w, %t {transpose_weight} : tensor<1024x384xf32>, tensor<50257x384xf32>, …
    ```
    After, for each block:
    ```mlir
    %x1 = nn.slice %x [128, 0] by [1, 1] : tensor<1024x384xf32> -> tensor<128x384xf32>
    %l1 = nn.matmul %x1, %w {transpose_b} : …
    … max, exp, sum, loss, gradient, on 128×50257 …
    %dx1 = nn.matmul %g1, %w : …
    %dw1 = nn.matmul %g1, %x1 accumulate %dw0 {transpose_a} : …
    ```
    and at the end the rows joined:
    ```mlir
    %dx = nn.concat %dx0, %dx1, … {axis = 0 : i64} : …
    ```
  }];
  let dependentDialects = ["::fsdpc::nn::NNDialect"];
}

def FuseEpilogues : Pass<"fuse-epilogues", "::mlir::ModuleOp"> {
  let summary = "Lets a GPU's products add biases themselves";
  let description = [{
    For `--target=cuda` and its emulation. cuBLASLt adds a row to its sums before it
    rounds and writes them, where a kernel would read and write the result once
    more. Of the product nothing else may be read; it adds to nothing yet, its
    right operand is one matrix, and the sum is of the same unit and direction.

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
  let statistics = [Statistic<"biases", "biases", "biases that products add">];
}

def OutlineKernels : Pass<"outline-kernels", "::mlir::ModuleOp"> {
  let summary = "Groups ops into kernels, each a private function and its launch";
  let description = [{
    Every op of `@microbatch` that is neither a library call nor a view joins a
    group. A group works on one domain (a shape) and reduces along one set of
    axes, or none; a consumer joins its producer's group where that holds, where
    nothing outside needs to run in between, and where unit and direction are the
    same: hence fusion, and with it the bits, does not depend on the strategy.
    Ops that only move elements (broadcast, slice, iota) and what is computed from
    indices and numbers alone (a causal mask) are copied into each of their
    consumers. A slice that is one piece of its operand's memory stays as a view
    of it, and a concat of such pieces stays where each operand can be written
    in its place.

    A sum of rows (the gradient of a bias or of a norm's weight) becomes sums over
    fixed blocks of at most 64 rows and a sum of these. The first join a kernel that
    goes through the same rows, so that they cost no pass over memory of their own.

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
    Layers repeat: 12 blocks have 12 copies of each kernel, and LLVM takes 60 ms
    for each.

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
    A launch of a kernel without reductions may write a result over an operand of
    the same size that it reads at the same index alone, where nothing reads
    the operand later; gradients of logits may lie over the logits, and an
    embedding's gradient over what it adds to. The planner decides.

    ```mlir
    %y = nn.launch @gelu_8x48(%x) {tied = array<i64: 0>} : (tensor<8x48xf32>) -> tensor<8x48xf32>
    ```
  }];
  let statistics = [Statistic<"ties", "ties", "results tied">];
}

def ChooseLibraries : Pass<"choose-libraries", "::mlir::ModuleOp"> {
  let summary = "Says which library computes each product, convolution, pooling and attention";
  let description = [{
    For `--target=cuda` and its emulation; the host has one library for each. Products
    are cuBLASLt's, convolutions cuDNN's, pooling the runtime's own. Attention
    is cuDNN's where its fused kernels take it: in bf16, heads of up to 128 and a
    multiple of 8, no mask but the causal one of as many queries as keys. Elsewhere
    it is `products`: batched products with a softmax of rows between.
    `--attention=products` says so everywhere, `--attention=cudnn` makes an error of it.

    ```mlir
    %o, %lse = nn.attention %q, %k, %v {nn.library = "cudnn"} : …
    ```
  }];
}

def AnnotateCosts : Pass<"annotate-costs", "::mlir::ModuleOp"> {
  let summary = "Annotates each op with flops, bytes moved and expected time";
  let description = [{
    `fsdp.flops`, `fsdp.bytes` and `fsdp.cost_us` by the cost model of
    compiler/schedule, for --plan-threads or the newest of --gpu-arch.

    ```mlir
    %y = nn.matmul %x, %w {fsdp.bytes = 5505024 : i64, fsdp.cost_us = 15098.9, fsdp.flops = 1207959552 : i64} : …
    ```
  }];
}

#endif
