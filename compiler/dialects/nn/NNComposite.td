// Composites: softmax, norms, attention, losses.
#ifndef FSDPC_NN_COMPOSITE
#define FSDPC_NN_COMPOSITE

include "compiler/dialects/nn/NNShape.td"

// ---- softmax, along the last axis ----

def NN_SoftmaxOp : NN_Op<"softmax", [Pure, SameOperandsAndResultType, HasAdjoint, Decomposes]> {
  let summary = "exp(x - max) / Σ exp(x - max) along the last axis";
  let arguments = (ins NN_FloatTensor:$input);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

def NN_SoftmaxGradOp : NN_Op<"softmax_grad", [Pure, SameOperandsAndResultType, Decomposes]> {
  let summary = "y · (dy - Σ dy · y) along the last axis";
  let arguments = (ins NN_FloatTensor:$output, NN_FloatTensor:$grad);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$output `,` $grad attr-dict `:` type($result)";
}

def NN_LogSoftmaxOp : NN_Op<"log_softmax", [Pure, SameOperandsAndResultType, HasAdjoint, Decomposes]> {
  let summary = "x - log Σ exp(x) along the last axis";
  let arguments = (ins NN_FloatTensor:$input);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

// ---- norms ----

def NN_LayerNormOp : NN_Op<"layer_norm", [Pure, HasAdjoint, Decomposes, AttrSizedOperandSegments]> {
  let summary = "(x - mean) · rstd · weight + bias along the last axis";
  let description = [{
    `weight` and `bias` have the last dimension; either may be absent, but a bias
    needs a weight. `mean` and `rstd` (1 / sqrt(variance + epsilon)) have the
    input's shape without the last dimension. Norms over several trailing axes
    are imported through a reshape.
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
    AllTypesMatch<["grad", "input"]>, AllTypesMatch<["mean", "rstd"]>]> {
  let summary = "cotangent of layer_norm's input";
  let arguments = (ins NN_FloatTensor:$grad, NN_FloatTensor:$input,
                       Optional<NN_FloatTensor>:$weight, NN_StatTensor:$mean,
                       NN_StatTensor:$rstd);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $grad `,` $input `,` $mean `,` $rstd (`weight` $weight^)? attr-dict `:`
    type($input) `,` type($mean) (`,` `weight` type($weight)^)? `->` type($result)
  }];
}

def NN_RmsNormOp : NN_Op<"rms_norm", [Pure, HasAdjoint, Decomposes]> {
  let summary = "x · rstd · weight along the last axis, rstd = 1 / sqrt(mean(x²) + epsilon)";
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
    AllTypesMatch<["grad", "input"]>]> {
  let summary = "cotangent of rms_norm's input";
  let arguments = (ins NN_FloatTensor:$grad, NN_FloatTensor:$input,
                       Optional<NN_FloatTensor>:$weight, NN_StatTensor:$rstd);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $grad `,` $input `,` $rstd (`weight` $weight^)? attr-dict `:`
    type($input) `,` type($rstd) (`,` `weight` type($weight)^)? `->` type($result)
  }];
}

def NN_NormWeightGradOp : NN_Op<"norm_weight_grad", [Pure, Decomposes,
    AllTypesMatch<["grad", "input"]>]> {
  let summary = "Σ over rows of grad · (x - mean) · rstd: cotangent of a norm's weight";
  let description = [{ Without `mean` it is rms_norm's. }];
  let arguments = (ins NN_FloatTensor:$grad, NN_FloatTensor:$input,
                       Optional<NN_StatTensor>:$mean, NN_StatTensor:$rstd);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $grad `,` $input (`mean` $mean^)? `rstd` $rstd attr-dict `:`
    type($input) `,` type($rstd) (`,` `mean` type($mean)^)? `->` type($result)
  }];
}

