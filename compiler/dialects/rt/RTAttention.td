// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention and its gradient, with their plan. On the host the runtime computes the
// products of a block of scores and calls the kernel of its rows in between; on a
// GPU a fused library call or batched products take the place of both.
#ifndef FSDPC_RT_ATTENTION
#define FSDPC_RT_ATTENTION

include "compiler/dialects/rt/RTBase.td"

def RT_AttentionPlan : AttrDef<RT_Dialect, "AttentionPlan",
    [DeclareAttrInterfaceMethods<PlanAttrInterface, ["countExps"]>]> {
  let mnemonic = "attention";
  let summary = "shape, strides and mask of attention";
  let description = [{
    `query` is batch, heads, queries, width; `key` is batch, groups, keys, width,
    where heads are a multiple of groups; `valueWidth` is the width of a value.
    Strides are in elements, per batch, head and row; elements of a row are dense.
    The mask's have a fourth entry, per key, and are 0 where the mask broadcasts.
    `causal` hides key s from query t where s > t + keys - queries.

    `output` is the result of the forward and an operand of the backward. The
    strides after `grad` are the backward's alone: of the output's cotangent, then
    of the cotangents of query, key and value. `library` names the library on GPUs
    and is absent on the host.

    **Constraints**
    - `element` is f32, bf16 or f16, `mask` one of them or i1, and `scale` finite in f32.
    - Query and key have 4 extents, with equal batch and width; heads are a multiple of
      groups. Extents and the width of a value are from 1 to 2^31 - 1.
    - Strides are not negative, each times its extent is at most 2^48, and those of results
      keep rows apart.
    - `library` is `cudnn` or `products`. `cudnn` takes bf16 and f16 without a mask, as
      many queries as keys if `causal`, widths that are a multiple of 8 up to 128, and
      strides that are a multiple of 16 bytes.
  }];
  let parameters = (ins "::mlir::Type":$element,
      "::mlir::DenseI64ArrayAttr":$query, "::mlir::DenseI64ArrayAttr":$key,
      "int64_t":$valueWidth, "::mlir::FloatAttr":$scale, "bool":$causal,
      "::mlir::DenseI64ArrayAttr":$strideQuery, "::mlir::DenseI64ArrayAttr":$strideKey,
      "::mlir::DenseI64ArrayAttr":$strideValue, "::mlir::DenseI64ArrayAttr":$strideOutput,
      OptionalParameter<"::mlir::Type">:$mask,
      OptionalParameter<"::mlir::DenseI64ArrayAttr">:$strideMask,
      OptionalParameter<"::mlir::DenseI64ArrayAttr">:$strideGrad,
      OptionalParameter<"::mlir::DenseI64ArrayAttr">:$strideDQuery,
      OptionalParameter<"::mlir::DenseI64ArrayAttr">:$strideDKey,
      OptionalParameter<"::mlir::DenseI64ArrayAttr">:$strideDValue,
      OptionalParameter<"::mlir::StringAttr">:$library);
  let assemblyFormat = [{
    `<` $element `,` $query `,` $key `,` $valueWidth `scale` $scale `causal` $causal
    `strides` $strideQuery `,` $strideKey `,` $strideValue `->` $strideOutput
    (`mask` $mask^ $strideMask)?
    (`grad` $strideGrad^ `->` $strideDQuery `,` $strideDKey `,` $strideDValue)?
    (`library` $library^)? `>`
  }];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Return the bytes from the first element of a tensor to its last. That of a mask is 0
    /// without one. The tensors from `grad` on are the backward's.
    int64_t bytesOfQuery() const;
    int64_t bytesOfKey() const;
    int64_t bytesOfValue() const;
    int64_t bytesOfMask() const;
    int64_t bytesOfOutput() const;
    int64_t bytesOfLse() const;
    int64_t bytesOfGrad() const;
    int64_t bytesOfDQuery() const;
    int64_t bytesOfDKey() const;
    int64_t bytesOfDValue() const;
  }];
}

