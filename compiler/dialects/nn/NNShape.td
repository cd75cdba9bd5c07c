// Primitives that move elements without computing, and reductions.
#ifndef FSDPC_NN_SHAPE
#define FSDPC_NN_SHAPE

include "compiler/dialects/nn/NNElementwise.td"

def NN_ConstantOp : NN_Op<"constant", [Pure, ConstantLike,
    AllTypesMatch<["value", "result"]>]> {
  let summary = "constant tensor";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "attr-dict $value";
  let hasFolder = 1;
}

def NN_IotaOp : NN_Op<"iota", [Pure]> {
  let summary = "the index along `axis`";
  let arguments = (ins I64Attr:$axis);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def NN_BroadcastOp : NN_Op<"broadcast", [Pure, HasAdjoint]> {
  let summary = "repeats along dimensions of size 1 and new leading dimensions";
  let description = [{
    NumPy's rule: shapes are aligned at the right, and each dimension of the
    input is 1 or the result's. The adjoint sums.
  }];
  let arguments = (ins NN_Tensor:$input);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_ReshapeOp : NN_Op<"reshape", [Pure, HasAdjoint]> {
  let summary = "the same elements in row-major order under another shape";
  let arguments = (ins NN_Tensor:$input);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_TransposeOp : NN_Op<"transpose", [Pure, HasAdjoint]> {
  let summary = "result dimension i is input dimension permutation[i]";
  let arguments = (ins NN_Tensor:$input, DenseI64ArrayAttr:$permutation);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input $permutation attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_SliceOp : NN_Op<"slice", [Pure, HasAdjoint]> {
  let summary = "result[i] = input[offsets + i · strides]; strides may be negative";
  let arguments = (ins NN_Tensor:$input, DenseI64ArrayAttr:$offsets,
                       DenseI64ArrayAttr:$strides);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input $offsets `by` $strides attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_UnsliceOp : NN_Op<"unslice", [Pure, HasAdjoint]> {
  let summary = "adjoint of slice: zeroes with the input placed at offsets + i · strides";
  let description = [{ Also zero padding (strides 1). }];
  let arguments = (ins NN_Tensor:$input, DenseI64ArrayAttr:$offsets,
                       DenseI64ArrayAttr:$strides);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input $offsets `by` $strides attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def NN_ConcatOp : NN_Op<"concat", [Pure, HasAdjoint]> {
  let summary = "the inputs one after the other along `axis`";
  let arguments = (ins Variadic<NN_Tensor>:$inputs, I64Attr:$axis);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$inputs attr-dict `:` `(` type($inputs) `)` `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_ReduceKind : I32EnumAttr<"ReduceKind", "reduction", [
    I32EnumAttrCase<"sum", 0>, I32EnumAttrCase<"max", 1>, I32EnumAttrCase<"min", 2>]> {
  let cppNamespace = "::fsdpc::nn";
}

def NN_ReduceOp : NN_Op<"reduce", [Pure, HasAdjoint]> {
  let summary = "reduction along `axes`, kept with size 1";
  let description = [{
    Accumulates in f32 (f64 for f64, the type itself for integers) in an order
    that depends on the shape alone. A maximum's adjoint goes to every element
    that attains it in equal parts.
  }];
  let arguments = (ins NN_ReduceKind:$kind, NN_Tensor:$input, DenseI64ArrayAttr:$axes);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$kind $input $axes attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def NN_PickOp : NN_Op<"pick", [Pure, HasAdjoint]> {
  let summary = "result[…, 0] = input[…, index[…, 0]]: one element along the last axis";
  let description = [{
    `index` has the input's shape with the last dimension 1. An index outside
    the dimension gives 0 (a target that is ignored).
  }];
  let arguments = (ins NN_Tensor:$input, NN_IntTensor:$index);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input `,` $index attr-dict `:` type($input) `,` type($index) `->` type($result)";
  let hasVerifier = 1;
}

def NN_EmbeddingOp : NN_Op<"embedding", [Pure, HasAdjoint]> {
  let summary = "rows of a table: result[i…, :] = table[ids[i…], :]";
  let description = [{
    Negative ids count from the end. The row `padding_index` gets no gradient.
  }];
  let arguments = (ins NN_Tensor:$table, NN_IntTensor:$ids,
                       OptionalAttr<I64Attr>:$padding_index);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$table `,` $ids attr-dict `:` type($table) `,` type($ids) `->` type($result)";
  let hasVerifier = 1;
}

def NN_EmbeddingGradOp : NN_Op<"embedding_grad", [Pure]> {
  let summary = "adjoint of embedding: sums the cotangent's rows into a table";
  let description = [{
    Rows are added in the order of the ids, in f32, to the accumulator's (a tied
    head's gradient), else to zeroes.
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
