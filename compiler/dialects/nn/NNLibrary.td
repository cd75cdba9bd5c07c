// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops that become calls of a library (matrix products, convolution, pooling), and
// the launch of an outlined kernel. The shapes follow ONNX: images are NCHW,
// filters OIHW, and pads are given for each side.
#ifndef FSDPC_NN_LIBRARY
#define FSDPC_NN_LIBRARY

include "compiler/dialects/nn/NNBase.td"

def NN_MatmulOp : NN_Op<"matmul", HasLinearity, [Pure, HasAdjoint,
    CallsLibrary<HasResultAxis,
                 ["getFlops", "getOverwritten", "canAddBias", "addBias", "writesPieces"]>]> {
  let summary = "Batched matrix product";
  let description = [{
    C = A · B, where A is [batch…, M, K] ([batch…, K, M] with `transpose_a`) and B is
    [batch…, K, N] ([batch…, N, K] with `transpose_b`). Batch dimensions broadcast. Sums
    are f32 whatever the elements are. They start from `accumulator`, whose memory the
    result then takes; an accumulator of one row of N is a bias, added to all rows.

    **Constraints**
    - Operands and result have rank 2 or more, A and B the same element type.
    - A and B have the same K; the result ends in M×N.
    - Each batch dimension of A and B is absent, 1 or the result's, and one of them is
      the result's.
    - `accumulator`, where present, has the result's type, or is a vector of N of its
      element type.

    Example:
    ```mlir
    %y = nn.matmul %x, %w {transpose_b} : tensor<2x3x4xf32>, tensor<5x4xf32> -> tensor<2x3x5xf32>
    %sum = nn.matmul %x, %w accumulate %y {transpose_b} : tensor<2x3x4xf32>, tensor<5x4xf32>, accumulate tensor<2x3x5xf32> -> tensor<2x3x5xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$lhs, NN_FloatTensor:$rhs,
                       Optional<NN_FloatTensor>:$accumulator,
                       UnitAttr:$transpose_a, UnitAttr:$transpose_b);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs (`accumulate` $accumulator^)? attr-dict `:` type($lhs) `,`
    type($rhs) (`,` `accumulate` type($accumulator)^)? `->` type($result)
  }];
  let hasVerifier = 1;
  let hasCanonicalizer = 1; // transposes of the last two axes fold in
}

def NN_Epilogue : I32EnumAttr<"Epilogue", "what a product does with its sums", [
    I32EnumAttrCase<"none", 0>, I32EnumAttrCase<"gelu", 1>, I32EnumAttrCase<"gelu_grad", 2>,
    I32EnumAttrCase<"sum_lhs", 3>, I32EnumAttrCase<"sum_rhs", 4>]> {
  let cppNamespace = "::fsdpc::nn";
}

def NN_FusedMatmulOp : NN_Op<"fused_matmul", NotLinear, [Pure, AttrSizedOperandSegments,
    CallsLibrary<NoAxes, ["getFlops", "writesPieces"]>]> {
  let summary = "Matrix product with an epilogue, in one pass over memory";
  let description = [{
    For GPUs: cuBLASLt's epilogues. X = A · B + `addend` + `bias` in f32, where A and B are as
    in `nn.matmul`, `addend` is a whole result that stays as it is, and `bias` is one row. The
    results are, by `epilogue`:

    | epilogue | result | extra |
    |---|---|---|
    | `none` | X | – |
    | `gelu` | `nn.gelu tanh` of X | X, for the gradient; left out if nothing reads it |
    | `gelu_grad` | `nn.gelu_grad tanh` at `input` of X | – |
    | `sum_lhs` | X | the sum of each row of A (after `transpose_a`): the gradient of a bias |
    | `sum_rhs` | X | the sum of each column of B |

    **Constraints**
    - Result, A and B are as in `nn.matmul`, all of one element type. B is one matrix, and so is
      a transposed A.
    - `addend`, `input` and `extra` of `gelu` have the result's type. `bias` is a row of it.
    - `input` is there with `gelu_grad`, and only there. That has neither bias nor addend.
    - With `sum_lhs` and `sum_rhs`, A is one transposed matrix, and there is neither bias nor
      addend. `extra` has M or N elements.
    - With `gelu` and `gelu_grad`, N is a multiple of 8.

    Example:
    ```mlir
    %y, %x = nn.fused_matmul gelu %a, %w bias %b : (tensor<4x8xbf16>, tensor<8x16xbf16>, tensor<16xbf16>) -> (tensor<4x16xbf16>, tensor<4x16xbf16>)
    %dx = nn.fused_matmul gelu_grad %dy, %v input %x {transpose_b} : (tensor<4x6xbf16>, tensor<16x6xbf16>, tensor<4x16xbf16>) -> tensor<4x16xbf16>
    %dw, %db = nn.fused_matmul sum_rhs %a, %dx {transpose_a} : (tensor<4x8xbf16>, tensor<4x16xbf16>) -> (tensor<8x16xbf16>, tensor<16xbf16>)
    ```
  }];
  let arguments = (ins NN_FloatTensor:$lhs, NN_FloatTensor:$rhs,
                       Optional<NN_FloatTensor>:$bias, Optional<NN_FloatTensor>:$addend,
                       Optional<NN_FloatTensor>:$input, NN_Epilogue:$epilogue,
                       UnitAttr:$transpose_a, UnitAttr:$transpose_b);
  let results = (outs NN_FloatTensor:$result, Optional<NN_FloatTensor>:$extra);
  let assemblyFormat = [{
    $epilogue $lhs `,` $rhs (`bias` $bias^)? (`plus` $addend^)? (`input` $input^)?
    attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

class NN_Window<string mnemonic, NN_Linearity linearity, list<Trait> traits>
    : NN_Op<mnemonic, linearity, traits> {
  let hasVerifier = 1;
}

def NN_Conv2dOp : NN_Window<"conv2d", Multilinear, [Pure, HasAdjoint,
    CallsLibrary<Axes<[Axis<"Input", 0, 0>, Axis<"Filter", 0, 1>]>, ["getFlops"]>]> {
  let summary = "2-D convolution";
  let description = [{
    Convolves images N×C×H×W with filters O×(C / groups)×h×w. `strides` and
    `dilations` are along height and width, `pads` are zeros at top, left, bottom and
    right. Group g of the output channels sees group g of the input channels.

    **Constraints**
    - Input, filter and result have rank 4.
    - There are two strides and two dilations, all positive, and four pads, none
      negative.
    - `groups` is positive, times the filter's second dimension it is C, and it divides O.
    - The result is N×O×H'×W' with
      H' = (H + top + bottom - dilation · (h - 1) - 1) / stride + 1, rounded down, and
      W' likewise.

    Example:
    ```mlir
    %y = nn.conv2d %x, %f {dilations = array<i64: 1, 1>, groups = 2 : i64, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>}
      : tensor<2x4x8x8xf32>, tensor<6x2x3x3xf32> -> tensor<2x6x4x4xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$filter,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads,
                       DenseI64ArrayAttr:$dilations, I64Attr:$groups);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input `,` $filter attr-dict `:` type($input) `,` type($filter) `->` type($result)";
}

def NN_Conv2dGradInputOp : NN_Window<"conv2d_grad_input", Multilinear, [Pure, HasAdjoint,
    CallsLibrary<Axes<[Axis<"Grad", 0, 0>]>, ["getFlops"]>]> {
  let summary = "Cotangent of conv2d's input: transposed convolution";
  let description = [{
    The transposed convolution of the result's cotangent, `grad`, with the same filter.
    The attributes are those of the `nn.conv2d`. ONNX's ConvTranspose is this op in the
    forward; its own adjoint is the `nn.conv2d` and that one's `nn.conv2d_grad_filter`.

    **Constraints**
    - Those of an `nn.conv2d` whose input has the result's type and whose result has
      the type of `grad`.

    Example:
    ```mlir
    %dx = nn.conv2d_grad_input %dy, %f {dilations = array<i64: 1, 1>, groups = 2 : i64, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>}
      : tensor<2x6x4x4xf32>, tensor<6x2x3x3xf32> -> tensor<2x4x8x8xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$grad, NN_FloatTensor:$filter,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads,
                       DenseI64ArrayAttr:$dilations, I64Attr:$groups);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$grad `,` $filter attr-dict `:` type($grad) `,` type($filter) `->` type($result)";
}

def NN_Conv2dGradFilterOp : NN_Window<"conv2d_grad_filter", Multilinear, [Pure,
    CallsLibrary<Axes<[Axis<"Grad", 1, 0>]>, ["getFlops", "lendsResults"]>]> {
  let summary = "Cotangent of conv2d's filter";
  let description = [{
    The correlation of the input with the result's cotangent, `grad`. The attributes are
    those of the `nn.conv2d`.

    **Constraints**
    - Those of an `nn.conv2d` whose filter has the result's type and whose result has
      the type of `grad`.

    Example:
    ```mlir
    %df = nn.conv2d_grad_filter %dy, %x {dilations = array<i64: 1, 1>, groups = 2 : i64, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>}
      : tensor<2x6x4x4xf32>, tensor<2x4x8x8xf32> -> tensor<6x2x3x3xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$grad, NN_FloatTensor:$input,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads,
                       DenseI64ArrayAttr:$dilations, I64Attr:$groups);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$grad `,` $input attr-dict `:` type($grad) `,` type($input) `->` type($result)";
}

def NN_MaxPool2dOp : NN_Window<"max_pool2d", NotLinear, [Pure, HasAdjoint,
    CallsLibrary<FirstAxes<2>, ["lendsResults"]>]> {
  let summary = "Maximum of each window";
  let description = [{
    `index` is the position of the maximum within its window, row by row; of equal
    elements it is the first. Padding is never chosen. A window with a NaN gives NaN and
    the position of the first. The adjoint, `nn.max_pool2d_grad`, reads the index alone.

    **Constraints**
    - Input and result have rank 4.
    - There are two kernel sizes and two strides, all positive, and four pads, not
      negative and smaller than the kernel.
    - The result has the input's first two dimensions and as many windows as fit, which
      is the rule of `nn.conv2d` with dilations of 1.
    - `index` is a tensor of i32 of the result's shape.

    Example:
    ```mlir
    %y, %index = nn.max_pool2d %x {kernel = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>}
      : tensor<2x4x8x8xf32> -> tensor<2x4x4x4xf32>, tensor<2x4x4x4xi32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, DenseI64ArrayAttr:$kernel,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads);
  let results = (outs NN_FloatTensor:$result, StaticShapeTensorOf<[I32]>:$index);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type(results)";
}

def NN_MaxPool2dGradOp : NN_Window<"max_pool2d_grad", LinearIn<["Grad"]>, [Pure,
    CallsLibrary<FirstAxes<2>, ["lendsResults"]>]> {
  let summary = "Cotangent of max_pool2d's input";
  let description = [{
    Adds each element of `grad` to the element of the input that `index` names. The
    attributes are those of the `nn.max_pool2d`.

    **Constraints**
    - Those of an `nn.max_pool2d` whose input has the result's type and whose result has
      the type of `grad`.

    Example:
    ```mlir
    %dx = nn.max_pool2d_grad %dy, %index {kernel = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>}
      : tensor<2x4x4x4xf32>, tensor<2x4x4x4xi32> -> tensor<2x4x8x8xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$grad, StaticShapeTensorOf<[I32]>:$index,
                       DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$strides,
                       DenseI64ArrayAttr:$pads);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$grad `,` $index attr-dict `:` type($grad) `,` type($index) `->` type($result)";
}

def NN_AvgPool2dOp : NN_Window<"avg_pool2d", Linear, [Pure, HasAdjoint,
    CallsLibrary<FirstAxes<2>, ["lendsResults"]>]> {
  let summary = "Mean of each window";
  let description = [{
    The sum over a window, divided by the number of its elements within the image, or
    by the window's size with `count_padding`.

    **Constraints**
    - Input and result have rank 4.
    - There are two kernel sizes and two strides, all positive, and four pads, not
      negative and smaller than the kernel.
    - The result has the input's first two dimensions and as many windows as fit, which
      is the rule of `nn.conv2d` with dilations of 1.

    Example:
    ```mlir
    %y = nn.avg_pool2d %x {count_padding, kernel = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 2, 2>}
      : tensor<2x4x8x8xf32> -> tensor<2x4x4x4xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, DenseI64ArrayAttr:$kernel,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads,
                       UnitAttr:$count_padding);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}

def NN_AvgPool2dGradOp : NN_Window<"avg_pool2d_grad", Linear, [Pure,
    CallsLibrary<FirstAxes<2>, ["lendsResults"]>]> {
  let summary = "Cotangent of avg_pool2d's input";
  let description = [{
    Spreads each element of `grad`, divided as in the forward, over its window. The
    attributes are those of the `nn.avg_pool2d`.

    **Constraints**
    - Those of an `nn.avg_pool2d` whose input has the result's type and whose result has
      the type of `grad`.

    Example:
    ```mlir
    %dx = nn.avg_pool2d_grad %dy {count_padding, kernel = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 2, 2>}
      : tensor<2x4x4x4xf32> -> tensor<2x4x8x8xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$grad, DenseI64ArrayAttr:$kernel,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads,
                       UnitAttr:$count_padding);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$grad attr-dict `:` type($grad) `->` type($result)";
}

// ---- outlined kernels ----

def NN_LaunchOp : NN_Op<"launch", NotLinear, [Pure,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Runs an outlined kernel";
  let description = [{
    Calls a kernel: a private `func.func` marked `nn.kernel`, whose body is primitives
    and becomes one loop nest. `outline-kernels` makes kernels of groups of ops. `tied`
    has one entry per result: the operand whose memory the result may take, or -1
    (`tie-operands`); the planner decides whether it does.

    **Constraints**
    - `kernel` names a function marked `nn.kernel`.
    - Operands and results have the types of the function.
    - `tied`, where present, has one entry per result, which is -1 or the number of an
      operand; no operand is tied twice.

    Example:
    ```mlir
    func.func private @bias_gelu(%x: tensor<8x48xf32>, %b: tensor<48xf32>) -> tensor<8x48xf32> attributes {nn.kernel} {
      %rows = nn.broadcast %b : tensor<48xf32> -> tensor<8x48xf32>
      %sum = nn.add %x, %rows : tensor<8x48xf32>
      %y = nn.gelu erf %sum : tensor<8x48xf32>
      return %y : tensor<8x48xf32>
    }
    %y = nn.launch @bias_gelu(%x, %b) {tied = array<i64: 0>} : (tensor<8x48xf32>, tensor<48xf32>) -> tensor<8x48xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<NN_Tensor>:$operands,
                       OptionalAttr<DenseI64ArrayAttr>:$tied);
  let results = (outs Variadic<NN_Tensor>:$outputs);
  let assemblyFormat = "$kernel `(` $operands `)` attr-dict `:` functional-type($operands, $outputs)";
}

#endif
