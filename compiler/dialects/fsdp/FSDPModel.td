// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops through which the functions of a model reach its symbols and the
// runtime: values that they read, gradients and statistics that they hand over,
// and what a step reports.
#ifndef FSDPC_FSDP_MODEL
#define FSDPC_FSDP_MODEL

include "compiler/dialects/fsdp/FSDPSymbols.td"

def FSDP_LoadOp : FSDP_Op<"load", [Pure, UsesSymbols, OutsideArena, NoCall]> {
  let summary = "The value of a parameter or buffer";
  let description = [{
    Reads a parameter or buffer before sharding. `shard-parameters` replaces loads of
    parameters by views of flat buffers; loads of buffers stay. The op is Pure because
    a parameter does not change within a microbatch.

    **Constraints**
    - `symbol` names an `fsdp.parameter` or an `fsdp.buffer`.
    - The result has the symbol's type.

    Example:
    ```mlir
    %w = fsdp.load @h.0.weight : tensor<8x4xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$symbol);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$symbol attr-dict `:` type($result)";
}

def FSDP_GradientOp : FSDP_Op<"gradient", [MemoryEffects<[MemWrite<FSDP_GradientMemory>]>,
    UsesSymbols]> {
  let summary = "A parameter's gradient in this microbatch";
  let description = [{
    Hands over the gradient that `grad` computed for a parameter. There is one for
    each trainable parameter (`verify-grad`). `shard-parameters` replaces them by
    `fsdp.pack` and `fsdp.reduce`.

    **Constraints**
    - `parameter` names an `fsdp.parameter` that is trainable.
    - `value` has the parameter's shape.

    Example:
    ```mlir
    fsdp.gradient @h.0.weight, %dw : tensor<8x4xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$parameter, NN_FloatTensor:$value);
  let assemblyFormat = "$parameter `,` $value attr-dict `:` type($value)";
}

def FSDP_UpdateStatisticsOp : FSDP_Op<"update_statistics",
    [InF32, MemoryEffects<[MemWrite<FSDP_OtherRanks>]>, UsesSymbols]> {
  let summary = "Applies the batch statistics of the ranks to a buffer";
  let description = [{
    Gathers this microbatch's statistic of every rank and computes, for rank 0, 1, …,
    buffer = (1 - momentum) · buffer + momentum · statistic. One process that sees the
    microbatches one after the other gets the same. With `mode` the buffer takes one
    statistic: that of rank 0 ("broadcast"), the mean over ranks ("average"), or the
    rank's own, without communication ("local"). All ranks keep equal buffers but with
    "local", where they do if their statistics are equal.

    **Constraints**
    - `buffer` names an `fsdp.buffer`.
    - `statistic` has the buffer's type.
    - `mode`, where present, is a value of `--buffers`; "sequential" is the same as none.

    Example:
    ```mlir
    fsdp.update_statistics @bn.running_mean, %mean {momentum = 0.1 : f64} : tensor<4xf32>
    fsdp.update_statistics @bn.running_mean, %mean {mode = "average", momentum = 0.1 : f64} : tensor<4xf32>
    ```
  }];
  let arguments = (ins Arg<FlatSymbolRefAttr, "", [MemRead<FSDP_BufferMemory>,
                                                   MemWrite<FSDP_BufferMemory>]>:$buffer,
                       NN_StatTensor:$statistic,
                       F64Attr:$momentum, OptionalAttr<StrAttr>:$mode);
  let assemblyFormat = "$buffer `,` $statistic attr-dict `:` type($statistic)";
}

def FSDP_RandomOp : FSDP_Op<"random",
    [Pure, OutsideArena, NoCall, FixedPerMicrobatch]> {
  let summary = "The numbers that random elements are keyed by";
  let description = [{
    Four i32: the seed's low and high word, the microbatch within the step, and the
    step. Every `nn.dropout` and `nn.uniform` reads them, so that a random element depends
    on nothing else than these, the op and the element.

    **Constraints**
    - The result is a tensor of i32; they want `tensor<4xi32>`.

    Example:
    ```mlir
    %random = fsdp.random : tensor<4xi32>
    ```
  }];
  let results = (outs StaticShapeTensorOf<[I32]>:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def FSDP_LossScaleOp : FSDP_Op<"loss_scale",
    [Pure, OutsideArena, NoCall, FixedPerMicrobatch]> {
  let summary = "The factor of the loss's gradient in this step";
  let description = [{
    With `--loss-scale`, `grad` begins the backward with this number instead of 1, so
    that small gradients stay above the least number of f16 (Micikevicius et al., Mixed
    Precision Training, 2018). The runtime keeps the scale and changes it from step to
    step; `fsdp.clip_scale` divides by it.

    **Constraints**
    - The result is a scalar of f32.

    Example:
    ```mlir
    %scale = fsdp.loss_scale : tensor<f32>
    ```
  }];
  let results = (outs 0DTensorOf<[F32]>:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def FSDP_LossFactorOp : FSDP_Op<"loss_factor",
    [Pure, OutsideArena, NoCall, FixedPerMicrobatch, UsesSymbols]> {
  let summary = "The factor that makes a microbatch's mean a part of the step's";
  let description = [{
    A mean over the targets of a microbatch is a sum divided by a weight, such as the
    number of targets. The factor is V times the microbatch's divisor, divided by the
    divisor of the step (`fsdp.loss_weight`), where V is the number of microbatches of a
    step over all ranks. The mean over V microbatches of factor times mean is the mean
    over all targets of the step. The factor is exactly 1 where all microbatches of the
    step have equal weights, and 0 where the step has no target. A microbatch without
    targets divides by 1, in its mean as in its factor. The runtime computes the factor
    before the step's first microbatch.

    In @evaluate the microbatches are those of the whole evaluation. The factor is 1 there
    if `fsdp.report_loss` has a divisor, by which the runtime weights the losses itself.

    **Constraints**
    - `weight` names an `fsdp.loss_weight`.
    - The result is a scalar of f32.

    Example:
    ```mlir
    %factor = fsdp.loss_factor @loss_weight : tensor<f32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$weight);
  let results = (outs 0DTensorOf<[F32]>:$result);
  let assemblyFormat = "$weight attr-dict `:` type($result)";
}

def FSDP_MicrobatchWeightOp : FSDP_Op<"microbatch_weight",
    [Pure, OutsideArena, NoCall, FixedPerMicrobatch]> {
  let summary = "The weight of a microbatch in the mean gradient";
  let description = [{
    1/V, where V is the number of microbatches of a step over all ranks, which is known
    when the program starts. The hook `--reduce-hook=average=before` multiplies each
    gradient by it; `fsdp.clip_scale` then does not divide by V.

    **Constraints**
    - The result is a scalar of f32.

    Example:
    ```mlir
    %weight = fsdp.microbatch_weight : tensor<f32>
    ```
  }];
  let results = (outs 0DTensorOf<[F32]>:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def FSDP_ReportZeroedOp : FSDP_Op<"report_zeroed", [InF32, MemoryEffects<[MemWrite<FSDP_StepReport>]>]> {
  let summary = "Reports that a gradient had elements that were not finite";
  let description = [{
    The hook `--reduce-hook=zero-nonfinite` writes one of these per gradient. `zeroed` is
    1 if elements of the gradient were replaced by 0, else 0. The runtime sums the reports
    of a step over its microbatches and ranks; every rank gets the sum, and the log shows
    it as `zeroed`.

    **Constraints**
    - `zeroed` is a scalar of f32.

    Example:
    ```mlir
    fsdp.report_zeroed %zeroed : tensor<f32>
    ```
  }];
  let arguments = (ins 0DTensorOf<[F32]>:$zeroed);
  let assemblyFormat = "$zeroed attr-dict `:` type($zeroed)";
}

def FSDP_ReportLossOp : FSDP_Op<"report_loss", [MemoryEffects<[MemWrite<FSDP_StepReport>]>]> {
  let summary = "Reports the microbatch's loss";
  let description = [{
    Hands the loss to the runtime, which averages it over the step's microbatches and
    ranks for the log. `valid` is the loss's divisor (number or weight of the targets
    that count): where it is 0 the loss counts as 0, whatever it holds. `grad`
    differentiates the loss that this op reports.

    **Constraints**
    - `loss` and `valid` are tensors of f32 or f64.
    - A module has one such op (`verify-input`).

    Example:
    ```mlir
    fsdp.report_loss %loss valid %count : tensor<f32>, tensor<f32>
    ```
  }];
  let arguments = (ins NN_StatTensor:$loss, Optional<NN_StatTensor>:$valid);
  let assemblyFormat = "$loss (`valid` $valid^)? attr-dict `:` type($loss) (`,` type($valid)^)?";
}

def FSDP_ReportOutputOp : FSDP_Op<"report_output", [InF32, MemoryEffects<[MemWrite<FSDP_StepReport>]>]> {
  let summary = "Reports a further output of the model";
  let description = [{
    Hands a value to the runtime under the name that it has in the graph
    (`--keep-output`). A scalar is a metric, which the program logs (`--metric`); any
    other tensor is one microbatch of a prediction, which the program writes in
    evaluations (`--predict`). `build-evaluate` leaves the scalars in `@microbatch`, and
    all in `@evaluate`.

    **Constraints**
    - `name` is not empty.
    - `value` is of f32, i64, i32 or i1; a scalar is f32.
    - A function reports each name once, and `@evaluate` and `@microbatch` report a name
      with one type (`verify-input`).

    Example:
    ```mlir
    fsdp.report_output "accuracy" %accuracy : tensor<f32>
    fsdp.report_output "logits" %logits : tensor<4x10xf32>
    ```
  }];
  let arguments = (ins StrAttr:$name, StaticShapeTensorOf<[F32, I64, I32, I1]>:$value);
  let assemblyFormat = "$name $value attr-dict `:` type($value)";
  let extraClassDeclaration = [{
    /// Returns true if the value is a metric, and no prediction.
    bool isScalar() { return getValue().getType().getRank() == 0; }
  }];
  let hasVerifier = 1;
}

#endif
