// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Primitives that move or choose elements without computing, and reductions. A
// kernel reads through them by index arithmetic where it can; those that name a
// piece of their operand's memory need no kernel at all.
#ifndef FSDPC_NN_SHAPE
#define FSDPC_NN_SHAPE

include "compiler/dialects/nn/NNBase.td"

def NN_ConstantOp : NN_Op<"constant", NotLinear, [Pure, ConstantLike, OutsideArena, NoCall,
    AllTypesMatch<["value", "result"]>]> {
  let summary = "A constant tensor";
  let description = [{
    A tensor that is known at compile time; its bytes become part of the program.

    **Constraints**
    - `value` has the result's type.

    Example:
    ```mlir
    %half = nn.constant dense<0.5> : tensor<8x48xf32>
    ```
  }];
  let arguments = (ins ElementsAttr:$value);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "attr-dict $value";
  let hasFolder = 1;
}

def NN_IotaOp : NN_Op<"iota", NotLinear, [Pure, Fuses<"Movable">]> {
  let summary = "The index along an axis";
  let description = [{
    Element (i0, i1, …) is the index i_axis, converted to the element type.

    **Constraints**
    - 0 ≤ `axis` < rank of the result.

    Example:
    ```mlir
    %column = nn.iota {axis = 1 : i64} : tensor<2x3xi64>  // [[0, 1, 2], [0, 1, 2]]
    ```
  }];
  let arguments = (ins I64Attr:$axis);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def NN_BroadcastOp : NN_Op<"broadcast", MovesElements, [Pure, HasAdjoint, Fuses<"Movable">,
    InLossTail, ReadAsOperand]> {
  let summary = "Repeats a tensor along dimensions";
  let description = [{
    NumPy's rule: shapes are aligned at the right, and a dimension of 1 or an absent
    leading one is repeated. All broadcasts are explicit: other ops take operands of
    equal shapes. The adjoint sums over the repeated dimensions.

    **Constraints**
    - Aligned at the right, each dimension of the input is 1 or the result's.
    - Input and result have the same element type.

    Example:
    ```mlir
    %rows = nn.broadcast %bias : tensor<48xf32> -> tensor<8x48xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_ReshapeOp : NN_Op<"reshape", MovesElements, [Pure, HasAdjoint, InLossTail, ReadAsOperand,
    ViewOf<"getInput()">, NoCall, MayLieInOperand, MayLieInResult]> {
  let summary = "The same elements under another shape";
  let description = [{
    Elements keep their row-major order, so that the result shares the input's memory.
    The adjoint reshapes the cotangent back.

    **Constraints**
    - Input and result have the same number of elements and the same element type.

    Example:
    ```mlir
    %heads = nn.reshape %x : tensor<4x8x48xf32> -> tensor<4x8x6x8xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_TransposeOp : NN_Op<"transpose", MovesElements, [Pure, HasAdjoint, Fuses<"Index">,
    CheapToRepeat, ViewOf<"getInput()">, NoCall, MayLieInOperand, MayLieInResult]> {
  let summary = "Permutes the dimensions";
  let description = [{
    Dimension i of the result is dimension `permutation`[i] of the input. The adjoint
    is the transpose by the inverse permutation.

    **Constraints**
    - `permutation` is a permutation of the axes of the input.
    - Dimension i of the result has the size of dimension `permutation`[i].
    - Input and result have the same element type.

    Example:
    ```mlir
    %t = nn.transpose %x [0, 2, 1] : tensor<4x8x6xf32> -> tensor<4x6x8xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input, DenseI64ArrayAttr:$permutation);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input $permutation attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_SliceOp : NN_Op<"slice", MovesElements, [Pure, HasAdjoint,
    Fuses<"Movable", ReadsPart>, InLossTail, CheapToRepeat, NoCall,
    MayLieInOperand,
    DeclareOpInterfaceMethods<ViewOpInterface, ["getViewSource", "getViewOffset"]>]> {
  let summary = "Takes every n-th element of a range along each dimension";
  let description = [{
    result[i] = input[offsets + i · strides], dimension by dimension; the size comes
    from the result's type. A negative stride walks backwards. The adjoint is
    `nn.pad`.

    **Constraints**
    - Input and result have the same rank and element type; there is one offset and one
      stride per dimension.
    - No stride is 0.
    - Every index lies within the input.

    Example:
    ```mlir
    %last = nn.slice %x [0, 2] by [1, -1] : tensor<2x3xf32> -> tensor<2x2xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input, DenseI64ArrayAttr:$offsets,
                       DenseI64ArrayAttr:$strides);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input $offsets `by` $strides attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_PadOp : NN_Op<"pad", MovesElements, [Pure, HasAdjoint, Fuses<"Index">]> {
  let summary = "Places a tensor in zeros";
  let description = [{
    The adjoint of `nn.slice`: result[offsets + i · strides] = input[i], and 0 elsewhere.
    With strides of 1 it pads. Its own adjoint is `nn.slice`.

    **Constraints**
    - Input and result have the same rank and element type; there is one offset and one
      stride per dimension.
    - No stride is 0.
    - Every index lies within the result.

    Example:
    ```mlir
    %padded = nn.pad %x [0, 1] by [1, 1] : tensor<2x3xf32> -> tensor<2x5xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input, DenseI64ArrayAttr:$offsets,
                       DenseI64ArrayAttr:$strides);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input $offsets `by` $strides attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def NN_ConcatOp : NN_Op<"concat", Linear, [Pure, HasAdjoint, Fuses<"Alone">,
    DeclareOpInterfaceMethods<ElementSourceOpInterface>, NoCall, HoldsOperands, MayLieInResult]> {
  let summary = "Joins tensors along an axis";
  let description = [{
    The inputs one after the other along `axis`. The adjoint gives each input its
    slice of the cotangent.

    **Constraints**
    - There is at least one input.
    - 0 ≤ `axis` < rank of the result.
    - Inputs and result have the same element type, and the same shape but for `axis`,
      along which the inputs' sizes add up to the result's.

    Example:
    ```mlir
    %y = nn.concat %a, %b {axis = 1 : i64} : (tensor<2x3xf32>, tensor<2x2xf32>) -> tensor<2x5xf32>
    ```
  }];
  let arguments = (ins Variadic<NN_Tensor>:$inputs, I64Attr:$axis);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$inputs attr-dict `:` `(` type($inputs) `)` `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_ReduceKind : I32EnumAttr<"ReduceKind", "reduction", [
    I32EnumAttrCase<"sum", 0>, I32EnumAttrCase<"max", 1>, I32EnumAttrCase<"min", 2>,
    I32EnumAttrCase<"prod", 3>]> {
  let cppNamespace = "::fsdpc::nn";
}

def NN_ReduceOp : NN_Op<"reduce", LinearIf<"getKind() == ReduceKind::sum">, [Pure, HasAdjoint, InLossTail,
    FusesOver<"of(getInput(), getAxes())">]> {
  let summary = "Reduces along axes";
  let description = [{
    The sum, maximum, minimum or product along `axes`, which stay with size 1. Sums and
    products of floats are f32 (f64 for f64) in an order that depends on the shape alone; integers
    accumulate in their own type. A maximum or minimum of NaN is NaN. The adjoint of a
    sum repeats the cotangent; that of a maximum or minimum goes to all elements that
    attain it, in equal parts; that of a product multiplies by the other elements'
    product, with zeros among them too.

    **Constraints**
    - `axes` rise strictly and lie within the input's rank.
    - The result has the input's element type and its shape with `axes` of size 1.

    Example:
    ```mlir
    %sum = nn.reduce sum %x [1] : tensor<8x48xf32> -> tensor<8x1xf32>
    ```
  }];
  let arguments = (ins NN_ReduceKind:$kind, NN_Tensor:$input, DenseI64ArrayAttr:$axes);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$kind $input $axes attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def NN_TakeAlongAxisOp : NN_Op<"take_along_axis", LinearIn<["Input"]>, [Pure, HasAdjoint,
    FusesOverRows<"getInput()", ReadsAnyElement>]> {
  let summary = "Takes one element per row along the last axis";
  let description = [{
    result[…, 0] = input[…, index[…, 0]]. An index outside the dimension gives NaN, which
    stops the training unless the row does not count; a tensor of integers gives the
    smallest integer of its type. The adjoint places the cotangent at the index and zeros
    elsewhere.

    **Constraints**
    - The input has rank 1 or more.
    - `index` is an integer tensor. It and the result have the input's shape with a last
      dimension of 1.
    - Input and result have the same element type.

    Example:
    ```mlir
    %logit = nn.take_along_axis %logits, %target : tensor<8x50257xf32>, tensor<8x1xi64> -> tensor<8x1xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input, NN_IntTensor:$index);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input `,` $index attr-dict `:` type($input) `,` type($index) `->` type($result)";
  let hasVerifier = 1;
}

def NN_EmbeddingOp : NN_Op<"embedding", MovesElements, [Pure, HasAdjoint,
    Fuses<"Index", !strconcat(ReadsAnyElement, ReadsPart)>]> {
  let summary = "Looks up rows of a table";
  let description = [{
    result[i…, :] = table[ids[i…], :]. Negative ids count from the end of the table. An
    id outside the table gives NaN, so that the loss stops the training; a table of
    integers gives the smallest integer of its type, which lies outside of every table.
    The adjoint is `nn.embedding_grad`; the row `padding_index` gets no gradient.

    **Constraints**
    - `table` has rank 2.
    - The result has the shape of `ids` with the table's last dimension appended, and
      the table's element type.
    - `padding_index`, where present, is a row of the table.

    Example:
    ```mlir
    %rows = nn.embedding %table, %ids {padding_index = 0 : i64} : tensor<9x4xf32>, tensor<2x5xi64> -> tensor<2x5x4xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$table, NN_IntTensor:$ids,
                       OptionalAttr<I64Attr>:$padding_index);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$table `,` $ids attr-dict `:` type($table) `,` type($ids) `->` type($result)";
  let hasVerifier = 1;
}

def NN_EmbeddingGradOp : NN_Op<"embedding_grad", LinearIn<["Grad", "Accumulator"]>, [Pure, HasAdjoint, Fuses<"Alone">]> {
  let summary = "Cotangent of an embedding's table";
  let description = [{
    Adds each row of `grad` to the row of the table that `ids` names, in the order of
    the ids and in f32. The sum starts from `accumulator` (the gradient of a tied
    head, whose memory the result then takes), else from zeros. Ids outside the table
    and `padding_index` add nothing.

    It also serves as the sum of scattered updates. The adjoint looks the rows up again
    (`nn.embedding`); there is none for an op with a `padding_index`.

    **Constraints**
    - The result, the table's gradient, has rank 2.
    - `grad` has the shape of `ids` with the table's last dimension appended, and the
      table's element type.
    - `accumulator`, where present, has the result's type.
    - `padding_index`, where present, is a row of the table.

    Example:
    ```mlir
    %dtable = nn.embedding_grad %drows, %ids accumulate %dhead : tensor<2x5x4xf32>, tensor<2x5xi64>, accumulate tensor<9x4xf32> -> tensor<9x4xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$grad, NN_IntTensor:$ids,
                       Optional<NN_Tensor>:$accumulator,
                       OptionalAttr<I64Attr>:$padding_index);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = [{
    $grad `,` $ids (`accumulate` $accumulator^)? attr-dict `:` type($grad) `,`
    type($ids) (`,` `accumulate` type($accumulator)^)? `->` type($result)
  }];
  let hasVerifier = 1;
}

#endif
