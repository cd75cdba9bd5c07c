// The ops of @update: the norm and clipping, sums over whole parameters, one
// optimizer program per layout and group, and what gathers the parameters of
// the strategies that keep them whole. They come after the microbatches of a
// step and touch every shard once.
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

def FSDP_WholeGradientOp : FSDP_Op<"whole_gradient",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_OtherRanks>]>,
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
    %gradient = fsdp.whole_gradient @h.0.flat : tensor<65568xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$layout);
  let results = (outs StaticShapeTensorOf<[F32]>:$result);
  let assemblyFormat = "$layout attr-dict `:` type($result)";
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
    the elements that lie in this rank's shard: one per row of each matrix, then one per
    column. The gradient is multiplied by `scale`, and then its elements are clipped to
    `clip_value` if that is not 0. `fsdp.all_reduce` makes them sums over whole
    parameters.

    They are exact, so that their bits depend neither on ranks nor on layouts: a sum is
    the 16 digits of a number of fixed point (`runtime/core/square_sum.h`). Where the
    squares of all elements are fewer numbers than the digits, they stand in the sums'
    place (`shared/factors.h`), 0 for the elements of other ranks. So do those of members
    with fewer than two axes, which are not factored.

    **Constraints**
    - Each of `layouts` names an `fsdp.layout` whose members are trainable.
    - The result is a vector of f64 with that many elements for the members.

    Example:
    ```mlir
    %sums = fsdp.factor_sums [@h.0.flat], %scale {clip_value = 0.0 : f64} : tensor<f32> -> tensor<32xf64>
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts, StaticShapeTensorOf<[F32]>:$scale,
                       F64Attr:$clip_value);
  let results = (outs StaticShapeTensorOf<[F64]>:$result);
  let assemblyFormat = "$layouts `,` $scale attr-dict `:` type($scale) `->` type($result)";
}

def FSDP_UpdateFactorsOp : FSDP_Op<"update_factors",
    [MemoryEffects<[MemRead<FSDP_OptimizerMemory>, MemWrite<FSDP_OptimizerMemory>]>,
     LayoutUserOpInterface, UsesSymbols]> {
  let summary = "Updates the factored averages of squares";
  let description = [{
    Adafactor keeps averages of a gradient's squares along rows and along columns. They
    are the buffers PARAMETER.row_var and PARAMETER.col_var marked `state`, or
    PARAMETER.variance if it has fewer than two axes. With t the step, counted from 1,
    each becomes itself · (1 - t^power) + mean · t^power, where the means follow from
    `sums`. A step whose gradient is not finite leaves them.

    The result holds an f64 per row of each matrix of a member, then one per column; a
    member with fewer than two axes has columns only, its elements. The product of those
    of an element is its average of squares. They are the row's average divided by the
    mean of the averages of all rows of the matrix, or by `eps` if that is more, and the
    column's average.

    **Constraints**
    - Each of `layouts` names an `fsdp.layout` whose members are trainable and have
      the buffers above.
    - `sums` is a vector of f64 as that of an `fsdp.factor_sums` of the layouts.
    - The result is a vector of f64 with an element per row and column of each member.

    Example:
    ```mlir
    %sums = fsdp.factor_sums [@h.0.flat], %scale {clip_value = 0.0 : f64} : tensor<f32> -> tensor<32xf64>
    %total = fsdp.all_reduce %sums : tensor<32xf64>
    %factors = fsdp.update_factors [@h.0.flat], %total {eps = 1.0e-7 : f64, power = -0.8 : f64} : tensor<32xf64> -> tensor<12xf64>
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts, StaticShapeTensorOf<[F64]>:$sums,
                       F64Attr:$eps, F64Attr:$power);
  let results = (outs StaticShapeTensorOf<[F64]>:$result);
  let assemblyFormat = "$layouts `,` $sums attr-dict `:` type($sums) `->` type($result)";
  let extraClassDeclaration = [{
    /// Returns where the layout's factors begin in the result, or nullopt if it
    /// is not one of `layouts`.
    std::optional<int64_t> getFirstFactor(::mlir::FlatSymbolRefAttr layout);
  }];
}