def NN_BatchNormOp : NN_Op<"batch_norm", [Pure, HasAdjoint, Decomposes,
    AllTypesMatch<["weight", "bias"]>]> {
  let summary = "normalises each channel (axis 1) by the batch's own statistics";
  let description = [{
    `mean` and `variance` (biased) have the channels' length; the running
    statistics are updated from them by `fsdp.update_statistics`.
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
    AllTypesMatch<["grad", "input"]>, AllTypesMatch<["mean", "variance"]>]> {
  let summary = "cotangents of batch_norm's input, weight and bias";
  let arguments = (ins NN_FloatTensor:$grad, NN_FloatTensor:$input,
                       NN_FloatTensor:$weight, NN_StatTensor:$mean,
                       NN_StatTensor:$variance, F64Attr:$epsilon);
  let results = (outs NN_FloatTensor:$dinput, NN_FloatTensor:$dweight, NN_FloatTensor:$dbias);
  let assemblyFormat = [{
    $grad `,` $input `,` $weight `,` $mean `,` $variance attr-dict `:`
    type($input) `,` type($weight) `,` type($mean) `->` type(results)
  }];
}

// ---- attention ----

def NN_RotaryOp : NN_Op<"rotary", [Pure, HasAdjoint, Decomposes,
    AllTypesMatch<["input", "result"]>]> {
  let summary = "rotary position embedding, halves rotated: x · cos + rotate_half(x) · sin";
  let description = [{
    rotate_half(x) = concat(-x[d/2:], x[:d/2]) along the last axis of size d.
    `cos` and `sin` broadcast to the input (dimensions 1 or equal, same rank).
    With `transposed`: x · cos - rotate_half(x · sin), the adjoint, which is the
    rotation by the negative angle where both halves of `sin` are equal.
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$cos,
                       NN_FloatTensor:$sin, UnitAttr:$transposed);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $cos `,` $sin attr-dict `:` type($input) `,` type($cos) `,` type($sin)
  }];
  let hasVerifier = 1;
}

def NN_AttentionOp : NN_Op<"attention", [Pure, HasAdjoint]> {
  let summary = "softmax(q · kᵀ · scale + mask) · v for each batch and head";
  let description = [{
    q: B×H×T×d, k: B×G×S×d, v: B×G×S×e with H a multiple of G: query heads
    h·(H/G) … share key head h. `mask` has rank 4, each dimension 1 or that of
    B×H×T×S: i1 keeps where true, floats are added. `causal` keeps key s for
    query t where s ≤ t + (S - T). A row without any key gives zeroes.
    `lse` (B×H×T, f32) is the rows' log-sum-exp, all that the adjoint saves
    beside operands and result.
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

def NN_AttentionGradOp : NN_Op<"attention_grad", [Pure]> {
  let summary = "cotangents of attention's query, key and value";
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
}

// ---- losses ----

def NN_Reduction : I32EnumAttr<"Reduction", "reduction of a loss", [
    I32EnumAttrCase<"mean", 0>, I32EnumAttrCase<"sum", 1>]> {
  let cppNamespace = "::fsdpc::nn";
}

def NN_CrossEntropyOp : NN_Op<"cross_entropy", [Pure, HasAdjoint, Decomposes]> {
  let summary = "mean or sum over rows of weight[target] · (lse - logits[target])";
  let description = [{
    logits: R×C, targets: R. Rows whose target is `ignore_index` count nothing;
    `valid` is the sum of weights of the others (their number without
    `weights`: C). A mean over no row is 0, with zero gradient.
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
    AllTypesMatch<["grad", "valid"]>]> {
  let summary = "cotangent of cross_entropy's logits";
  let description = [{ `grad` is the loss's cotangent, a scalar. }];
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
}

def NN_CrossEntropyRowsOp : NN_Op<"cross_entropy_rows", [Pure, Decomposes,
    AllTypesMatch<["logits", "dlogits"]>, AllTypesMatch<["weights", "factors", "losses"]>]> {
  let summary = "each row's weight · (lse - logits[target]) and factor · (softmax - onehot)";
  let description = [{
    A row of `nn.linear_cross_entropy`: logits R×C, the others R. A row of weight
    0 gives zeroes, whatever its logits.
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
    AllTypesMatch<["weight", "dweight"]>]> {
  let summary = "cross_entropy of input · weight (+ bias), and its gradients in the same pass";
  let description = [{
    input: R×K, weight: K×C (C×K with `transpose_weight`), bias: C; the other
    operands are cross_entropy's. The gradients are those of `loss`, so that its
    adjoint only scales them: logits are computed once, a block of rows at a time
    (`decompose-linear-cross-entropy`), and never exist whole (Wijmans et al., Cut
    Your Losses in Large-Vocabulary Language Models, 2024).
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$weight,
                       Optional<NN_FloatTensor>:$bias, NN_IntTensor:$targets,
                       Optional<NN_FloatTensor>:$weights, NN_Reduction:$reduction,
                       OptionalAttr<I64Attr>:$ignore_index, UnitAttr:$transpose_weight);
  let results = (outs NN_StatTensor:$loss, NN_StatTensor:$valid,
                      NN_FloatTensor:$dinput, NN_FloatTensor:$dweight,
                      Optional<NN_FloatTensor>:$dbias);
  let assemblyFormat = [{
    $reduction $input `,` $weight `,` $targets (`bias` $bias^)? (`weights` $weights^)?
    attr-dict `:` type($input) `,` type($weight) `,` type($targets)
    (`bias` type($bias)^)? (`weights` type($weights)^)? `->` type($loss) `,`
    type($valid) (`,` type($dbias)^)?
  }];
  let hasVerifier = 1;
}

#endif
