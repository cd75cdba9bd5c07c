// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes of the phase `grad`: after it, forward and backward are one flat
// function, and what the backward reads of the forward is decided: each value is
// either kept or computed again.
#ifndef FSDPC_PASSES_GRAD
#define FSDPC_PASSES_GRAD

include "mlir/Pass/PassBase.td"

def BuildEvaluate : Pass<"build-evaluate", "::mlir::ModuleOp"> {
  let summary = "Copies the forward as it runs in an evaluation to @evaluate";
  let description = [{
    @evaluate is what PyTorch computes after `model.eval()`: dropout passes its operand
    on, and a batch norm whose statistics are kept normalises by the running statistics
    instead of the batch's. Nothing is updated. Ops that no report needs are erased.
    Outputs that are no scalars are reported in @evaluate only. The later passes treat @evaluate as @microbatch, but it has no backward.

    A batch norm without running statistics stays as it is, as in PyTorch. A loss that is
    a mean of targets reports how many of them were valid, so that the runtime can weight
    microbatches by it; its `fsdp.loss_factor` is then 1. That of any other loss makes its
    means parts of those of the whole evaluation.

    Before:
    ```mlir
    fsdp.unit @u
    fsdp.parameter @w : tensor<2x8xf32> trainable unit @u
    func.func @microbatch(%x: tensor<2x8xf32> {fsdp.input = "x"}) {
      %r = fsdp.random {fsdp.unit = @u} : tensor<4xi32>
      %w = fsdp.load @w {fsdp.unit = @u} : tensor<2x8xf32>
      %d = nn.dropout %x, %r {op = 0 : i64, ratio = 0.5 : f64, fsdp.unit = @u} : tensor<2x8xf32>, tensor<4xi32>
      %y = nn.mul %d, %w {fsdp.unit = @u} : tensor<2x8xf32>
      %s = nn.reduce sum %y [0, 1] {fsdp.unit = @u} : tensor<2x8xf32> -> tensor<1x1xf32>
      %l = nn.reshape %s {fsdp.unit = @u} : tensor<1x1xf32> -> tensor<f32>
      fsdp.report_loss %l {fsdp.unit = @u} : tensor<f32>
      return
    }
    ```
    After, besides @microbatch:
    ```mlir
    func.func @evaluate(%x: tensor<2x8xf32> {fsdp.input = "x"}) {
      %w = fsdp.load @w {fsdp.unit = @u} : tensor<2x8xf32>
      %y = nn.mul %x, %w {fsdp.unit = @u} : tensor<2x8xf32>
      %s = nn.reduce sum %y [0, 1] {fsdp.unit = @u} : tensor<2x8xf32> -> tensor<1x1xf32>
      %l = nn.reshape %s {fsdp.unit = @u} : tensor<1x1xf32> -> tensor<f32>
      fsdp.report_loss %l {fsdp.unit = @u} : tensor<f32>
      return
    }
    ```
  }];
  let dependentDialects = ["::fsdpc::nn::NNDialect"];
}

