// Stage `grad`: forward and backward in one flat function.
#ifndef FSDPC_PASSES_GRAD
#define FSDPC_PASSES_GRAD

include "mlir/Pass/PassBase.td"

def Grad : Pass<"grad", "::mlir::ModuleOp"> {
  let summary = "Appends the backward of the reported loss to @microbatch";
  let description = [{
    Reverse-mode differentiation with op adjoints (`AdjointOpInterface`). An op is
    active if a trainable parameter reaches one of its operands and one of its
    results reaches the loss; only active ops have an adjoint, and only active
    operands get a cotangent. The sweep visits active ops from the last to the
    first, except that an op on parameters alone (a cast or transpose of a
    weight) is visited as soon as its cotangent is complete, wherever it stands.
    Cotangents of a value are added in the order in which the sweep meets them;
    those of the parts of a split are concatenated.

    Backward ops have the location, unit and module of their primal, and
    `fsdp.backward`. A parameter's `fsdp.gradient` follows the op that completes
    its sum over all its loads. A trainable parameter that does not reach the
    loss becomes frozen, with a remark: PyTorch gives it no gradient either.

    Before:
    ```mlir
    func.func @microbatch(%x: tensor<4x8xf32> {fsdp.input = "x"}) {
      %w = fsdp.load @w {fsdp.unit = @a} : tensor<8x2xf32>
      %y = nn.matmul %x, %w {fsdp.unit = @a} : tensor<4x8xf32>, tensor<8x2xf32> -> tensor<4x2xf32>
      %s = nn.reduce sum %y [0, 1] {fsdp.unit = @a} : tensor<4x2xf32> -> tensor<1x1xf32>
      %l = nn.reshape %s {fsdp.unit = @a} : tensor<1x1xf32> -> tensor<f32>
      fsdp.report_loss %l {fsdp.unit = @a} : tensor<f32>
      return
    }
    ```
    After (the forward as it was; `fsdp.backward, fsdp.unit = @a` on each new op):
    ```mlir
      %g0 = nn.constant dense<1.0> : tensor<f32>
      %g1 = nn.reshape %g0 : tensor<f32> -> tensor<1x1xf32>
      %g2 = nn.broadcast %g1 : tensor<1x1xf32> -> tensor<4x2xf32>
      %dw = nn.matmul %x, %g2 {transpose_a} : tensor<4x8xf32>, tensor<4x2xf32> -> tensor<8x2xf32>
      fsdp.gradient @w, %dw : tensor<8x2xf32>
      return
    ```
  }];
  let dependentDialects = ["::fsdpc::nn::NNDialect", "::fsdpc::fsdp::FSDPDialect"];
  let statistics = [
    Statistic<"numAdjoints", "adjoints", "Forward ops that have an adjoint">,
    Statistic<"numGradients", "gradients", "Parameters that have a gradient">
  ];
}

