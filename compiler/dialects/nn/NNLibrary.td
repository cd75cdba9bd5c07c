// Ops that become library calls: matrix products, convolution, pooling.
#ifndef FSDPC_NN_LIBRARY
#define FSDPC_NN_LIBRARY

include "compiler/dialects/nn/NNComposite.td"

def NN_MatmulOp : NN_Op<"matmul", [Pure, HasAdjoint]> {
  let summary = "batched matrix product, C = A · B (+ accumulator)";
  let description = [{
    A: [batch…, M, K] ([batch…, K, M] with `transpose_a`), B: [batch…, K, N]
    ([batch…, N, K] with `transpose_b`). Batch dimensions of one operand are those
    of the result, 1, or absent. Sums are f32 and start from the accumulator, whose
    memory the result then shares, or from one row of N for all rows: a bias.
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

class NN_Window<string mnemonic, list<Trait> traits> : NN_Op<mnemonic, traits> {
  let hasVerifier = 1;
}

def NN_Conv2dOp : NN_Window<"conv2d", [Pure, HasAdjoint]> {
  let summary = "convolution, NCHW by OIHW; pads are [top, left, bottom, right]";
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$filter,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads,
                       DenseI64ArrayAttr:$dilations, I64Attr:$groups);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input `,` $filter attr-dict `:` type($input) `,` type($filter) `->` type($result)";
}

def NN_Conv2dGradInputOp : NN_Window<"conv2d_grad_input", [Pure]> {
  let summary = "cotangent of conv2d's input";
  let arguments = (ins NN_FloatTensor:$grad, NN_FloatTensor:$filter,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads,
                       DenseI64ArrayAttr:$dilations, I64Attr:$groups);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$grad `,` $filter attr-dict `:` type($grad) `,` type($filter) `->` type($result)";
}

def NN_Conv2dGradFilterOp : NN_Window<"conv2d_grad_filter", [Pure]> {
  let summary = "cotangent of conv2d's filter";
  let arguments = (ins NN_FloatTensor:$grad, NN_FloatTensor:$input,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads,
                       DenseI64ArrayAttr:$dilations, I64Attr:$groups);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$grad `,` $input attr-dict `:` type($grad) `,` type($input) `->` type($result)";
}

def NN_MaxPool2dOp : NN_Window<"max_pool2d", [Pure, HasAdjoint]> {
  let summary = "maximum of each window, and its index within the window (the first of equals)";
  let arguments = (ins NN_FloatTensor:$input, DenseI64ArrayAttr:$kernel,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads);
  let results = (outs NN_FloatTensor:$result, StaticShapeTensorOf<[I32]>:$index);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type(results)";
}

def NN_MaxPool2dGradOp : NN_Window<"max_pool2d_grad", [Pure]> {
  let summary = "cotangent of max_pool2d's input";
  let arguments = (ins NN_FloatTensor:$grad, StaticShapeTensorOf<[I32]>:$index,
                       DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$strides,
                       DenseI64ArrayAttr:$pads);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$grad `,` $index attr-dict `:` type($grad) `,` type($index) `->` type($result)";
}

def NN_AvgPool2dOp : NN_Window<"avg_pool2d", [Pure, HasAdjoint]> {
  let summary = "mean of each window";
  let arguments = (ins NN_FloatTensor:$input, DenseI64ArrayAttr:$kernel,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads,
                       UnitAttr:$count_padding);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}

def NN_AvgPool2dGradOp : NN_Window<"avg_pool2d_grad", [Pure]> {
  let summary = "cotangent of avg_pool2d's input";
  let arguments = (ins NN_FloatTensor:$grad, DenseI64ArrayAttr:$kernel,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads,
                       UnitAttr:$count_padding);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$grad attr-dict `:` type($grad) `->` type($result)";
}

// ---- outlined kernels ----

def NN_LaunchOp : NN_Op<"launch", [Pure,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "runs an outlined kernel";
  let description = [{
    The kernel is a private `func.func` marked `nn.kernel` whose body is
    primitives; operands and results match its type. `tied` has one entry a
    result: the operand whose memory the result may take, or -1.

    ```mlir
    %y = nn.launch @bias_gelu_7(%x, %b) {tied = array<i64: 0>}
       : (tensor<8x48xf32>, tensor<48xf32>) -> tensor<8x48xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<NN_Tensor>:$operands,
                       OptionalAttr<DenseI64ArrayAttr>:$tied);
  let results = (outs Variadic<NN_Tensor>:$outputs);
  let assemblyFormat = "$kernel `(` $operands `)` attr-dict `:` functional-type($operands, $outputs)";
}

#endif