def FSDP_MomentumUpdatesOp : FSDP_Op<"momentum_updates",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemRead<FSDP_OptimizerMemory>]>,
     LayoutUserOpInterface, UsesSymbols]> {
  let summary = "This rank's part of the momentum's updates, at its place in the whole";
  let description = [{
    Muon's update of an element before its matrix is orthogonalised. With g the gradient
    times `scale`, its elements clipped to `clip_value` if that is not 0, and negated with
    `maximize`, the momentum m (the first state) becomes m + (1 - momentum)·(g - m). The
    update is that, or with `nesterov` g + momentum·(m - g). The state itself is left to
    the optimizer's program, which computes the same.

    The result has room for all elements of the members, one after the other. The op
    writes those that lie in this rank's shard; `fsdp.collect_matrices` brings the others
    to where they are needed.

    **Constraints**
    - `layout` names an `fsdp.layout` whose members are trainable matrices with a state.
    - The result is a vector of f32 with an element per element of the members.

    Example:
    ```mlir
    %part = fsdp.momentum_updates @h.0.flat, %scale {clip_value = 0.0 : f64, momentum = 0.95 : f64, nesterov} : tensor<f32> -> tensor<32xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$layout, StaticShapeTensorOf<[F32]>:$scale,
                       F64Attr:$momentum, F64Attr:$clip_value, UnitAttr:$nesterov,
                       UnitAttr:$maximize);
  let results = (outs StaticShapeTensorOf<[F32]>:$result);
  let assemblyFormat = "$layout `,` $scale attr-dict `:` type($scale) `->` type($result)";
}

def FSDP_CollectMatricesOp : FSDP_Op<"collect_matrices",
    [ViewOf<"getInput()">, MemoryEffects<[MemWrite<FSDP_OtherRanks>]>, UsesSymbols,
     AllTypesMatch<["input", "result"]>]> {
  let summary = "Sends each matrix to the rank that owns it";
  let description = [{
    Every rank sends its part of each member to the member's owner, which then has it
    whole; elsewhere the result is undefined. Owners follow from the shapes and the number
    of ranks: the next largest matrix, by operations of `fsdp.orthogonalize`, goes to the
    rank that has least. All ranks together send less than 4 bytes per element. The
    result takes the memory of the operand.

    **Constraints**
    - The operand is the result of an `fsdp.momentum_updates` of the same layout
      (verify-shard).

    Example:
    ```mlir
    %updates = fsdp.collect_matrices @h.0.flat, %part : tensor<32xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$layout, StaticShapeTensorOf<[F32]>:$input);
  let results = (outs StaticShapeTensorOf<[F32]>:$result);
  let assemblyFormat = "$layout `,` $input attr-dict `:` type($input)";
}

def FSDP_OrthogonalizeOp : FSDP_Op<"orthogonalize", [Pure, UsesSymbols]> {
  let summary = "Orthogonalises the matrices that this rank owns";
  let description = [{
    Replaces each matrix X by nearly the nearest one whose singular values are equal, by
    `steps` steps of Newton and Schulz (Jordan et al., Muon, 2024): X is divided by its
    Frobenius norm, at least `eps`, and in each step becomes a·X + (b·A + c·A²)·X with
    A = X·Xᵀ, in f32, or rounded to bf16 after each product with `bf16`. A matrix with
    more rows than columns is transposed for that. With `adjust` = original it is then
    multiplied by sqrt(max(1, rows / columns)), with match_rms_adamw by
    0.2·sqrt(max(rows, columns)).

    Each rank does so for the matrices that it owns (`fsdp.collect_matrices`); elsewhere
    the result is undefined. Behind the elements of all members the result has room in
    which the op computes: four times the largest member.

    **Constraints**
    - `layout` names an `fsdp.layout` whose members are trainable matrices.
    - `updates` is a vector of f32 with an element per element of the members, and the
      result is longer by four times the largest member.
    - `adjust` is original or match_rms_adamw; `steps` is from 1 to 99.

    Example:
    ```mlir
    %own = fsdp.orthogonalize @h.0.flat, %updates {a = 3.4445 : f64, b = -4.775 : f64, c = 2.0315 : f64, eps = 1.0e-7 : f64, steps = 5 : i32, adjust = "original"} : tensor<32xf32> -> tensor<160xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$layout, StaticShapeTensorOf<[F32]>:$updates,
                       F64Attr:$a, F64Attr:$b, F64Attr:$c, F64Attr:$eps, I32Attr:$steps,
                       StrAttr:$adjust, UnitAttr:$bf16);
  let results = (outs StaticShapeTensorOf<[F32]>:$result);
  let assemblyFormat = "$layout `,` $updates attr-dict `:` type($updates) `->` type($result)";
}

def FSDP_SpreadMatricesOp : FSDP_Op<"spread_matrices",
    [ViewOf<"getInput()">, MemoryEffects<[MemWrite<FSDP_OtherRanks>]>, UsesSymbols,
     AllTypesMatch<["input", "result"]>]> {
  let summary = "Sends each rank its part of the matrices of their owners";
  let description = [{
    The way back of `fsdp.collect_matrices`: the owner of each member sends every rank the
    elements that this rank updates, which are all of them where the optimizer's state is
    whole on every rank. The result takes the memory of the operand.

    **Constraints**
    - The operand is the result of an `fsdp.orthogonalize` of the same layout
      (verify-shard).

    Example:
    ```mlir
    %mine = fsdp.spread_matrices @h.0.flat, %own : tensor<160xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$layout, StaticShapeTensorOf<[F32]>:$input);
  let results = (outs StaticShapeTensorOf<[F32]>:$result);
  let assemblyFormat = "$layout `,` $input attr-dict `:` type($input)";
}

def FSDP_MemberSumsOp : FSDP_Op<"member_sums",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemRead<FSDP_ParameterMemory>,
                    MemRead<FSDP_OptimizerMemory>]>,
     LayoutUserOpInterface, UsesSymbols, SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "Sums a scalar program over this rank's part of each parameter";
  let description = [{
    The region takes the arguments of an optimizer's (`fsdp.optimizer`) and yields
    one or several f64 for an element. They are summed over the elements of each
    member that lie in this rank's shard. The result has a row per sum, those of a
    member one after the other, the members in the order of their layouts.
    `fsdp.all_reduce` makes them sums over whole parameters, which optimizers take as
    operands: LAMB and LARS scale a parameter's update by the ratio of two norms.

    Groups of 16 elements are summed in f64, and the groups exactly, so that the bits
    depend neither on ranks nor on layouts: a row holds the 16 digits of a number of
    fixed point (`runtime/core/square_sum.h`). A group's sum must not be negative. What
    it has below 2^-240 is cut off, and one of 2^261 or more counts as infinite. A rank
    sums its shard also where it keeps all of the state.

    `factors`, where present, are those of `fsdp.update_factors` for the same layouts.
    The region then takes the average of squares of the element behind the gradient.

    **Constraints**
    - Each of `layouts` names an `fsdp.layout` whose members are trainable, with the
      number of states that the region takes.
    - The region has one block with `states` + 5 arguments of an optimizer's types,
      and one more with `factors`.
    - It yields one to eight values, all of them f64.
    - The result is a tensor of f64 with that many rows of 16 elements per member.
    - The ops of the region have no memory effects and no regions.

    Example:
    ```mlir
    %sums = fsdp.member_sums [@h.0.flat], %scale : tensor<f32> -> tensor<1x16xf64> {
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
    /// Returns the row of the result at which the layout's sums begin, or
    /// nullopt if it is not one of `layouts`.
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

    Of a layout with `no_master` the parameter is widened from bf16. The region then takes a
    random word (i32) as its last argument, and the new parameter that it yields is an
    `nn.round_stochastic` with that word, which bf16 holds exactly. The word is a function of
    the seed, the step, the parameter's name and the element's index in the parameter:
    Philox4x32-10 with the key (seed low, seed high) and the counter (element / 4, hash
    low, hash high with its top bit set, step), where the hash is the name's XXH64, gives four
    words, of which element % 4 selects one. Ranks, strategies and threads do not matter, and
    no draw of the model has such a counter.

    `sums`, where present, are those of `fsdp.member_sums` over all ranks; those of the
    layout's first member begin at row `first`. `factors`, where present, are those of
    `fsdp.update_factors`, and the layout's begin at `first_factor`. The region then
    takes the average of squares of the element (f32) behind the gradient. `updates`,
    where present, come from `fsdp.spread_matrices` of the layout; the region takes the
    element's in the same place. `gradient`, where present, is the layout's
    `fsdp.whole_gradient`, which takes the place of the gradient in its memory.

    **Constraints**
    - `layout` names an `fsdp.layout` whose members are trainable.
    - The region has one block with `states` + 5 arguments of the types above, one more
      with `factors` or `updates`, one for each sum if there are `sums`, and the word if the
      layout has `no_master`.
    - With a word, what it yields for the parameter is an `nn.round_stochastic` with it.
    - There are not both `factors` and `updates`.
    - `gradient` is the `fsdp.whole_gradient` of `layout`.
    - `sums` has rows of 16 elements. Those of the layout's members lie within `sums`,
      their factors within `factors`.
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
                       Optional<StaticShapeTensorOf<[F64]>>:$factors, OptionalAttr<I64Attr>:$first_factor,
                       Optional<StaticShapeTensorOf<[F32]>>:$updates,
                       Optional<StaticShapeTensorOf<[F32]>>:$gradient);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $layout `,` $scale (`sums` $sums^ `[` $first `]`)? (`factors` $factors^ `[` $first_factor `]`)?
    (`updates` $updates^ `:` type($updates))? (`gradient` $gradient^ `:` type($gradient))? `:` type($scale) (`,` type($sums)^)? (`,` type($factors)^)? attr-dict-with-keyword $body
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Returns the number of sums per member that the region takes: what its
    /// arguments exceed those for parameter, states, gradient, lr, step and decay.
    int64_t getSumsPerMember() {
      ::mlir::Block &body = getBody().front();
      int64_t values = body.getTerminator()->getNumOperands();
      int64_t others = 4 + values + takesNumbers() + takesWord();
      return getSums() ? body.getNumArguments() - others : 0;
    }
    /// Returns true if an argument for the element's factors or update stands
    /// behind the gradient.
    bool takesNumbers() { return getFactors() || getUpdates(); }
    /// Returns true if the last argument is a random word.
    bool takesWord() {
      ::mlir::Block &body = getBody().front();
      return body.getNumArguments() > 0 &&
             body.getArguments().back().getType().isInteger(32);
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