def Recompute : Pass<"recompute", "::mlir::ModuleOp"> {
  let summary = "Computes activations in the backward again instead of keeping them";
  let description = [{
    A forward value that the backward uses is kept from one to the other. An op
    that makes one pass over memory (elementwise ops, dropout, the norms, rotary
    embeddings, transposes and slices) is cloned before the first use of its
    results in the backward, which then reads the clone's, where

    - a product of the forward follows the last read of its results there, so
      that they would be kept for long; what leads to the loss alone is not
      touched,
    - everything that reads its results in the backward is of its own unit, whose
      weights are gathered there anyway,
    - its inputs are kept, inputs of the model, weights, random numbers, computed
      again themselves, or reached by a chain of at most four such ops from
      values that are fewer bytes than the results,
    - the ops to clone read and write at most four bytes for each that need not be
      kept.

    Products, attention, reductions and lookups are never computed again. A clone
    is the same op on the same values; only the sums of a norm may be added in
    another order where it is compiled into another kernel. The choice depends on
    neither strategy nor schedule.

    With `--recompute=units` everything of a unit that only the unit itself reads
    is computed again, products and attention too: what stays are the values that
    pass from one unit to another (activation checkpointing). It costs about a
    third of the units' forward and backward. With `--recompute=none` the pass does
    nothing.

    Before:
    ```mlir
    %y  = nn.gelu %x {fsdp.unit = @a, tanh} : tensor<8x48xf32>
    %z  = nn.matmul %y, %w {fsdp.unit = @a} : …
    …
    %dw = nn.matmul %y, %dz {fsdp.backward, fsdp.unit = @a, transpose_a} : …
    %dx = nn.gelu_grad %dy, %x {fsdp.backward, fsdp.unit = @a, tanh} : …
    ```
    After:
    ```mlir
    %y  = nn.gelu %x {fsdp.unit = @a, tanh} : tensor<8x48xf32>
    %z  = nn.matmul %y, %w {fsdp.unit = @a} : …
    …
    %y1 = nn.gelu %x {fsdp.backward, fsdp.unit = @a, tanh} : tensor<8x48xf32>
    %dw = nn.matmul %y1, %dz {fsdp.backward, fsdp.unit = @a, transpose_a} : …
    %dx = nn.gelu_grad %dy, %x {fsdp.backward, fsdp.unit = @a, tanh} : …
    ```
  }];
  let statistics = [Statistic<"numClones", "clones", "Ops cloned into the backward">];
}

def RematerialiseWeights : Pass<"rematerialise-weights", "::mlir::ModuleOp"> {
  let summary = "Computes in the backward again what is derived from weights or only repeats";
  let description = [{
    A forward value that the backward uses is saved: it lives from one to the
    other. A value derived from weights alone (a load, its cast, its transpose)
    must not be, or gathering the weights again would save no memory. Such
    chains are cloned before their first use in the backward of each unit that
    computes them; loads are cloned for every unit that reads them. A
    weight-derived value of another unit (a relative position bias) is saved as
    any activation. Constants' descendants and broadcasts, which only repeat a
    smaller value, are cloned too.

    Before:
    ```mlir
    %w  = fsdp.load @w {fsdp.unit = @a} : tensor<2x8xf32>
    %wt = nn.transpose %w [1, 0] {fsdp.unit = @a} : tensor<2x8xf32> -> tensor<8x2xf32>
    …
    %dx = nn.matmul %dy, %wt {fsdp.backward, fsdp.unit = @a, transpose_b} : …
    ```
    After:
    ```mlir
    %w  = fsdp.load @w {fsdp.unit = @a} : tensor<2x8xf32>
    %wt = nn.transpose %w [1, 0] {fsdp.unit = @a} : tensor<2x8xf32> -> tensor<8x2xf32>
    …
    %w1  = fsdp.load @w {fsdp.backward, fsdp.unit = @a} : tensor<2x8xf32>
    %wt1 = nn.transpose %w1 [1, 0] {fsdp.backward, fsdp.unit = @a} : tensor<2x8xf32> -> tensor<8x2xf32>
    %dx  = nn.matmul %dy, %wt1 {fsdp.backward, fsdp.unit = @a, transpose_b} : …
    ```
  }];
  let statistics = [Statistic<"numClones", "clones", "Ops cloned into the backward">];
}

def VerifyGrad : Pass<"verify-grad", "::mlir::ModuleOp"> {
  let summary = "Checks what holds after the stage `grad`";
  let description = [{
    - Every trainable parameter has one `fsdp.gradient`, a frozen one none.
    - No forward op uses a value of the backward.
    - No backward op uses a forward value that is derived from weights alone and
      belongs to the op's own unit, or is a weight itself: it would keep a
      gathered weight alive from the forward to the backward.

    The pass changes nothing: the IR after it is the IR before it.
    ```mlir
    %w  = fsdp.load @w {fsdp.unit = @a} : tensor<8x2xf32>
    %dx = nn.matmul %dy, %w {fsdp.backward, fsdp.unit = @a, transpose_b} : …  // refused
    ```
  }];
}

#endif
