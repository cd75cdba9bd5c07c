// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Composites that normalise: layer norm, RMS norm and batch norm, with their
// gradients. Their statistics are results, so that the gradients need not
// compute them again.
#ifndef FSDPC_NN_NORMS
#define FSDPC_NN_NORMS

include "compiler/dialects/nn/NNBase.td"

def NN_LayerNormOp : NN_Op<"layer_norm", NotLinear, [Pure, HasAdjoint, Decomposes, AttrSizedOperandSegments,
    FusesOverRows<"getInput()">, CheapToRepeat, Statistics<["Mean", "Rstd"]>]> {
  let summary = "Normalises rows to mean 0 and variance 1";
  let description = [{
    (x - mean) · rstd · weight + bias along the last axis, with
    rstd = 1 / sqrt(variance + epsilon) and the biased variance. `weight` and `bias` may
    be absent. `mean` and `rstd` have one element per row and are kept for the adjoint.
    Norms over several trailing axes are imported through a reshape (Ba et al., Layer
    Normalization, 2016).

    **Constraints**
    - The input has rank 1 or more; the result has its type.
    - `weight` and `bias`, where present, are vectors of the last dimension's size; a
      bias needs a weight.
    - `mean` and `rstd` have the input's shape without the last dimension, in f32 (f64
      for an input of f64).

    Example:
    ```mlir
    %y, %mean, %rstd = nn.layer_norm %x weight %w bias %b {epsilon = 1.0e-5 : f64} : tensor<2x8xbf16>, weight tensor<8xbf16>, bias tensor<8xbf16> -> tensor<2x8xbf16>, tensor<2xf32>, tensor<2xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, Optional<NN_FloatTensor>:$weight,
                       Optional<NN_FloatTensor>:$bias, F64Attr:$epsilon);
  let results = (outs NN_FloatTensor:$result, NN_StatTensor:$mean, NN_StatTensor:$rstd);
  let assemblyFormat = [{
    $input (`weight` $weight^)? (`bias` $bias^)? attr-dict `:` type($input)
    (`,` `weight` type($weight)^)? (`,` `bias` type($bias)^)? `->` type(results)
  }];
  let hasVerifier = 1;
}

def NN_LayerNormGradOp : NN_Op<"layer_norm_grad", MultilinearIn<["Grad", "Weight"]>, [Pure, Decomposes,
    AllTypesMatch<["grad", "input"]>, AllTypesMatch<["mean", "rstd"]>,
    FusesOverRows<"getInput()">, Keeps<["Mean", "Rstd"]>]> {
  let summary = "Cotangent of layer_norm's input";
  let description = [{
    rstd · (g - mean(g) - n · mean(g · n)) per row, where g = grad · weight and
    n = (x - mean) · rstd. The result has the input's type.

    **Constraints**
    - `input` has rank 1 or more; `grad` and the result have its type.
    - `weight`, where present, is a vector of the last dimension's size.
    - `mean` and `rstd` have the input's shape without the last dimension, in f32 (f64
      for an input of f64).

    Example:
    ```mlir
    %dx = nn.layer_norm_grad %dy, %x, %mean, %rstd weight %w : tensor<2x8xbf16>, tensor<2xf32>, weight tensor<8xbf16> -> tensor<2x8xbf16>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$grad, NN_FloatTensor:$input,
                       Optional<NN_FloatTensor>:$weight, NN_StatTensor:$mean,
                       NN_StatTensor:$rstd);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $grad `,` $input `,` $mean `,` $rstd (`weight` $weight^)? attr-dict `:`
    type($input) `,` type($mean) (`,` `weight` type($weight)^)? `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_RmsNormOp : NN_Op<"rms_norm", NotLinear, [Pure, HasAdjoint, Decomposes,
    FusesOverRows<"getInput()">, CheapToRepeat, Statistics<["Rstd"]>]> {
  let summary = "Scales rows to a root mean square of 1";
  let description = [{
    x · rstd · weight along the last axis, with rstd = 1 / sqrt(mean(x²) + epsilon).
    `weight` may be absent. `rstd` has one element per row and is kept for the adjoint
    (Zhang and Sennrich, Root Mean Square Layer Normalization, 2019).

    **Constraints**
    - The input has rank 1 or more; the result has its type.
    - `weight`, where present, is a vector of the last dimension's size.
    - `rstd` has the input's shape without the last dimension, in f32 (f64 for an input
      of f64).

    Example:
    ```mlir
    %y, %rstd = nn.rms_norm %x weight %w {epsilon = 1.0e-5 : f64} : tensor<2x8xbf16>, weight tensor<8xbf16> -> tensor<2x8xbf16>, tensor<2xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, Optional<NN_FloatTensor>:$weight,
                       F64Attr:$epsilon);
  let results = (outs NN_FloatTensor:$result, NN_StatTensor:$rstd);
  let assemblyFormat = [{
    $input (`weight` $weight^)? attr-dict `:` type($input)
    (`,` `weight` type($weight)^)? `->` type(results)
  }];
  let hasVerifier = 1;
}

