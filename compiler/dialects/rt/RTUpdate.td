// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The update at the end of a step: the norm of the gradients, the factor that clips
// them, and the optimizer.
#ifndef FSDPC_RT_UPDATE
#define FSDPC_RT_UPDATE

include "compiler/dialects/rt/RTBase.td"

let usesRank = 1 in {

def RT_SumSquaresOp : RT_Command<"sum_squares", "compute",
    [ThroughPieces, MemoryEffects<[MemRead<FSDP_GradientMemory>]>, LayoutUserOpInterface]> {
  let summary = "Sums the squares of this rank's gradients";
  let description = [{
    Calls `fsdpc_sum_squares` on stream `compute`. Writes 16 f64 per layout: the digits
    of the sum of squares over this rank's part of its gradient, padding not counted.

    **Constraints**
    - `sums` reaches 128 bytes per layout.

    Example:
    ```mlir
    %sums = rt.pointer arena + 0 bytes 256
    rt.sum_squares [@h.0.flat, @h.1.flat] -> %sums
    ```
  }];
  let arguments = (ins RT_LayoutIndices:$layouts,
                       RT_Written<"AccessSizes::exactSums(getLayouts().size())">:$sums);
  let assemblyFormat = "$layouts `->` $sums attr-dict";
}

def RT_AllReduceOp : RT_Command<"all_reduce", "reduce", [MemoryEffects<[MemWrite<RT_ReduceWindow>]>]> {
  let summary = "Sums numbers over all ranks in place";
  let description = [{
    Calls `fsdpc_all_reduce` on stream `reduce`. Reads and writes `count` f64; the sum
    is in rank order, so that all ranks hold the same bits.

    **Constraints**
    - `values` reaches 8 · `count` bytes.

    Example:
    ```mlir
    %sums = rt.pointer arena + 0 bytes 256
    rt.all_reduce %sums count 32
    ```
  }];
  let arguments = (ins RT_Int32:$count,
                       RT_Updated<"int64_t(sizeof(double)) * getCount()">:$values);
  let assemblyFormat = "$values `count` $count attr-dict";
}

def RT_ClipOp : RT_Command<"clip", "compute", [MemoryEffects<[MemWrite<FSDP_StepReport>]>]> {
  let summary = "Computes the factor that scales and clips the gradients";
  let description = [{
    Calls `fsdpc_clip` on stream `compute`. With V the number of microbatches of a
    step over all ranks, norm = sqrt(Σ sums) / V is reported, and `scale` (one f32)
    becomes min(1, max_norm / (norm + 1e-6)) / V, or 1 / V where max_norm is 0. A sum
    that is not finite ends the run and names the first unit that has one; with a dynamic
    loss scale or `--on-nonfinite` the optimizers of this step do nothing instead.

    **Constraints**
    - `sums` reaches 128 bytes per layout, `scale` 4 bytes.

    Example:
    ```mlir
    %sums = rt.pointer arena + 0 bytes 256
    %scale = rt.pointer arena + 256 bytes 4
    rt.clip [@h.0.flat, @h.1.flat], %sums max_norm 1.000000e+00 -> %scale
    ```
  }];
  let arguments = (ins RT_LayoutIndices:$layouts,
                       RT_Read<"AccessSizes::exactSums(getLayouts().size())">:$sums,
                       RT_Float64:$max_norm, RT_Written<OneF32>:$scale);
  let assemblyFormat = "$layouts `,` $sums `max_norm` $max_norm `->` $scale attr-dict";
}

def RT_FactorSumsOp : RT_Command<"factor_sums", "compute",
    [ThroughPieces, MemoryEffects<[MemRead<FSDP_GradientMemory>]>, LayoutUserOpInterface]> {
  let summary = "Sums squares along rows and columns of this rank's gradients";
  let description = [{
    Calls `fsdpc_factor_sums` on stream `compute`. Writes 16 f64 per row and column of
    each member of each layout, the digits of the sum of squares of the gradient times
    `scale` (one f32), clipped to `clip_value` if that is not 0, over the elements of the
    member that lie in this rank's shard; or, for small members, the squares of the
    elements (`fsdp.factor_sums`).

    **Constraints**
    - `scale` reaches 4 bytes, `sums` 128 bytes per row and column, or 8 per element.

    Example:
    ```mlir
    %scale = rt.pointer arena + 256 bytes 4
    %sums = rt.pointer arena + 0 bytes 256
    rt.factor_sums [@h.0.flat], %scale clip_value 0.000000e+00 -> %sums
    ```
  }];
  let arguments = (ins RT_LayoutIndices:$layouts, RT_Read<OneF32>:$scale, RT_Float64:$clip_value,
                       RT_Written<"sizes.factorSums(getLayoutRefs())">:$sums);
  let assemblyFormat = "$layouts `,` $scale `clip_value` $clip_value `->` $sums attr-dict";
}

def RT_UpdateFactorsOp : RT_Command<"update_factors", "compute",
    [MemoryEffects<[MemRead<FSDP_OptimizerMemory>, MemWrite<FSDP_OptimizerMemory>]>,
     LayoutUserOpInterface]> {
  let summary = "Updates the factored averages of squares";
  let description = [{
    Calls `fsdpc_update_factors` on stream `compute`. Takes the sums of all ranks, updates
    the buffers with the averages of rows and columns, and writes the factors of the
    elements' averages (`fsdp.update_factors`), one f64 per row and column.

    **Constraints**
    - `sums` reaches as many bytes as that of `rt.factor_sums`, `factors` 8 per row and
      column of each member.

    Example:
    ```mlir
    %sums = rt.pointer arena + 0 bytes 256
    %factors = rt.pointer arena + 256 bytes 96
    rt.update_factors [@h.0.flat], %sums eps 1.000000e-07 power -8.000000e-01 -> %factors
    ```
  }];
  let arguments = (ins RT_LayoutIndices:$layouts,
                       RT_Read<"sizes.factorSums(getLayoutRefs())">:$sums, RT_Float64:$eps,
                       RT_Float64:$power, RT_Written<"sizes.factors(getLayoutRefs())">:$factors);
  let assemblyFormat = "$layouts `,` $sums `eps` $eps `power` $power `->` $factors attr-dict";
}

def RT_MomentumUpdatesOp : RT_Command<"momentum_updates", "compute",
    [ThroughPieces, MemoryEffects<[MemRead<FSDP_GradientMemory>, MemRead<FSDP_OptimizerMemory>]>,
     LayoutUserOpInterface]> {
  let summary = "This rank's part of the momentum's updates";
  let description = [{
    Calls `fsdpc_momentum_updates` on stream `compute`. `updates` has one f32 per element
    of each member. The call writes the update of the momentum (`fsdp.momentum_updates`)
    for those that lie in this rank's shard. `nesterov` and `maximize` are 0 or 1.

    **Constraints**
    - `scale` reaches 4 bytes, `updates` 4 bytes per element of the members.

    Example:
    ```mlir
    %scale = rt.pointer arena + 64 bytes 4
    %updates = rt.pointer arena + 128 bytes 256
    rt.momentum_updates @h.0.flat, %scale momentum 9.500000e-01 clip_value 0.000000e+00 nesterov 1 maximize 0 -> %updates
    ```
  }];
  let arguments = (ins RT_LayoutIndex:$layout, RT_Read<OneF32>:$scale, RT_Float64:$momentum,
                       RT_Float64:$clip_value, RT_Int32:$nesterov, RT_Int32:$maximize,
                       RT_Written<"sizes.matrices(getLayoutAttr())">:$updates);
  let assemblyFormat = [{
    $layout `,` $scale `momentum` $momentum `clip_value` $clip_value `nesterov` $nesterov
    `maximize` $maximize `->` $updates attr-dict
  }];
}

def RT_MoveMatricesOp : RT_Command<"move_matrices", "reduce", [MemoryEffects<[MemWrite<RT_ReduceWindow>]>]> {
  let summary = "Sends parts of matrices to their owners, or back";
  let description = [{
    Calls `fsdpc_move_matrices` on stream `reduce`. `elements` has one f32 per element of
    each member. With `to_owners` every rank sends its part of a member to the rank that
    owns it; without, the owner sends every rank the part that this rank updates
    (`fsdp.collect_matrices`, `fsdp.spread_matrices`).

    **Constraints**
    - `elements` reaches 4 bytes per element of the members.

    Example:
    ```mlir
    %updates = rt.pointer arena + 128 bytes 256
    rt.move_matrices @h.0.flat, %updates to_owners 1
    ```
  }];
  let arguments = (ins RT_LayoutIndex:$layout,
                       RT_Updated<"sizes.matrices(getLayoutAttr())">:$elements, RT_Int32:$to_owners);
  let assemblyFormat = "$layout `,` $elements `to_owners` $to_owners attr-dict";
}

def RT_OrthogonalizeOp : RT_Command<"orthogonalize", "compute"> {
  let summary = "Orthogonalises the matrices that this rank owns";
  let description = [{
    Calls `fsdpc_orthogonalize` on stream `compute`. Reads `updates`, one f32 per element
    of each member, and writes to `result` those of the members that this rank owns
    (`fsdp.orthogonalize`). Behind them `result` has room for four times the largest
    member, in which the call computes. `bf16` and `match_rms` are 0 or 1.

    **Constraints**
    - `updates` reaches 4 bytes per element of the members, `result` as many and 16 per
      element of the largest one, both in multiples of 16 bytes.

    Example:
    ```mlir
    %updates = rt.pointer arena + 128 bytes 256
    %result = rt.pointer arena + 384 bytes 1280
    rt.orthogonalize @h.0.flat, %updates a 3.444500e+00 b -4.775000e+00 c 2.031500e+00 eps 1.000000e-07 steps 5 bf16 0 match_rms 0 -> %result
    ```
  }];
  let arguments = (ins RT_LayoutIndex:$layout,
                       RT_Read<"sizes.matrices(getLayoutAttr())">:$updates, RT_Float64:$a,
                       RT_Float64:$b, RT_Float64:$c, RT_Float64:$eps, RT_Int32:$steps,
                       RT_Int32:$bf16, RT_Int32:$match_rms,
                       RT_Written<"sizes.orthogonalized(getLayoutAttr())">:$result);
  let assemblyFormat = [{
    $layout `,` $updates `a` $a `b` $b `c` $c `eps` $eps `steps` $steps `bf16` $bf16
    `match_rms` $match_rms `->` $result attr-dict
  }];
}

def RT_MemberSumsOp : RT_Command<"member_sums", "compute",
    [ThroughPieces, MemoryEffects<[MemRead<FSDP_GradientMemory>,
                    MemRead<FSDP_ParameterMemory>,
                    MemRead<FSDP_OptimizerMemory>]>,
     LayoutUserOpInterface,
     DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Sums a scalar program over this rank's shard of each parameter";
  let description = [{
    Calls `fsdpc_member_sums` on stream `compute`. Writes `per_member` times 16 f64 for
    each member of each layout: the digits of the sums of what an outlined program yields
    for the elements of the member that lie in this rank's shard, 0 where there are none.

    The kernel's buffers are indexed by element: master, gradient, state 0 … state
    n-1. Without a master the parameter in bf16 stands in its place. Then follow `scale` (one f32), the double[4] of `fsdpc_optimizer`, and
    double[per_member] for each 16 elements of the range, of which the kernel writes
    the sums. It runs once per member and range; a range begins at a multiple of 16. On a
    GPU the tables of `fsdpc_optimizer`'s launch stand in the place of the double[4], a
    segment has 4096 elements at most, and each has room for 256 times `per_member` sums.

    With `factors`, which hold an f64 per row and column of each member, the average of
    squares that follows from them stands behind the gradient.

    **Constraints**
    - `kernel` names a function marked `nn.kernel`.
    - `sums` reaches 128 · `per_member` bytes per member.

    Example:
    ```mlir
    func.func private @squares(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64) -> f64 attributes {nn.kernel, nn.optimizer} {
      %wide = arith.extf %p : f32 to f64
      %square = arith.mulf %wide, %wide : f64
      return %square : f64
    }
    %scale = rt.pointer arena + 256 bytes 4
    %sums = rt.pointer arena + 0 bytes 256
    rt.member_sums @squares([@h.0.flat], %scale) per_member 1 -> %sums
    ```
  }];
  let arguments = (ins RT_Kernel<>:$kernel, RT_LayoutIndices:$layouts,
                       RT_Read<OneF32>:$scale, RT_Int32:$per_member,
                       RT_Written<"sizes.memberSums(getLayoutRefs(), getPerMember())">:$sums,
                       RT_Read<"sizes.factors(getLayoutRefs())", Optional<RT_Pointer>>:$factors);
  let assemblyFormat = [{
    $kernel `(` $layouts `,` $scale `)` `per_member` $per_member (`factors` $factors^)? `->` $sums attr-dict
  }];
}

def RT_OptimizerOp : RT_Command<"optimizer", "compute",
    [ThroughPieces, MemoryEffects<[MemRead<FSDP_GradientMemory>,
                    MemRead<FSDP_ParameterMemory>,
                    MemWrite<FSDP_ParameterMemory>,
                    MemRead<FSDP_OptimizerMemory>,
                    MemWrite<FSDP_OptimizerMemory>]>,
     LayoutUserOpInterface, AttrSizedOperandSegments,
     DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Updates this rank's part of a layout";
  let description = [{
    Calls `fsdpc_optimizer` on stream `compute`. Runs an outlined optimizer over the
    elements of this rank's part of the layout (all of it where the state is not
    sharded), with each member's learning rate and weight decay. It reads the
    gradient and `scale` (one f32), and updates the master weights, the states and,
    where the layout has one, the copy in the compute type. `sums` is null, or has
    the digits of `per_member` sums for each member, 16 f64 per sum. In a step that is left
    out it changes nothing: on a GPU, which decides that itself, `scale` is NaN then
    (`fsdpc_clip`), on the host the kernel does not run.

    The kernel's buffers are indexed by element of that part: master, gradient,
    state 0 … state n-1, and the copy in the compute type if there is one. Without a
    master (`no_master`) the parameter in bf16 stands in its place, and in that of the copy
    int64[4], from which the random words of `fsdp.optimizer` follow: the seed; words 1 and 2
    of the counter, which name the member; the step; and the place in the member of the
    part's first element, less than 0 if the member begins behind it. Then follow `scale` and

    - on the host double[4]: lr · the member's rate; step, from 1; the member's weight
      decay; unused. The kernel runs once per member and range.
    - on a GPU int64[3] per segment: from, to (elements of the part), member; and
      double[4] per member. One launch, with one block per segment. The int64[4] of a
      layout without a master are there per member, too.

    With `sums` the last buffer is the address of the member's, one f64 per sum; on a GPU that
    of all members', one after the other. With `factors`, which hold an f64 per row and column of each member, the average of squares that follows
    from them stands behind the gradient. With `updates`, an f32 per element of the
    members, the element's stands there. With
    `gradient`, an f32 per element of the layout, that is read in place of the gradient
    in the layout's memory.

    **Constraints**
    - `kernel` names a function marked `nn.kernel`.
    - `sums`, where present, reaches 128 · `per_member` bytes per member.

    Example:
    ```mlir
    func.func private @sgd(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64) -> f32 attributes {nn.kernel, nn.optimizer} {
      %rate = arith.truncf %lr : f64 to f32
      %change = arith.mulf %rate, %g : f32
      %new = arith.subf %p, %change : f32
      return %new : f32
    }
    %scale = rt.pointer arena + 256 bytes 4
    rt.optimizer @sgd(@h.0.flat, %scale)
    ```
  }];
  let arguments = (ins RT_Kernel<>:$kernel, RT_LayoutIndex:$layout, RT_Read<OneF32>:$scale,
                       RT_PassedAttr<DefaultValuedAttr<I32Attr, "0">,
                                     "int32_t $name", "constant">:$per_member,
                       RT_Read<"sizes.memberSums(getLayoutRefs(), getPerMember())",
                               Optional<RT_Pointer>>:$sums,
                       RT_Read<"sizes.factors(getLayoutRefs())", Optional<RT_Pointer>>:$factors,
                       RT_Read<"sizes.matrices(getLayoutAttr())", Optional<RT_Pointer>>:$updates,
                       RT_Read<"sizes.wholeGradient(getLayoutAttr())", Optional<RT_Pointer>>:$gradient);
  let assemblyFormat = [{
    $kernel `(` $layout `,` $scale `)` (`sums` $sums^ `per_member` $per_member)?
    (`factors` $factors^)? (`updates` $updates^)? (`gradient` $gradient^)? attr-dict
  }];
}

} // usesRank

#endif
