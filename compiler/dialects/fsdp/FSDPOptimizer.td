// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The programs of optimizers: regions that compute on one element of a shard,
// for its update or for sums over whole parameters.
#ifndef FSDPC_FSDP_OPTIMIZER
#define FSDPC_FSDP_OPTIMIZER

include "compiler/dialects/fsdp/FSDPMatrices.td"

def FSDP_MemberSumsOp : FSDP_Op<"member_sums",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemRead<FSDP_ParameterMemory>,
                    MemRead<FSDP_OptimizerMemory>]>,
     LayoutUserOpInterface, UsesSymbols, SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "Sums a scalar program over this rank's part of each parameter";
  let description = [{
    The region takes the arguments of an optimizer's (`fsdp.optimizer`) and yields
    one or several f64 for an element. Of layouts with `no_master` it takes the parameter as it
    is in memory, in bf16, and no random word. The results are summed over the elements of each
    member that lie in this rank's shard. The result has a row per sum, those of a
    member one after the other, the members in the order of their layouts.
    `fsdp.all_reduce` makes them sums over whole parameters, which optimizers take as
    operands, such as two norms by whose ratio a parameter's update is scaled.

    Groups of 16 elements are summed in f64, and the groups exactly, so that the bits
    depend neither on ranks nor on layouts: a row holds the 16 digits of a number of
    fixed point (`runtime/numeric/square_sum.h`). A group's sum must not be negative. Its
    bits below 2^-240 are cut off, and a sum of 2^261 or more counts as infinite. A rank
    sums its shard also where it keeps all of the state.

    `factors`, where present, are those of `fsdp.update_factors` for the same layouts.
    The region then takes the average of squares of the element behind the gradient.

    **Constraints**
    - Each of `layouts` names an `fsdp.layout` whose members are trainable, with the
      number of states that the region takes.
    - The region has one block with `states` + 5 arguments of an optimizer's types,
      and one more with `factors`. The first one is bf16 if all of the layouts have
      `no_master`, and f32 if none has.
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

def FSDP_YieldOp : FSDP_Op<"yield", [Pure, Terminator, ParentOneOf<["OptimizerOp", "MemberSumsOp", "LossWeightOp"]>]> {
  let summary = "Ends the program of an optimizer or of a weight";
  let description = [{
    In an `fsdp.optimizer` its operands are the new parameter, then the new states in
    the order of the region's arguments. In an `fsdp.member_sums` they are what is
    summed, and in an `fsdp.loss_weight` the weight.

    **Constraints**
    - The parent is an `fsdp.optimizer`, an `fsdp.member_sums` or an `fsdp.loss_weight`.
    - In an optimizer there is one f32 for the parameter and one for each state.
    - In an `fsdp.member_sums` there is at least one f64.
    - In an `fsdp.loss_weight` there is one scalar tensor.

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

#endif
