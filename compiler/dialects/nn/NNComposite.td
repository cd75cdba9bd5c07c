// Composites: softmax, norms, attention and losses, with their gradients. Each is
// the name of a fused kernel, kept as one op until `outline-kernels`, so that its
// adjoint needs only statistics and not the intermediate tensors. The formulas
// are PyTorch's; papers are named where an op comes from one.
#ifndef FSDPC_NN_COMPOSITE
#define FSDPC_NN_COMPOSITE

include "compiler/dialects/nn/NNShape.td"

// ---- softmax, along the last axis ----

def NN_SoftmaxOp : NN_Op<"softmax", [Pure, SameOperandsAndResultType, HasAdjoint, Decomposes,
    FusesOverRows<"getResult()">]> {
  let summary = "Softmax along the last axis";
  let description = [{
    exp(x - max) / Σ exp(x - max). A row that is -∞ throughout gives NaN, as in
    PyTorch. The adjoint is `nn.softmax_grad`, which reads the result alone.

    **Constraints**
    - Operand and result have the same type, a float tensor of rank 1 or more.

    Example:
    ```mlir
    %p = nn.softmax %x : tensor<8x48xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def NN_SoftmaxGradOp : NN_Op<"softmax_grad", [Pure, SameOperandsAndResultType, Decomposes,
    FusesOverRows<"getResult()">]> {
  let summary = "Cotangent of softmax's input";
  let description = [{
    y · (dy - Σ dy · y) along the last axis, from the result y of the forward and its
    cotangent dy.

    **Constraints**
    - Operands and result have the same type, a float tensor of rank 1 or more.

    Example:
    ```mlir
    %dx = nn.softmax_grad %p, %dp : tensor<8x48xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$output, NN_FloatTensor:$grad);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$output `,` $grad attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def NN_LogSoftmaxOp : NN_Op<"log_softmax", [Pure, SameOperandsAndResultType, HasAdjoint, Decomposes,
    FusesOverRows<"getResult()">]> {
  let summary = "Logarithm of softmax along the last axis";
  let description = [{
    x - max - log Σ exp(x - max). The adjoint is dy - exp(y) · Σ dy, in primitives.

    **Constraints**
    - Operand and result have the same type, a float tensor of rank 1 or more.

    Example:
    ```mlir
    %logp = nn.log_softmax %x : tensor<8x48xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
  let hasVerifier = 1;
}

// ---- norms ----

def NN_LayerNormOp : NN_Op<"layer_norm", [Pure, HasAdjoint, Decomposes, AttrSizedOperandSegments,
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

def NN_LayerNormGradOp : NN_Op<"layer_norm_grad", [Pure, Decomposes,
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

def NN_RmsNormOp : NN_Op<"rms_norm", [Pure, HasAdjoint, Decomposes,
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

def NN_RmsNormGradOp : NN_Op<"rms_norm_grad", [Pure, Decomposes,
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

def NN_NormWeightGradOp : NN_Op<"norm_weight_grad", [Pure, Decomposes,
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

def NN_BatchNormOp : NN_Op<"batch_norm", [Pure, HasAdjoint, Decomposes,
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

def NN_BatchNormGradOp : NN_Op<"batch_norm_grad", [Pure, Decomposes,
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

// ---- attention ----

def NN_RotaryOp : NN_Op<"rotary", [Pure, HasAdjoint, Decomposes,
    AllTypesMatch<["input", "result"]>,
    Fuses<"Index", ReadsAnyElement>, CheapToRepeat]> {
  let summary = "Rotary position embedding";
  let description = [{
    x · cos + rotate_half(x) · sin, where rotate_half(x) = concat(-x[d/2:], x[:d/2])
    along the last axis of size d. `cos` and `sin` broadcast to the input. With
    `transposed` it is the adjoint, x · cos - rotate_half(x · sin): the rotation by the
    negative angle where both halves of `sin` are equal. The tables get no gradient (Su
    et al., RoFormer, 2021).

    **Constraints**
    - Input and result have the same type; the last dimension is even.
    - `cos` and `sin` have the input's rank, and dimensions that are 1 or the input's.

    Example:
    ```mlir
    %r = nn.rotary %q, %cos, %sin : tensor<2x4x5x8xf32>, tensor<1x1x5x8xf32>, tensor<1x1x5x8xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$cos,
                       NN_FloatTensor:$sin, UnitAttr:$transposed);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $cos `,` $sin attr-dict `:` type($input) `,` type($cos) `,` type($sin)
  }];
  let hasVerifier = 1;
}

def NN_AttentionOp : NN_Op<"attention", [Pure, HasAdjoint,
    CallsLibrary<["getFlops", "takesStrides", "writesStrides"]>,
    Keeps<["Mask"]>, Statistics<["Lse"]>]> {
  let summary = "Scaled dot-product attention";
  let description = [{
    softmax(q · kᵀ · scale + mask) · v for each batch and head, where q is B×H×T×d, k is
    B×G×S×d and v is B×G×S×e. With H > G, grouped queries: each key head serves H / G
    query heads that follow each other. A mask of i1 keeps a key where true, a mask of
    floats is added to the scores. `causal` keeps key s for query t where
    s ≤ t + (S - T). A row that keeps no key gives zeros.

    `lse` is the log-sum-exp of each row of scores: all that the adjoint,
    `nn.attention_grad`, needs beside operands and result (Dao et al., FlashAttention,
    2022). The mask gets no gradient.

    **Constraints**
    - `query`, `key` and `value` have rank 4, with sizes that fit together as above.
    - H is a multiple of G.
    - `mask`, where present, has rank 4 and dimensions that are 1 or those of B×H×T×S;
      its elements are i1 or floats.
    - The result has the shape B×H×T×e, `lse` B×H×T in f32 (f64 for queries of f64).

    Example:
    ```mlir
    %o, %lse = nn.attention %q, %k, %v mask %mask {causal, scale = 0.35 : f64}
      : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32>, mask tensor<2x1x1x6xi1> -> tensor<2x4x5x3xf32>, tensor<2x4x5xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$query, NN_FloatTensor:$key,
                       NN_FloatTensor:$value, Optional<NN_Tensor>:$mask,
                       F64Attr:$scale, UnitAttr:$causal);
  let results = (outs NN_FloatTensor:$result, NN_StatTensor:$lse);
  let assemblyFormat = [{
    $query `,` $key `,` $value (`mask` $mask^)? attr-dict `:` type($query) `,`
    type($key) `,` type($value) (`,` `mask` type($mask)^)? `->` type(results)
  }];
  let hasVerifier = 1;
}

def NN_AttentionGradOp : NN_Op<"attention_grad", [Pure,
    CallsLibrary<["getFlops", "takesStrides", "writesStrides"]>,
    Keeps<["Lse", "Mask"]>]> {
  let summary = "Cotangents of attention's query, key and value";
  let description = [{
    Computes the probabilities again from query, key and `lse`, instead of keeping T×S
    of them: p = exp(q · kᵀ · scale + mask - lse), dv = pᵀ · grad,
    ds = p · (grad · vᵀ - Σ grad · output) · scale, dq = ds · k and dk = dsᵀ · q. Key
    heads sum over their query heads. The results have the types of query, key and
    value.

    **Constraints**
    - Attributes, operands and results are those of the `nn.attention` that it belongs
      to, whose constraints hold here: `grad` and `output` have its result's type.
    - `dquery`, `dkey` and `dvalue` have the types of query, key and value.

    Example:
    ```mlir
    %dq, %dk, %dv = nn.attention_grad %do, %q, %k, %v, %o, %lse {causal, scale = 0.35 : f64}
      : tensor<2x4x5x3xf32>, tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32>, tensor<2x4x5x3xf32>, tensor<2x4x5xf32>
      -> tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$grad, NN_FloatTensor:$query,
                       NN_FloatTensor:$key, NN_FloatTensor:$value,
                       NN_FloatTensor:$output, NN_StatTensor:$lse,
                       Optional<NN_Tensor>:$mask, F64Attr:$scale, UnitAttr:$causal);
  let results = (outs NN_FloatTensor:$dquery, NN_FloatTensor:$dkey, NN_FloatTensor:$dvalue);
  let assemblyFormat = [{
    $grad `,` $query `,` $key `,` $value `,` $output `,` $lse (`mask` $mask^)?
    attr-dict `:` type($grad) `,` type($query) `,` type($key) `,` type($value) `,`
    type($output) `,` type($lse) (`,` `mask` type($mask)^)? `->` type(results)
  }];
  let hasVerifier = 1;
}

// ---- losses ----

def NN_Reduction : I32EnumAttr<"Reduction", "reduction of a loss", [
    I32EnumAttrCase<"mean", 0>, I32EnumAttrCase<"sum", 1>]> {
  let cppNamespace = "::fsdpc::nn";
}

def NN_CrossEntropyOp : NN_Op<"cross_entropy", [Pure, HasAdjoint, Decomposes,
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

def NN_CrossEntropyGradOp : NN_Op<"cross_entropy_grad", [Pure, Decomposes,
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

def NN_CrossEntropyRowsOp : NN_Op<"cross_entropy_rows", [Pure, Decomposes,
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

def NN_LinearCrossEntropyOp : NN_Op<"linear_cross_entropy", [Pure, HasAdjoint,
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
