// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values with a gradient that the model defines itself, after PyTorch's
// torch.autograd.Function. They exist until `grad`.
#ifndef FSDPC_NN_GRADIENTS
#define FSDPC_NN_GRADIENTS

include "compiler/dialects/nn/NNBase.td"

def NN_CotangentOp : NN_Op<"cotangent", NotLinear, [Pure, SameOperandsAndResultType]> {
  let summary = "Stands for a cotangent in a gradient of the model's own";
  let description = [{
    Stands for the cotangent of the result `index` of the `nn.custom_gradient` that reads it. The operand says
    which value that is the cotangent of. Only the clone that `grad` makes of its users for the backward
    is computed.

    **Constraints**
    - Operand and result have the same type, a float tensor.

    Example:
    ```mlir
    %g = nn.cotangent 0 of %y : tensor<8x48xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, I64Attr:$index);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$index `of` $input attr-dict `:` type($result)";
}

def NN_CustomGradientOp : NN_Op<"custom_gradient", NotLinear, [Pure, AttrSizedOperandSegments, HasAdjoint]> {
  let summary = "Values with a gradient of the model's own";
  let description = [{
    Returns `values` as they are. The cotangents of `inputs` are `gradients`, computed with the cotangents of
    the results in place of `cotangents`. What `gradients` depend on gets no gradient through them, and neither do
    `values`: the importer stops both (`nn.stop_gradient`). It is PyTorch's `torch.autograd.Function`. The pass
    `grad` clones the ops between `cotangents` and `gradients` into the backward and removes the op.

    **Constraints**
    - Results have the types of `values`, and so have `cotangents`, which are `nn.cotangent` of their positions.
    - `gradients` have the types of `inputs`.

    Example:
    ```mlir
    %g = nn.cotangent 0 of %r : tensor<4xf32>
    %g2 = nn.add %g, %g : tensor<4xf32>
    %y = nn.custom_gradient values(%r : tensor<4xf32>) cotangents(%g : tensor<4xf32>) inputs(%x : tensor<4xf32>) gradients(%g2 : tensor<4xf32>) -> tensor<4xf32>
    ```
  }];
  let arguments = (ins Variadic<NN_FloatTensor>:$values, Variadic<NN_FloatTensor>:$cotangents,
                       Variadic<NN_FloatTensor>:$inputs, Variadic<NN_FloatTensor>:$gradients);
  let results = (outs Variadic<NN_FloatTensor>:$results);
  let assemblyFormat = [{
    `values` `(` $values `:` type($values) `)` `cotangents` `(` $cotangents `:` type($cotangents) `)`
    `inputs` `(` ($inputs^ `:` type($inputs))? `)` `gradients` `(` ($gradients^ `:` type($gradients))? `)`
    attr-dict `->` type($results)
  }];
  let hasVerifier = 1;
}
#endif
