// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops of @update on gradients and parameters as wholes: the norm, clipping,
// and what reduces and gathers under the strategies that do so once per step.
// They come after the microbatches of a step and touch every shard once. The
// programs of optimizers are in FSDPOptimizer.td.
#ifndef FSDPC_FSDP_UPDATE
#define FSDPC_FSDP_UPDATE

include "compiler/dialects/fsdp/FSDPCollectives.td"

def FSDP_SumSquaresOp : FSDP_Op<"sum_squares",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>]>, LayoutUserOpInterface, UsesSymbols]> {
  let summary = "Sums the squares of this rank's gradients";
  let description = [{
    The sum of squares over this rank's part of each layout's gradient. With
    `fsdp.all_reduce` it gives the gradients' norm. The sum over groups of 16 elements is
    exact, so that its bits depend neither on ranks nor on layouts: a row of the result
    holds the 16 digits of a number of fixed point (`runtime/numeric/square_sum.h`).

    **Constraints**
    - Each of `layouts` names an `fsdp.layout` whose members are trainable.
    - The result is a tensor of f64 with one row of 16 elements per layout.

    Example:
    ```mlir
    %sums = fsdp.sum_squares [@h.0.flat] : tensor<1x16xf64>
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts);
  let results = (outs StaticShapeTensorOf<[F64]>:$result);
  let assemblyFormat = "$layouts attr-dict `:` type($result)";
}

def FSDP_AllReduceOp : FSDP_Op<"all_reduce",
    [ViewOf<"getInput()">, MemoryEffects<[MemWrite<FSDP_OtherRanks>]>, AllTypesMatch<["input", "result"]>]> {
  let summary = "Sums numbers over all ranks";
  let description = [{
    Sums in rank order, so that all ranks get the same bits. The result takes the
    memory of the operand.

    **Constraints**
    - Operand and result have the same type, a tensor of f64.

    Example:
    ```mlir
    %sums = fsdp.sum_squares [@h.0.flat] : tensor<1x16xf64>
    %total = fsdp.all_reduce %sums : tensor<1x16xf64>
    ```
  }];
  let arguments = (ins StaticShapeTensorOf<[F64]>:$input);
  let results = (outs StaticShapeTensorOf<[F64]>:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

def FSDP_ClipScaleOp : FSDP_Op<"clip_scale", [MemoryEffects<[MemWrite<FSDP_StepReport>]>, UsesSymbols]> {
  let summary = "The factor that scales and clips the gradients";
  let description = [{
    With V the number of microbatches of a step over all ranks (known at run time),
    norm = sqrt(Σ sums) / V is reported and the result is
    min(1, max_norm / (norm + 1e-6)) / V. A `max_norm` of 0 does not clip: the result
    is 1 / V. With `--loss-scale`, V is multiplied by the scale of the step; with a
    dynamic scale and a sum that is not finite, the optimizers of this step do nothing
    (also with `--on-nonfinite` of the program).

    **Constraints**
    - Each of `layouts` names an `fsdp.layout` whose members are trainable.
    - `sums` is a tensor of f64 with one row of 16 elements per layout.

    Example:
    ```mlir
    %scale = fsdp.clip_scale [@h.0.flat], %sums {max_norm = 1.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts,
                       StaticShapeTensorOf<[F64]>:$sums, F64Attr:$max_norm);
  let results = (outs StaticShapeTensorOf<[F32]>:$scale);
  let assemblyFormat = "$layouts `,` $sums attr-dict `:` type($sums) `->` type($scale)";
}

def FSDP_GatherGradientsOp : FSDP_Op<"gather_gradients",
    [Sends<"gather_gradients", "Wide", /*eachMicrobatch=*/0>,
     MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>,
     LayoutUserOpInterface, UsesSymbols]> {
  let summary = "Gathers the reduced gradients of all ranks in place";
  let description = [{
    After it every rank holds the whole f32 gradient of each layout. It stands in
    @update where the strategy is ddp, before the optimizer.

    **Constraints**
    - Each of `layouts` names an `fsdp.layout` whose members are trainable.

    Example:
    ```mlir
    fsdp.gather_gradients [@h.0.flat]
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts);
  let assemblyFormat = "$layouts attr-dict";
}

def FSDP_WholeGradientOp : FSDP_Op<"whole_gradient",
    [Sends<"gather_gradients", "Wide", /*eachMicrobatch=*/0>,
     MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_OtherRanks>]>,
     LayoutUserOpInterface, UsesSymbols]> {
  let summary = "A layout's reduced gradient, gathered from all ranks";
  let description = [{
    With `--max-accumulate=1` a rank keeps only its part of a gradient under ddp as well,
    since nothing is added to it. Before each optimizer this op gathers the gradient of
    its layout in the arena, where the microbatch's gradients have been.

    **Constraints**
    - `layout` names an `fsdp.layout` whose members are trainable.
    - The result is a vector of f32: the layout's elements, and room for the padding of
      `--max-ranks` shards.

    Example:
    ```mlir
    %gradient = fsdp.whole_gradient @h.0.flat : tensor<32800xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$layout);
  let results = (outs StaticShapeTensorOf<[F32]>:$result);
  let assemblyFormat = "$layout attr-dict `:` type($result)";
}

def FSDP_ReduceGradientsOp : FSDP_Op<"reduce_gradients",
    [Sends<"reduce_gradients", "Reduced", /*eachMicrobatch=*/0>,
     MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>,
     LayoutUserOpInterface, UsesSymbols]> {
  let summary = "Sums the accumulated gradients over all ranks";
  let description = [{
    With `--reduce=step`, @update begins with it: the full-size accumulators that
    `fsdp.accumulate` left are summed over ranks, in rank order, into each rank's part.

    **Constraints**
    - Each of `layouts` names an `fsdp.layout` whose members are trainable.

    Example:
    ```mlir
    fsdp.reduce_gradients [@h.0.flat]
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts);
  let assemblyFormat = "$layouts attr-dict";
}

def FSDP_GatherParametersOp : FSDP_Op<"gather_parameters",
    [Sends<"gather_parameters", "Gathered", /*eachMicrobatch=*/0>,
     MemoryEffects<[MemRead<FSDP_ParameterMemory>, MemWrite<FSDP_ParameterMemory>]>,
     LayoutUserOpInterface, UsesSymbols]> {
  let summary = "Gathers the updated parameters of all ranks in place";
  let description = [{
    Each rank has updated its part; after this op every rank holds all parameters of
    each layout in the compute type. It stands at the end of @update where the
    strategy is zero1 or zero2.

    **Constraints**
    - Each of `layouts` names an `fsdp.layout`.

    Example:
    ```mlir
    fsdp.gather_parameters [@h.0.flat]
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts);
  let assemblyFormat = "$layouts attr-dict";
}

#endif
