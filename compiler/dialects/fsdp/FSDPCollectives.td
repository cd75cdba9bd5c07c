// Ops on sharded parameters, in the order in which the phases introduce them:
// flat buffers (shard), collectives (collectives), their starts and waits
// (schedule), and the ops of @update. What each strategy gathers, reduces and
// keeps follows ZeRO (Rajbhandari et al., ZeRO: Memory Optimizations Toward
// Training Trillion Parameter Models, 2020) and PyTorch FSDP (Zhao et al., 2023).
#ifndef FSDPC_FSDP_COLLECTIVES
#define FSDPC_FSDP_COLLECTIVES

include "compiler/dialects/fsdp/FSDPSymbols.td"

// ---- after shard-parameters ----

def FSDP_FlatOp : FSDP_Op<"flat", [Pure, LayoutUserOpInterface, UsesSymbols]> {
  let summary = "A layout's parameters as one flat tensor";
  let description = [{
    Stands for the gathered parameters of a layout before anything is said about
    when they are gathered. `materialize-collectives` replaces it by
    `fsdp.all_gather`, or by `fsdp.replicated` where every rank keeps the parameters.

    **Constraints**
    - `layout` names an `fsdp.layout`.
    - The result is a vector of the layout's elements in its compute type.

    Example:
    ```mlir
    %flat = fsdp.flat @h.0.flat : tensor<32xbf16>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$layout);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$layout attr-dict `:` type($result)";
}

def FSDP_ViewOp : FSDP_Op<"view", [Pure, UsesSymbols,
    ViewOf<"getFlat()", "static_cast<int64_t>(getOffset())">]> {
  let summary = "A member of a flat buffer";
  let description = [{
    Gives the elements [offset, offset + size) of a flat buffer the member's shape,
    without a copy: the result is an address within the buffer.

    **Constraints**
    - `flat` has rank 1, and the same element type as the result.
    - The elements lie within `flat`.
    - `member` names an `fsdp.parameter` of the result's shape.
    - If `flat` holds a layout (it comes from `fsdp.flat`, `fsdp.replicated`,
      `fsdp.all_gather` or `fsdp.all_gather_wait`), the layout has the member at
      `offset`.

    Example:
    ```mlir
    %flat = fsdp.flat @h.0.flat : tensor<32xbf16>
    %w = fsdp.view %flat[@h.0.weight at 0] : tensor<32xbf16> -> tensor<8x4xbf16>
    ```
  }];
  let arguments = (ins NN_Tensor:$flat, FlatSymbolRefAttr:$member, I64Attr:$offset);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$flat `[` $member `at` $offset `]` attr-dict `:` type($flat) `->` type($result)";
  let hasVerifier = 1; // within the flat buffer, of its element type
}

def FSDP_PackOp : FSDP_Op<"pack", [Pure, UsesSymbols]> {
  let summary = "A layout's flat gradient from the gradients of its members";
  let description = [{
    Joins the members' gradients without copies: the memory planner places each
    operand inside the result, so that the op that computes it writes there. Where an
    operand cannot lie there, because another use needs it elsewhere, an `nn.copy`
    stands before the pack.

    **Constraints**
    - `layout` names an `fsdp.layout` whose members are trainable.
    - There is one operand per member, in the layout's order, with the member's
      number of elements and the layout's compute type.
    - The result is a vector of the layout's elements in its compute type.

    Example:
    ```mlir
    %grad = fsdp.pack @h.0.flat(%dw) : (tensor<8x4xbf16>) -> tensor<32xbf16>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$layout, Variadic<NN_Tensor>:$values);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$layout `(` $values `)` attr-dict `:` `(` type($values) `)` `->` type($result)";
}

def FSDP_ReduceOp : FSDP_Op<"reduce",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>,
     LayoutUserOpInterface, UsesSymbols]> {
  let summary = "Hands over a layout's flat gradient of this microbatch";
  let description = [{
    Stands for the reduction of the gradient before anything is said about when and
    how it happens. `materialize-collectives` replaces it by `fsdp.reduce_scatter` or
    `fsdp.accumulate`.

    **Constraints**
    - `layout` names an `fsdp.layout` whose members are trainable.
    - `gradient` is a vector of the layout's elements in its compute type.

    Example:
    ```mlir
    %grad = fsdp.pack @h.0.flat(%dw) : (tensor<8x4xbf16>) -> tensor<32xbf16>
    fsdp.reduce @h.0.flat, %grad : tensor<32xbf16>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$layout, NN_Tensor:$gradient);
  let assemblyFormat = "$layout `,` $gradient attr-dict `:` type($gradient)";
}

// ---- after materialize-collectives ----

def FSDP_EnterOp : FSDP_Op<"enter", [MemoryEffects<[MemWrite<FSDP_SegmentBounds>]>, UsesSymbols]> {
  let summary = "Marks the beginning of a segment of a unit";
  let description = [{
    A segment is a run of ops of one unit, of the forward or (with `backward`) of the
    backward. The mark computes nothing: it shows the segment's bounds to the
    scheduler and to readers of a dump.

    **Constraints**
    - `unit` names an `fsdp.unit`.

    Example:
    ```mlir
    fsdp.enter @h.0 backward
    fsdp.exit @h.0 backward
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$unit, UnitAttr:$backward);
  let assemblyFormat = "$unit (`backward` $backward^)? attr-dict";
}

def FSDP_ExitOp : FSDP_Op<"exit", [MemoryEffects<[MemWrite<FSDP_SegmentBounds>]>, UsesSymbols]> {
  let summary = "Marks the end of a segment of a unit";
  let description = [{
    Ends the segment that `fsdp.enter` with the same unit and direction began.

    **Constraints**
    - `unit` names an `fsdp.unit`.

    Example:
    ```mlir
    fsdp.enter @h.0
    fsdp.exit @h.0
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$unit, UnitAttr:$backward);
  let assemblyFormat = "$unit (`backward` $backward^)? attr-dict";
}

def FSDP_ReplicatedOp : FSDP_Op<"replicated",
    [OutsideArena, MemoryEffects<[MemRead<FSDP_ParameterMemory>]>, LayoutUserOpInterface, UsesSymbols]> {
  let summary = "A layout's parameters where every rank keeps all of them";
  let description = [{
    The flat buffer in the compute type, in memory that lives as long as the program.
    It stands where the strategy keeps "compute" on every rank (zero2, zero1, ddp), so
    that nothing is gathered.

    **Constraints**
    - `layout` names an `fsdp.layout`.
    - The result is a vector of the layout's elements in its compute type.

    Example:
    ```mlir
    %flat = fsdp.replicated @h.0.flat : tensor<32xbf16>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$layout);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$layout attr-dict `:` type($result)";
}

def FSDP_AllGatherOp : FSDP_Op<"all_gather",
    [MemoryEffects<[MemRead<FSDP_ParameterMemory>, MemAlloc]>, LayoutUserOpInterface, UsesSymbols]> {
  let summary = "Gathers layouts from the shards of all ranks";
  let description = [{
    Every rank receives the shards of all ranks, in rank order, one result per
    layout. A result lives until its `fsdp.free`. The op is not Pure: CSE must not
    merge the backward's gather with the forward's. `schedule-prefetch` splits it into
    `fsdp.all_gather_start` and `fsdp.all_gather_wait`.

    **Constraints**
    - Each of `layouts` names an `fsdp.layout`.
    - There is one result per layout: a vector of its elements in its compute type.

    Example:
    ```mlir
    %flat, %frozen = fsdp.all_gather [@h.0.flat, @h.0.frozen] : tensor<32xbf16>, tensor<8xf32>
    fsdp.free %flat : tensor<32xbf16>
    fsdp.free %frozen : tensor<8xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts);
  let results = (outs Variadic<NN_Tensor>:$results);
  let assemblyFormat = "$layouts attr-dict `:` type($results)";
}

def FSDP_FreeOp : FSDP_Op<"free"> {
  let summary = "Ends the life of a gathered buffer";
  let description = [{
    The memory of the buffer may be reused from here on. Each gathered buffer is freed
    once, after its last use (`verify-schedule`).

    **Constraints**
    - `flat` is a result of `fsdp.all_gather` or `fsdp.all_gather_wait`.

    Example:
    ```mlir
    %flat = fsdp.all_gather [@h.0.flat] : tensor<32xbf16>
    fsdp.free %flat : tensor<32xbf16>
    ```
  }];
  let arguments = (ins Arg<NN_Tensor, "", [MemFree]>:$flat);
  let assemblyFormat = "$flat attr-dict `:` type($flat)";
  let hasVerifier = 1; // a gathered buffer
}

def FSDP_ReduceScatterOp : FSDP_Op<"reduce_scatter",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>,
     LayoutUserOpInterface, UsesSymbols]> {
  let summary = "Sums gradients over all ranks into the gradient shards";
  let description = [{
    Each rank receives the sum over ranks, in rank order, of its part of each
    gradient, and writes it to the layout's f32 gradient shard (first microbatch of a
    step) or adds it (later ones). `schedule-prefetch` splits it into
    `fsdp.reduce_scatter_start` and `fsdp.reduce_scatter_wait`.

    **Constraints**
    - Each of `layouts` names an `fsdp.layout` whose members are trainable.
    - There is one gradient per layout: a vector of its elements in its compute type.

    Example:
    ```mlir
    fsdp.reduce_scatter [@h.0.flat], %grad : tensor<32xbf16>
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts, Variadic<NN_Tensor>:$gradients);
  let assemblyFormat = "$layouts `,` $gradients attr-dict `:` type($gradients)";
}

def FSDP_AccumulateOp : FSDP_Op<"accumulate",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>,
     LayoutUserOpInterface, UsesSymbols]> {
  let summary = "Adds a gradient to a layout's full-size accumulator";
  let description = [{
    With `--reduce=step` gradients are summed over ranks once a step. Until then each
    rank writes (first microbatch) or adds (later ones) its own to an f32 accumulator
    of the layout's whole length, without communication.

    **Constraints**
    - `layout` names an `fsdp.layout` whose members are trainable.
    - `gradient` is a vector of the layout's elements in its compute type.

    Example:
    ```mlir
    fsdp.accumulate @h.0.flat, %grad : tensor<32xbf16>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$layout, NN_Tensor:$gradient);
  let assemblyFormat = "$layout `,` $gradient attr-dict `:` type($gradient)";
}

// ---- after schedule-prefetch ----

def FSDP_AllGatherStartOp : FSDP_Op<"all_gather_start",
    [MemoryEffects<[MemRead<FSDP_ParameterMemory>, MemAlloc]>, LayoutUserOpInterface, UsesSymbols]> {
  let summary = "Starts an all-gather";
  let description = [{
    Starts `fsdp.all_gather` on its own stream; compute goes on meanwhile. The
    destinations are live from here. The token stands for the collective under way.

    **Constraints**
    - Each of `layouts` names an `fsdp.layout`.
    - The token is waited for exactly once (`verify-schedule`).

    Example:
    ```mlir
    %token = fsdp.all_gather_start [@h.0.flat]
    %flat = fsdp.all_gather_wait %token : tensor<32xbf16>
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts);
  let results = (outs FSDP_Token:$token);
  let assemblyFormat = "$layouts attr-dict";
}

def FSDP_AllGatherWaitOp : FSDP_Op<"all_gather_wait",
    [MemoryEffects<[MemRead<FSDP_ParameterMemory>, MemAlloc]>,
     DeclareOpInterfaceMethods<LayoutUserOpInterface, ["getLayoutRefs"]>, UsesSymbols]> {
  let summary = "Waits for an all-gather";
  let description = [{
    The gathered parameters can be read from here on, one result per layout of the
    start. A result lives until its `fsdp.free`.

    **Constraints**
    - `token` is the result of an `fsdp.all_gather_start`.
    - There is one result per layout of the start: a vector of its elements in its
      compute type.

    Example:
    ```mlir
    %token = fsdp.all_gather_start [@h.0.flat, @h.0.frozen]
    %flat, %frozen = fsdp.all_gather_wait %token : tensor<32xbf16>, tensor<8xf32>
    ```
  }];
  let arguments = (ins FSDP_Token:$token);
  let results = (outs Variadic<NN_Tensor>:$results);
  let assemblyFormat = "$token attr-dict `:` type($results)";
  let hasVerifier = 1; // the token is all_gather_start's
}

def FSDP_ReduceScatterStartOp : FSDP_Op<"reduce_scatter_start",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>,
     LayoutUserOpInterface, UsesSymbols]> {
  let summary = "Starts a reduce-scatter";
  let description = [{
    Starts `fsdp.reduce_scatter` on its own stream; compute goes on meanwhile. The
    gradients stay live until the wait, and nothing may write them before it.

    **Constraints**
    - Each of `layouts` names an `fsdp.layout` whose members are trainable.
    - There is one gradient per layout: a vector of its elements in its compute type.
    - The token is waited for exactly once (`verify-schedule`).

    Example:
    ```mlir
    %token = fsdp.reduce_scatter_start [@h.0.flat], %grad : tensor<32xbf16>
    fsdp.reduce_scatter_wait %token
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts, Variadic<NN_Tensor>:$gradients);
  let results = (outs FSDP_Token:$token);
  let assemblyFormat = "$layouts `,` $gradients attr-dict `:` type($gradients)";
}

def FSDP_ReduceScatterWaitOp : FSDP_Op<"reduce_scatter_wait",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>,
     DeclareOpInterfaceMethods<LayoutUserOpInterface, ["getLayoutRefs"]>]> {
  let summary = "Waits for a reduce-scatter";
  let description = [{
    From here on the shards hold the sums, and the memory of the gradients may be
    reused, on all ranks.

    **Constraints**
    - `token` is the result of an `fsdp.reduce_scatter_start`.

    Example:
    ```mlir
    %token = fsdp.reduce_scatter_start [@h.0.flat], %grad : tensor<32xbf16>
    fsdp.reduce_scatter_wait %token
    ```
  }];
  let arguments = (ins FSDP_Token:$token);
  let assemblyFormat = "$token attr-dict";
  let hasVerifier = 1; // the token is reduce_scatter_start's
}

// ---- @update ----

def FSDP_SumSquaresOp : FSDP_Op<"sum_squares",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>]>, LayoutUserOpInterface, UsesSymbols]> {
  let summary = "Sums the squares of this rank's gradients";
  let description = [{
    The sum of squares over this rank's part of each layout's gradient. With
    `fsdp.all_reduce` it gives the gradients' norm. The sum over groups of 16 elements is
    exact, so that its bits depend neither on ranks nor on layouts: a row of the result
    holds the 16 digits of a number of fixed point (`runtime/core/square_sum.h`).

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
    dynamic scale and a sum that is not finite, the optimizers of this step do nothing.

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
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>,
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

def FSDP_ReduceGradientsOp : FSDP_Op<"reduce_gradients",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>,
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

def FSDP_FactorSumsOp : FSDP_Op<"factor_sums",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>]>, LayoutUserOpInterface, UsesSymbols]> {
  let summary = "Sums squares along rows and columns of this rank's gradients";
  let description = [{
    For each member, the sums of squares of the gradient along its last two axes, over
    the elements that lie in this rank's shard: one f64 per row of each matrix, then
    one per column. A member with fewer than two axes is a single row, of which only
    the columns are listed, so their sums are the squares. The gradient is multiplied
    by `scale`, and then its elements are clipped to `clip_value` if that is not 0.
    `fsdp.all_reduce` makes them sums over whole parameters.

    **Constraints**
    - Each of `layouts` names an `fsdp.layout` whose members are trainable.
    - The result is a vector of f64 with an element per row and column of each member.

    Example:
    ```mlir
    %sums = fsdp.factor_sums [@h.0.flat], %scale {clip_value = 0.0 : f64} : tensor<f32> -> tensor<12xf64>
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts, StaticShapeTensorOf<[F32]>:$scale,
                       F64Attr:$clip_value);
  let results = (outs StaticShapeTensorOf<[F64]>:$result);
  let assemblyFormat = "$layouts `,` $scale attr-dict `:` type($scale) `->` type($result)";
  let extraClassDeclaration = [{
    /// Returns where the layout's sums begin in the result, or nullopt if it is
    /// not one of `layouts`.
    std::optional<int64_t> getFirstSum(::mlir::FlatSymbolRefAttr layout);
  }];
}

def FSDP_UpdateFactorsOp : FSDP_Op<"update_factors",
    [ViewOf<"getSums()">, MemoryEffects<[MemRead<FSDP_OptimizerMemory>, MemWrite<FSDP_OptimizerMemory>]>,
     LayoutUserOpInterface, UsesSymbols, AllTypesMatch<["sums", "result"]>]> {
  let summary = "Updates the factored averages of squares";
  let description = [{
    Adafactor keeps averages of a gradient's squares along rows and along columns. They
    are the buffers PARAMETER.row_var and PARAMETER.col_var marked `state`, or
    PARAMETER.variance if it has fewer than two axes. With t the step, counted from 1,
    each becomes itself · (1 - t^power) + mean · t^power, where the means follow from
    `sums`. A step whose gradient is not finite leaves them.

    The result holds a number per row and column, in the order of `sums`: the product
    of those of an element is its average of squares. It is the row's average divided
    by the mean of the averages of all rows of the matrix, or by `eps` if that is more,
    and the column's average. The result takes the memory of the operand.

    **Constraints**
    - Each of `layouts` names an `fsdp.layout` whose members are trainable and have
      the buffers above.
    - `sums` is a vector of f64 with an element per row and column of each member.

    Example:
    ```mlir
    %sums = fsdp.factor_sums [@h.0.flat], %scale {clip_value = 0.0 : f64} : tensor<f32> -> tensor<12xf64>
    %total = fsdp.all_reduce %sums : tensor<12xf64>
    %factors = fsdp.update_factors [@h.0.flat], %total {eps = 1.0e-7 : f64, power = -0.8 : f64} : tensor<12xf64>
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts, StaticShapeTensorOf<[F64]>:$sums,
                       F64Attr:$eps, F64Attr:$power);
  let results = (outs StaticShapeTensorOf<[F64]>:$result);
  let assemblyFormat = "$layouts `,` $sums attr-dict `:` type($result)";
}

def FSDP_MemberSumsOp : FSDP_Op<"member_sums",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemRead<FSDP_ParameterMemory>,
                    MemRead<FSDP_OptimizerMemory>]>,
     LayoutUserOpInterface, UsesSymbols, SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "Sums a scalar program over this rank's part of each parameter";
  let description = [{
    The region takes the arguments of an optimizer's (`fsdp.optimizer`) and yields
    one or several f64 for an element. They are summed over the elements of each
    member that lie in this rank's shard. The result lists the sums of a member one
    after the other, the members in the order of their layouts. `fsdp.all_reduce`
    makes them sums over whole parameters, which optimizers take as operands: LAMB
    and LARS scale a parameter's update by the ratio of two norms.

    A rank sums its shard also where it keeps all of the state, so that the strategy
    does not decide the order of additions.

    `factors`, where present, are those of `fsdp.update_factors` for the same layouts.
    The region then takes the average of squares of the element behind the gradient.

    **Constraints**
    - Each of `layouts` names an `fsdp.layout` whose members are trainable, with the
      number of states that the region takes.
    - The region has one block with `states` + 5 arguments of an optimizer's types,
      and one more with `factors`.
    - It yields one to eight values, all of them f64.
    - The result is a vector of f64 with that many elements per member.
    - The ops of the region have no memory effects and no regions.

    Example:
    ```mlir
    %sums = fsdp.member_sums [@h.0.flat], %scale : tensor<f32> -> tensor<1xf64> {
    ^bb0(%p: f32, %g: f32, %m: f32, %v: f32, %lr: f64, %step: f64, %decay: f64):
      %wide = arith.extf %p : f32 to f64
      %square = arith.mulf %wide, %wide : f64
      fsdp.yield %square : f64
    }
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts, StaticShapeTensorOf<[F32]>:$scale,
                       Optional<StaticShapeTensorOf<[F64]>>:$factors);
  let results = (outs StaticShapeTensorOf<[F64]>:$result);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $layouts `,` $scale (`factors` $factors^)? `:` type($scale) (`,` type($factors)^)?
    `->` type($result) attr-dict-with-keyword $body
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Returns the number of sums per member.
    int64_t getSumsPerMember() {
      return getBody().front().getTerminator()->getNumOperands();
    }
    /// Returns where the layout's sums begin in the result, or nullopt if it is
    /// not one of `layouts`.
    std::optional<int64_t> getFirstSum(::mlir::FlatSymbolRefAttr layout);
  }];
}

def FSDP_OptimizerOp : FSDP_Op<"optimizer",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>,
                    MemRead<FSDP_ParameterMemory>, MemWrite<FSDP_ParameterMemory>,
                    MemRead<FSDP_OptimizerMemory>, MemWrite<FSDP_OptimizerMemory>]>,
     LayoutUserOpInterface, UsesSymbols, AttrSizedOperandSegments,
     SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "Applies a scalar program to each element of this rank's part of a layout";
  let description = [{
    The region's arguments are the parameter (f32), the gradient multiplied by `scale`
    (f32), the states (f32 each), then the learning rate times the member's rate, the
    step (counted from 1) and the member's decay (f64 each), then the member's `sums`
    (f64 each). It yields the new parameter and the new states. Where the layout has a
    copy in the compute type, it is cast from the new parameter.

    `sums`, where present, are those of `fsdp.member_sums` over all ranks; those of the
    layout's first member begin at `first`. `factors`, where present, are those of
    `fsdp.update_factors`, and the layout's begin at `first_factor`. The region then
    takes the average of squares of the element (f32) behind the gradient.

    **Constraints**
    - `layout` names an `fsdp.layout` whose members are trainable.
    - The region has one block with `states` + 5 arguments of the types above, one more
      with `factors`, and one for each sum if there are `sums`.
    - The sums of the layout's members lie within `sums`, their factors within
      `factors`.
    - It yields one f32 for the parameter and one for each state.
    - Its ops have no memory effects and no regions.

    Example:
    ```mlir
    fsdp.optimizer @h.0.flat, %scale : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %m: f32, %v: f32, %lr: f64, %step: f64, %decay: f64):
      %rate = arith.truncf %lr : f64 to f32
      %change = arith.mulf %rate, %g : f32
      %new = arith.subf %p, %change : f32
      fsdp.yield %new, %m, %v : f32, f32, f32
    }
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$layout, StaticShapeTensorOf<[F32]>:$scale,
                       Optional<StaticShapeTensorOf<[F64]>>:$sums, OptionalAttr<I64Attr>:$first,
                       Optional<StaticShapeTensorOf<[F64]>>:$factors, OptionalAttr<I64Attr>:$first_factor);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $layout `,` $scale (`sums` $sums^ `[` $first `]`)? (`factors` $factors^ `[` $first_factor `]`)?
    `:` type($scale) (`,` type($sums)^)? (`,` type($factors)^)? attr-dict-with-keyword $body
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Returns the number of sums per member that the region takes: what its
    /// arguments exceed those for parameter, states, gradient, lr, step and decay.
    int64_t getSumsPerMember() {
      ::mlir::Block &body = getBody().front();
      int64_t values = body.getTerminator()->getNumOperands();
      int64_t others = 4 + values + (getFactors() ? 1 : 0);
      return getSums() ? body.getNumArguments() - others : 0;
    }
  }];
}

def FSDP_YieldOp : FSDP_Op<"yield", [Pure, Terminator, ParentOneOf<["OptimizerOp", "MemberSumsOp"]>]> {
  let summary = "Ends the program of an optimizer";
  let description = [{
    In an `fsdp.optimizer` its operands are the new parameter, then the new states in
    the order of the region's arguments. In an `fsdp.member_sums` they are what is
    summed.

    **Constraints**
    - The parent is an `fsdp.optimizer` or an `fsdp.member_sums`.
    - In an optimizer there is one f32 for the parameter and one for each state.
    - In an `fsdp.member_sums` there is at least one f64.

    Example:
    ```mlir
    fsdp.optimizer @h.0.flat, %scale : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %m: f32, %v: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p, %g, %v : f32, f32, f32
    }
    ```
  }];
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
  let builders = [OpBuilder<(ins), [{ build($_builder, $_state, ::mlir::ValueRange()); }]>];
}

def FSDP_GatherParametersOp : FSDP_Op<"gather_parameters",
    [MemoryEffects<[MemRead<FSDP_ParameterMemory>, MemWrite<FSDP_ParameterMemory>]>,
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
