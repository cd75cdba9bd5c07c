// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops of @update for optimizers that look at a parameter as a matrix:
// averages of squares along rows and columns, and updates that are
// orthogonalised as a whole.
#ifndef FSDPC_FSDP_MATRICES
#define FSDPC_FSDP_MATRICES

include "compiler/dialects/fsdp/FSDPUpdate.td"

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
    the 16 digits of a number of fixed point (`runtime/numeric/square_sum.h`). Where the
    squares of all elements are fewer numbers than the digits, they stand in the sums'
    place (`runtime/abi/factors.h`), 0 for the elements of other ranks. So do those of members
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
    The optimizer keeps averages of a gradient's squares along rows and along columns. They
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
}

def FSDP_MomentumUpdatesOp : FSDP_Op<"momentum_updates",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemRead<FSDP_OptimizerMemory>]>,
     LayoutUserOpInterface, UsesSymbols]> {
  let summary = "This rank's part of the momentum's updates, at its place in the whole";
  let description = [{
    The update of an element before its matrix is orthogonalised. With g the gradient
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
    [Sends<"collect_matrices", "ToOwners", /*eachMicrobatch=*/0>,
     ViewOf<"getInput()">, MemoryEffects<[MemWrite<FSDP_OtherRanks>]>, UsesSymbols,
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
    the result is undefined. Behind the elements of all members, rounded up to a multiple
    of four, the result has room in which the op computes: four times the largest member,
    rounded up likewise.

    **Constraints**
    - `layout` names an `fsdp.layout` whose members are trainable matrices.
    - `updates` is a vector of f32 with an element per element of the members, and the
      result has room behind them as above.
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
    [Sends<"spread_matrices", "FromOwners", /*eachMicrobatch=*/0>,
     ViewOf<"getInput()">, MemoryEffects<[MemWrite<FSDP_OtherRanks>]>, UsesSymbols,
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

#endif