def RT_AttentionOp : RT_Command<"attention", "compute", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Computes attention";
  let description = [{
    Calls `fsdpc_attention` on stream `compute`. Writes
    softmax(q · kᵀ · scale + mask) · v to `output`, and the log-sum-exp of each row of
    scores (f32, dense) to `lse`. `rows` is the kernel between the two products. The
    host runs it once per block of scores; on GPUs there is none, since the library
    has its own. Its buffers are:

    - scores (f32): q · kᵀ of the block; overwritten
    - weights: softmax weights in the plan's type; the same memory as the scores if
      that type is f32
    - lse: one value per row of the block
    - mask: at the block's first row and key, or null
    - int64[4]: [0] keys in the block; [1] row stride of scores and weights, a
      multiple of 16; [2] keys that the first row sees (causal: each later row sees
      one more); [3] row stride of the mask

    The kernel writes 0 as the weight of every key that a row does not see.

    **Constraints**
    - `rows`, where present, names a function marked `nn.kernel`.
    - `mask` is present where the plan has a mask, and only there.

    Example:
    ```mlir
    func.func private @attention_rows(%q: tensor<2x2x4x8xf32>, %k: tensor<2x1x6x8xf32>, %v: tensor<2x1x6x8xf32>)
        -> (tensor<2x2x4x8xf32>, tensor<2x2x4xf32>) attributes {nn.kernel, nn.rows} {
      %o, %lse = nn.attention %q, %k, %v {scale = 0.5 : f64}
        : tensor<2x2x4x8xf32>, tensor<2x1x6x8xf32>, tensor<2x1x6x8xf32> -> tensor<2x2x4x8xf32>, tensor<2x2x4xf32>
      return %o, %lse : tensor<2x2x4x8xf32>, tensor<2x2x4xf32>
    }
    %o = rt.pointer arena + 1280 bytes 512
    %lse = rt.pointer arena + 1792 bytes 64
    rt.attention <f32, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8]> @attention_rows(%q, %k, %v) -> %o, %lse
    ```
  }];
  let arguments = (ins RT_PlanIndex<RT_AttentionPlan>:$plan, RT_Kernel<OptionalAttr<FlatSymbolRefAttr>>:$rows,
                       RT_Read<"getPlan().bytesOfQuery()">:$query,
                       RT_Read<"getPlan().bytesOfKey()">:$key,
                       RT_Read<"getPlan().bytesOfValue()">:$value,
                       RT_Read<"getPlan().bytesOfMask()", Optional<RT_Pointer>>:$mask,
                       RT_Written<"getPlan().bytesOfOutput()">:$output,
                       RT_Written<"getPlan().bytesOfLse()">:$lse);
  let assemblyFormat = [{
    $plan ($rows^)? `(` $query `,` $key `,` $value (`mask` $mask^)? `)` `->` $output `,` $lse attr-dict
  }];
}

def RT_AttentionGradOp : RT_Command<"attention_grad", "compute",
    [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Computes the cotangents of attention's query, key and value";
  let description = [{
    Calls `fsdpc_attention_grad` on stream `compute`. Reads `grad` (the output's
    cotangent), the operands of the forward and its results `output` and `lse`;
    writes `dquery`, `dkey` and `dvalue`. `rows` is as for `rt.attention`, with these
    buffers:

    - scores, weights, lse, mask: as for `rt.attention`, but lse is read
    - dweights (f32): grad · vᵀ of the block; overwritten
    - dscores: in the plan's type; the same memory as dweights if that type is f32
    - grad, output: at the block's first row
    - int64[6]: [0] to [3] as for `rt.attention`; [4] row stride of grad; [5] row
      stride of output

    **Constraints**
    - `rows`, where present, names a function marked `nn.kernel`.
    - `mask` is present where the plan has a mask, and only there.
    - The plan has the strides that follow `grad`.

    Example:
    ```mlir
    rt.attention_grad <bf16, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8] grad [64, 32, 8] -> [64, 32, 8], [48, 0, 8], [48, 0, 8] library "cudnn">(%do, %q, %k, %v, %o, %lse) -> %dq, %dk, %dv
    ```
  }];
  let arguments = (ins RT_PlanIndex<RT_AttentionPlan>:$plan, RT_Kernel<OptionalAttr<FlatSymbolRefAttr>>:$rows,
                       RT_Read<"getPlan().bytesOfGrad()">:$grad,
                       RT_Read<"getPlan().bytesOfQuery()">:$query,
                       RT_Read<"getPlan().bytesOfKey()">:$key,
                       RT_Read<"getPlan().bytesOfValue()">:$value,
                       RT_Read<"getPlan().bytesOfOutput()">:$output,
                       RT_Read<"getPlan().bytesOfLse()">:$lse,
                       RT_Read<"getPlan().bytesOfMask()", Optional<RT_Pointer>>:$mask,
                       RT_Written<"getPlan().bytesOfDQuery()">:$dquery,
                       RT_Written<"getPlan().bytesOfDKey()">:$dkey,
                       RT_Written<"getPlan().bytesOfDValue()">:$dvalue);
  let assemblyFormat = [{
    $plan ($rows^)? `(` $grad `,` $query `,` $key `,` $value `,` $output `,` $lse
    (`mask` $mask^)? `)` `->` $dquery `,` $dkey `,` $dvalue attr-dict
  }];
}

#endif
