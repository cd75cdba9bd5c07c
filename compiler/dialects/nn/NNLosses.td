// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Losses over classes, with their gradients.
#ifndef FSDPC_NN_LOSSES
#define FSDPC_NN_LOSSES

include "compiler/dialects/nn/NNBase.td"

def NN_Reduction : I32EnumAttr<"Reduction", "reduction of a loss", [
    I32EnumAttrCase<"mean", 0>, I32EnumAttrCase<"sum", 1>]> {
  let cppNamespace = "::fsdpc::nn";
}

def NN_CrossEntropyOp : NN_Op<"cross_entropy", NotLinear, [Pure, HasAdjoint, Decomposes,
    Keeps<["Weights"]>, Statistics<["Loss", "Lse", "Valid"]>]> {
  let summary = "Cross-entropy loss of rows of logits";
  let description = [{
    The mean or sum over rows of weights[target] · (lse - logits[target]), with logits
    R×C, R targets and lse = log Σ exp(logits) per row. Without `weights` every class
    weighs 1. Rows whose target is `ignore_index` count nothing. `valid` is the sum of
    the weights of the rows that count, by which the mean divides; a mean over no row is
    0, with a gradient of zero. Only the logits get a gradient.

    **Constraints**
    - `logits` has rank 2, `targets` is a vector of integers with one element per row.
    - `weights`, where present, is a vector with one element per class.
    - `loss` and `valid` are scalars and `lse` a vector with one element per row, all in
      f32 (f64 for logits of f64).

    Example:
    ```mlir
    %loss, %lse, %valid = nn.cross_entropy mean %logits, %targets {ignore_index = -100 : i64} : tensor<5x9xf32>, tensor<5xi64> -> tensor<f32>, tensor<5xf32>, tensor<f32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$logits, NN_IntTensor:$targets,
                       Optional<NN_FloatTensor>:$weights, NN_Reduction:$reduction,
                       OptionalAttr<I64Attr>:$ignore_index);
  let results = (outs NN_StatTensor:$loss, NN_StatTensor:$lse, NN_StatTensor:$valid);
  let assemblyFormat = [{
    $reduction $logits `,` $targets (`weights` $weights^)? attr-dict `:`
    type($logits) `,` type($targets) (`,` `weights` type($weights)^)? `->` type(results)
  }];
  let hasVerifier = 1;
}

def NN_CrossEntropyGradOp : NN_Op<"cross_entropy_grad", MultilinearIn<["Grad", "Weights"]>, [Pure, Decomposes,
    AllTypesMatch<["grad", "valid"]>,
    Fuses<"Map">, Keeps<["Grad", "Lse", "Valid", "Weights"]>]> {
  let summary = "Cotangent of cross_entropy's logits";
  let description = [{
    (exp(logits - lse) - onehot(target)) · weights[target] · grad, divided by `valid`
    for a mean. `grad` is the cotangent of the loss. Rows that do not count are zeros.
    The result has the logits' type.

    **Constraints**
    - `logits`, `targets`, `weights`, `lse` and `valid` are as in `nn.cross_entropy`.
    - `grad` has the type of `valid`, the result that of `logits`.

    Example:
    ```mlir
    %dlogits = nn.cross_entropy_grad mean %dloss, %logits, %targets, %lse, %valid {ignore_index = -100 : i64} : tensor<f32>, tensor<5x9xf32>, tensor<5xi64>, tensor<5xf32> -> tensor<5x9xf32>
    ```
  }];
  let arguments = (ins NN_StatTensor:$grad, NN_FloatTensor:$logits,
                       NN_IntTensor:$targets, NN_StatTensor:$lse,
                       NN_StatTensor:$valid, Optional<NN_FloatTensor>:$weights,
                       NN_Reduction:$reduction, OptionalAttr<I64Attr>:$ignore_index);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $reduction $grad `,` $logits `,` $targets `,` $lse `,` $valid (`weights` $weights^)?
    attr-dict `:` type($grad) `,` type($logits) `,` type($targets) `,` type($lse)
    (`,` `weights` type($weights)^)? `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_CrossEntropyRowsOp : NN_Op<"cross_entropy_rows", NotLinear, [Pure, Decomposes,
    AllTypesMatch<["logits", "dlogits"]>, AllTypesMatch<["weights", "factors", "losses"]>,
    FusesOverRows<"getLogits()">]> {
  let summary = "Losses of rows of logits, and the logits' cotangents";
  let description = [{
    For each row, weight · (lse - logits[target]) and
    factor · (softmax(logits) - onehot(target)). `decompose-linear-cross-entropy` uses it
    on a block of rows. A row of weight 0 gives zeros whatever its logits are. `dlogits`
    may take the memory of the logits.

    **Constraints**
    - `logits` has rank 2, `targets` is a vector of integers with one element per row.
    - `weights` is a vector with one element per row in f32 (f64 for logits of f64);
      `factors` and `losses` have its type.
    - `dlogits` has the type of `logits`.

    Example:
    ```mlir
    %losses, %dlogits = nn.cross_entropy_rows %logits, %targets, %weights, %factors : tensor<5x9xbf16>, tensor<5xi64>, tensor<5xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$logits, NN_IntTensor:$targets,
                       NN_StatTensor:$weights, NN_StatTensor:$factors);
  let results = (outs NN_StatTensor:$losses, NN_FloatTensor:$dlogits);
  let assemblyFormat = [{
    $logits `,` $targets `,` $weights `,` $factors attr-dict `:` type($logits) `,`
    type($targets) `,` type($weights)
  }];
  let hasVerifier = 1;
}

def NN_LinearCrossEntropyOp : NN_Op<"linear_cross_entropy", NotLinear, [Pure, HasAdjoint,
    AttrSizedOperandSegments, AllTypesMatch<["input", "dinput"]>,
    AllTypesMatch<["weight", "dweight"]>,
    Keeps<["Weights", "Scale"]>, Statistics<["Loss", "Valid"]>]> {
  let summary = "Cross-entropy of a linear layer, with its gradients";
  let description = [{
    The loss of `nn.cross_entropy` for logits = input · weight (+ bias), and the
    gradients of that loss, from one pass over the logits. `input` is R×K, `weight` K×C
    (C×K with `transpose_weight`), `bias` C; the other operands are cross_entropy's. The
    adjoint only scales the gradients by the loss's cotangent. With `scale` they are
    those of `scale` times the loss, so that small ones survive f16. The logits are computed
    once, a block of rows at a time (`decompose-linear-cross-entropy`), and never exist
    as a whole (Wijmans et al., Cut Your Losses in Large-Vocabulary Language Models,
    2024).

    **Constraints**
    - `input` and `weight` have rank 2 and the same K.
    - `targets` is a vector of integers with one element per row.
    - `bias` and `weights`, where present, are vectors with one element per class.
    - `dinput` and `dweight` have the types of `input` and `weight`. `dbias`, a vector
      with one element per class, is present if and only if `bias` is.
    - `loss` and `valid` are scalars in f32 (f64 for an input of f64), and so is `scale`.

    Example:
    ```mlir
    %loss, %valid, %dx, %dw, %db = nn.linear_cross_entropy mean %x, %w, %targets bias %b {transpose_weight}
      : tensor<5x4xbf16>, tensor<9x4xbf16>, tensor<5xi64> bias tensor<9xbf16> -> tensor<f32>, tensor<f32>, tensor<9xbf16>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$weight,
                       Optional<NN_FloatTensor>:$bias, NN_IntTensor:$targets,
                       Optional<NN_FloatTensor>:$weights, Optional<NN_StatTensor>:$scale,
                       NN_Reduction:$reduction, OptionalAttr<I64Attr>:$ignore_index,
                       UnitAttr:$transpose_weight);
  let results = (outs NN_StatTensor:$loss, NN_StatTensor:$valid,
                      NN_FloatTensor:$dinput, NN_FloatTensor:$dweight,
                      Optional<NN_FloatTensor>:$dbias);
  let assemblyFormat = [{
    $reduction $input `,` $weight `,` $targets (`bias` $bias^)? (`weights` $weights^)?
    (`scale` $scale^)? attr-dict `:` type($input) `,` type($weight) `,` type($targets)
    (`bias` type($bias)^)? (`weights` type($weights)^)? (`scale` type($scale)^)? `->`
    type($loss) `,` type($valid) (`,` type($dbias)^)?
  }];
  let hasVerifier = 1;
}

#endif