def NN_RmsNormGradOp : NN_Op<"rms_norm_grad", MultilinearIn<["Grad", "Weight"]>, [Pure, Decomposes,
    AllTypesMatch<["grad", "input"]>,
    FusesOverRows<"getInput()">, Keeps<["Rstd"]>]> {
  let summary = "Cotangent of rms_norm's input";
  let description = [{
    rstd · (g - n · mean(g · n)) per row, where g = grad · weight and n = x · rstd. The
    result has the input's type.

    **Constraints**
    - `input` has rank 1 or more; `grad` and the result have its type.
    - `weight`, where present, is a vector of the last dimension's size.
    - `rstd` has the input's shape without the last dimension, in f32 (f64 for an input
      of f64).

    Example:
    ```mlir
    %dx = nn.rms_norm_grad %dy, %x, %rstd weight %w : tensor<2x8xbf16>, tensor<2xf32>, weight tensor<8xbf16> -> tensor<2x8xbf16>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$grad, NN_FloatTensor:$input,
                       Optional<NN_FloatTensor>:$weight, NN_StatTensor:$rstd);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $grad `,` $input `,` $rstd (`weight` $weight^)? attr-dict `:`
    type($input) `,` type($rstd) (`,` `weight` type($weight)^)? `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_NormWeightGradOp : NN_Op<"norm_weight_grad", MultilinearIn<["Grad", "Rstd"]>, [Pure, Decomposes,
    AllTypesMatch<["grad", "input"]>,
    FusesOver<"allBut(getInput().getType().getRank() - 1, getInput())">,
    Keeps<["Mean", "Rstd"]>]> {
  let summary = "Cotangent of a norm's weight";
  let description = [{
    The sum over rows of grad · (x - mean) · rstd, a vector of the last dimension's size.
    With `mean` it is layer_norm's weight, without it rms_norm's.

    **Constraints**
    - `input` has rank 1 or more; `grad` has its type.
    - `rstd`, and `mean` where present, have the input's shape without the last
      dimension, in f32 (f64 for an input of f64).
    - The result is a vector of the last dimension's size.

    Example:
    ```mlir
    %dw = nn.norm_weight_grad %dy, %x mean %mean rstd %rstd : tensor<2x8xbf16>, tensor<2xf32>, mean tensor<2xf32> -> tensor<8xbf16>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$grad, NN_FloatTensor:$input,
                       Optional<NN_StatTensor>:$mean, NN_StatTensor:$rstd);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $grad `,` $input (`mean` $mean^)? `rstd` $rstd attr-dict `:`
    type($input) `,` type($rstd) (`,` `mean` type($mean)^)? `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_BatchNormOp : NN_Op<"batch_norm", NotLinear, [Pure, HasAdjoint, Decomposes,
    AllTypesMatch<["weight", "bias"]>,
    FusesOver<"allBut(1, getInput())">, Statistics<["Mean", "Variance"]>]> {
  let summary = "Normalises channels by the batch's own statistics";
  let description = [{
    (x - mean) / sqrt(variance + epsilon) · weight + bias, where mean and (biased)
    variance of each channel, axis 1, are over all other axes. Both are results:
    `fsdp.update_statistics` applies them to the running statistics (Ioffe and Szegedy,
    Batch Normalization, 2015).

    **Constraints**
    - The input has rank 2 or more; the result has its type.
    - `weight` is a vector with one element per channel, and `bias` has its type.
    - `mean` and `variance` are vectors with one element per channel, in f32 (f64 for
      an input of f64).

    Example:
    ```mlir
    %y, %mean, %variance = nn.batch_norm %x, %w, %b {epsilon = 1.0e-5 : f64} : tensor<2x3x4x4xf32>, tensor<3xf32> -> tensor<2x3x4x4xf32>, tensor<3xf32>, tensor<3xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$weight,
                       NN_FloatTensor:$bias, F64Attr:$epsilon);
  let results = (outs NN_FloatTensor:$result, NN_StatTensor:$mean, NN_StatTensor:$variance);
  let assemblyFormat = [{
    $input `,` $weight `,` $bias attr-dict `:` type($input) `,` type($weight) `->` type(results)
  }];
  let hasVerifier = 1;
}

def NN_BatchNormGradOp : NN_Op<"batch_norm_grad", LinearIn<["Grad"]>, [Pure, Decomposes,
    AllTypesMatch<["grad", "input"]>, AllTypesMatch<["mean", "variance"]>,
    FusesOver<"allBut(1, getInput())">, Keeps<["Mean", "Variance"]>]> {
  let summary = "Cotangents of batch_norm's input, weight and bias";
  let description = [{
    With n = (x - mean) / sqrt(variance + epsilon) per channel: dbias = Σ grad,
    dweight = Σ grad · n, and dinput = weight / sqrt(variance + epsilon) ·
    (grad - mean(grad) - n · mean(grad · n)).

    **Constraints**
    - `input` has rank 2 or more; `grad` and `dinput` have its type.
    - `weight` is a vector with one element per channel; `dweight` and `dbias` have its
      type.
    - `mean` and `variance` are vectors with one element per channel, in f32 (f64 for
      an input of f64).

    Example:
    ```mlir
    %dx, %dw, %db = nn.batch_norm_grad %dy, %x, %w, %mean, %variance {epsilon = 1.0e-5 : f64} : tensor<2x3x4x4xf32>, tensor<3xf32>, tensor<3xf32> -> tensor<2x3x4x4xf32>, tensor<3xf32>, tensor<3xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$grad, NN_FloatTensor:$input,
                       NN_FloatTensor:$weight, NN_StatTensor:$mean,
                       NN_StatTensor:$variance, F64Attr:$epsilon);
  let results = (outs NN_FloatTensor:$dinput, NN_FloatTensor:$dweight, NN_FloatTensor:$dbias);
  let assemblyFormat = [{
    $grad `,` $input `,` $weight `,` $mean `,` $variance attr-dict `:`
    type($input) `,` type($weight) `,` type($mean) `->` type(results)
  }];
  let hasVerifier = 1;
}

#endif
