// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Composites: softmax and attention here, norms (NNNorms.td) and losses
// (NNLosses.td), with their gradients. Each is the name of a fused kernel, kept
// as one op until `outline-kernels`, so that its adjoint needs only statistics
// and not the intermediate tensors. The formulas are PyTorch's; papers are named
// where an op comes from one.
#ifndef FSDPC_NN_COMPOSITE
#define FSDPC_NN_COMPOSITE

include "compiler/dialects/nn/NNBase.td"

// ---- softmax, along the last axis ----

def NN_SoftmaxOp : NN_Op<"softmax", NotLinear, [Pure, SameOperandsAndResultType, HasAdjoint, Decomposes,
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

def NN_SoftmaxGradOp : NN_Op<"softmax_grad", LinearIn<["Grad"]>, [Pure, SameOperandsAndResultType, Decomposes,
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

def NN_LogSoftmaxOp : NN_Op<"log_softmax", NotLinear, [Pure, SameOperandsAndResultType, HasAdjoint, Decomposes,
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

// ---- attention ----

def NN_RotaryOp : NN_Op<"rotary", LinearIn<["Input"]>, [Pure, HasAdjoint, Decomposes,
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

def NN_AttentionOp : NN_Op<"attention", NotLinear, [Pure, HasAdjoint,
    CallsLibrary<FirstAxes<1>, ["getFlops", "takesStrides", "writesStrides"]>,
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

def NN_AttentionGradOp : NN_Op<"attention_grad", LinearIn<["Grad"]>, [Pure,
    CallsLibrary<FirstAxes<1>, ["getFlops", "takesStrides", "writesStrides"]>,
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

#endif