def WeighLosses : Pass<"weigh-losses", "::mlir::ModuleOp"> {
  let summary = "Makes means over a microbatch's targets parts of the step's mean";
  let description = [{
    A mean over targets is a sum divided by a weight that follows from the model's inputs:
    `nn.cross_entropy` with an ignored value or class weights, and a sum times the power -1
    of another sum, however it is written: `(losses * mask).sum() / mask.sum()`,
    `… * mask.sum() ** -1`, `… * exp(-log(mask.sum()))`. Microbatches with few targets would
    count as much as those with many. Therefore each such mean is multiplied by
    `fsdp.loss_factor`, and `fsdp.loss_weight` says how the runtime computes the weight.
    A mean has a factor if the loss, as far as it follows from the mean, is a sum over samples
    once the count is a constant and all other terms are 0. So the loss is linear in the mean,
    its factors combine no samples, and its numerator is no square of a sum. Where the divisor
    is the mean of a mask over all elements, perhaps with a constant added, the loss must be
    such a mean as well. What library calls and composites return counts as values of one
    sample each, since models mix samples on purpose. Terms without
    such a mean stay as they are. A microbatch whose weights add up to 0 divides by 1, and its
    factor is V / (the step's divisor): weights may have both signs, and losses no mask. A model
    may guard a mean against having no target, by a test of the count
    (`where(count > 0, …, 0)`), which becomes that of the step's count, or of the mean
    (`where(isnan(mean), 0, mean)`).

    A count is any value of inputs that is a sum of terms with one sample each, as linear ops
    make them (`nn::linearityIn`): sums, products, the last element of a running sum, and the
    number of places without the padded ones. A sum over the elements of one sample is not a
    weight: its axis of samples is followed from the inputs. Where the loss depends in another
    way on what the samples of a microbatch have together, as on the square root of a count or
    on shares of classes, nothing changes, and a remark names the place.

    A loss that computes its gradients in the forward takes the factor as its scale. A
    weight that depends on parameters as well keeps the microbatch's mean, with a remark.
    With `--loss-mean=microbatch` the weights are described, but nothing is multiplied.
    `build-evaluate` copies the factors to @evaluate. The importer keeps reductions over axes of
    size 1, since such an axis may be the samples of a microbatch of one; they are removed.

    Before:
    ```mlir
    fsdp.unit @u
    fsdp.parameter @w : tensor<4xf32> trainable unit @u
    func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
      %w = fsdp.load @w {fsdp.unit = @u} : tensor<4xf32>
      %p = nn.mul %w, %m {fsdp.unit = @u} : tensor<4xf32>
      %a = nn.reduce sum %p [0] {fsdp.unit = @u} : tensor<4xf32> -> tensor<1xf32>
      %b = nn.reduce sum %m [0] {fsdp.unit = @u} : tensor<4xf32> -> tensor<1xf32>
      %q = nn.div %a, %b {fsdp.unit = @u} : tensor<1xf32>
      %l = nn.reshape %q {fsdp.unit = @u} : tensor<1xf32> -> tensor<f32>
      fsdp.report_loss %l {fsdp.unit = @u} : tensor<f32>
      return
    }
    ```
    After, with the divisor guarded (each new op of the function has `fsdp.unit = @u`):
    ```mlir
    fsdp.loss_weight @loss_weight ["m"] {
    ^bb0(%m: tensor<4xf32>):
      %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
      %s = nn.reshape %b : tensor<1xf32> -> tensor<f32>
      fsdp.yield %s : tensor<f32>
    }
      %f = fsdp.loss_factor @loss_weight : tensor<f32>
      %q = nn.div %a, %guarded : tensor<1xf32>
      %g = nn.reshape %f : tensor<f32> -> tensor<1xf32>
      %r = nn.mul %q, %g : tensor<1xf32>
    ```
  }];
  let dependentDialects = ["::fsdpc::nn::NNDialect", "::fsdpc::fsdp::FSDPDialect"];
  let statistics = [
    Statistic<"numMeans", "means", "Means that have a factor">
  ];
}

def Grad : Pass<"grad", "::mlir::ModuleOp"> {
  let summary = "Appends the backward of the reported loss to @microbatch";
  let description = [{
    Reverse-mode differentiation with the adjoints of ops (`AdjointOpInterface`). An op is
    active if a trainable parameter reaches one of its operands and one of its results
    reaches the loss. Only active ops get an adjoint, and only active operands a
    cotangent.

    The gradient of the loss is 1, or with `--loss-scale` the op `fsdp.loss_scale`. A loss
    that computes its gradients in the forward takes that scale as an operand.

    The sweep visits active ops from the last to the first. An op on parameters alone
    (a cast or transpose of a weight) is an exception: it is visited as soon as its
    cotangent is complete, so that the gradient can be reduced early. Cotangents of one
    value are added in the order in which the sweep meets them; those of the parts of a
    split are concatenated. Four or more products of few rows that make up a weight's gradient,
    as the steps of a recurrence do, become one product over the rows of all. No cotangent
    passes `nn.stop_gradient`, which is replaced by its operand, or for readers in other
    units by a copy of it if that is a weight. An `nn.custom_gradient` brings its own adjoint: the ops between its
    cotangents and its gradients, which are cloned into the backward; it is then replaced by its values.

    An op of the backward has the location, unit and module of its primal, and
    `fsdp.backward`. A parameter's `fsdp.gradient` follows the op that completes the sum
    over all its loads. A trainable parameter that does not reach the loss becomes
    frozen, with a remark: PyTorch gives it no gradient either.

    A model may hand over gradients of its own (`--gradient`): it has `fsdp.gradient`
    already, and nothing is differentiated. Ops that only they need move behind the forward
    and become the backward. An op there that reads a weight joins the unit that owns it,
    and the ops after it stay in that unit. A parameter without a gradient becomes frozen.

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
    After (the forward is unchanged; each new op has `fsdp.backward, fsdp.unit = @a`):
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
    A forward value that the backward uses is kept from one to the other. This pass
    clones some ops before the first use of their results in the backward, which then
    reads the clones. It clones an op that makes one pass over memory (elementwise ops,
    dropout, norms, rotary embeddings, transposes and slices) if all of these hold:

    - In the forward, a matrix product follows the last read of its results, so that they
      would be kept for long. Ops that lead to the loss alone are not touched.
    - Every reader of its results in the backward is of its own unit, whose weights are
      gathered there anyway.
    - Its inputs are kept, or are inputs of the model, weights, random numbers or computed
      again themselves, or follow by a chain of at most four such ops from values of fewer
      bytes than the results.
    - The ops to clone read and write at most four bytes for each byte that need not be
      kept.

    Products, attention, reductions and lookups are never computed again. A clone is the
    same op on the same values and gives the same bits, since the order of its sums is a
    function of the op. The choice depends on neither strategy nor schedule.

    `--recompute=units` is activation checkpointing (Chen et al., Training Deep Nets with
    Sublinear Memory Cost, 2016): everything that only the unit itself reads is computed
    again, products and attention too, and only values that pass from one unit to another
    are kept. It costs about a third of the units' forward and backward.
    `--recompute-scope=REGEX` does so only in the units whose names match, and treats the
    others as above.

    `--recompute=auto` does as `cheap` does, and besides computes the ops again that have
    `fsdp.recompute`. The compiler marks them before this pass if `--memory-limit` needs
    it: per unit none, some, or all of what `units` would repeat, such that the predicted
    step is shortest. Marks in an edited dump are kept, and then no others are added; with
    another `--recompute` they are refused.
    `fsdp.recomputed` on the unit says how many ops are marked and what they cost. With
    `--recompute=none` the pass does nothing.

    Before:
    ```mlir
    %y  = nn.gelu tanh %x {fsdp.unit = @a} : tensor<8x48xf32>
    %z  = nn.matmul %y, %w {fsdp.unit = @a} : …
    …
    %dw = nn.matmul %y, %dz {fsdp.backward, fsdp.unit = @a, transpose_a} : …
    %dx = nn.gelu_grad tanh %x, %dy {fsdp.backward, fsdp.unit = @a} : …
    ```
    After:
    ```mlir
    %y  = nn.gelu tanh %x {fsdp.unit = @a} : tensor<8x48xf32>
    %z  = nn.matmul %y, %w {fsdp.unit = @a} : …
    …
    %y1 = nn.gelu tanh %x {fsdp.backward, fsdp.unit = @a} : tensor<8x48xf32>
    %dw = nn.matmul %y1, %dz {fsdp.backward, fsdp.unit = @a, transpose_a} : …
    %dx = nn.gelu_grad tanh %x, %dy {fsdp.backward, fsdp.unit = @a} : …
    ```
  }];
  let statistics = [Statistic<"numClones", "clones", "Ops cloned into the backward">];
}

def RematerialiseWeights : Pass<"rematerialise-weights", "::mlir::ModuleOp"> {
  let summary = "Computes in the backward again what depends on weights alone, or only repeats";
  let description = [{
    A forward value that the backward uses is kept from one to the other. A value that
    depends on weights alone (a load, its cast, its transpose) must not be, or gathering
    the weights again would save no memory. The pass clones such chains before their first
    use in the backward, once per unit that computes them; loads are cloned for every unit
    that reads them. A value that depends on another unit's weights (a relative position
    bias) is kept like any activation. Values that depend on constants alone, and
    broadcasts, which only repeat a smaller value, are cloned too.

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
  let summary = "Checks what holds after the phase `grad`";
  let description = [{
    Refuses a module that breaks one of these rules, and changes nothing.

    **Constraints**
    - A trainable parameter has one `fsdp.gradient`, a frozen one none.
    - No forward op uses a value of the backward.
    - No backward op uses a forward value that is a weight, or that depends on weights
      alone and belongs to the op's own unit: it would keep a gathered weight alive from
      the forward to the backward.

    ```mlir
    %w  = fsdp.load @w {fsdp.unit = @a} : tensor<8x2xf32>
    %dx = nn.matmul %dy, %w {fsdp.backward, fsdp.unit = @a, transpose_b} : …  // error: %w is the forward's
    ```
  }];
}

#endif
