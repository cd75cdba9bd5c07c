// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops on sharded parameters, in the order in which the phases introduce them:
// flat buffers (shard), collectives (collectives), their starts and waits
// (schedule). The ops of @update are in FSDPUpdate.td, FSDPMatrices.td and
// FSDPOptimizer.td. The strategies gather, reduce and keep as ZeRO does
// (Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion
// Parameter Models, 2020) and PyTorch FSDP (Zhao et al., 2023).
#ifndef FSDPC_FSDP_COLLECTIVES
#define FSDPC_FSDP_COLLECTIVES

include "compiler/dialects/fsdp/FSDPModel.td"

// ---- after shard-parameters ----

def FSDP_FlatOp : FSDP_Op<"flat", [Pure, HoldsWeights, InComputeType,
    LayoutUserOpInterface, UsesSymbols]> {
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

def FSDP_ViewOp : FSDP_Op<"view", [Pure, HoldsWeights, InComputeType, NoCall, UsesSymbols,
    ViewOf<"getFlat()", "getOffsetInElements()">]> {
  let summary = "A member of a flat buffer";
  let description = [{
    Gives the elements [offset, offset + size) of a flat buffer the member's shape,
    without a copy: the result is an address within the buffer. In a flat buffer of bytes
    offset and size count bytes, and the result has the member's own element type.

    **Constraints**
    - `flat` has rank 1, and the same element type as the result, or elements of ui8.
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
  let extraClassDeclaration = [{
    /// Returns the offset in elements of the view, which in a flat buffer of bytes are
    /// not those of the buffer.
    int64_t getOffsetInElements();
  }];
}

def FSDP_PackOp : FSDP_Op<"pack", [Pure, InComputeType, NoCall, HoldsOperands, UsesSymbols]> {
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
    [InComputeType, MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>,
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

def FSDP_EnterOp : FSDP_Op<"enter", [NoCall, MemoryEffects<[MemWrite<FSDP_SegmentBounds>]>, UsesSymbols]> {
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

def FSDP_ExitOp : FSDP_Op<"exit", [NoCall, MemoryEffects<[MemWrite<FSDP_SegmentBounds>]>, UsesSymbols]> {
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
    [HoldsWeights, OutsideArena, NoCall, MemoryEffects<[MemRead<FSDP_ParameterMemory>]>,
     LayoutUserOpInterface, UsesSymbols]> {
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

// Which memory a gather reads, whether it writes any, and in which form it sends depends on
// its marks (SymbolEffects.cpp, Transfers.cpp).
defvar GatherEffects = DeclareOpInterfaceMethods<MemoryEffectsOpInterface>;
defvar GatherSends = DeclareOpInterfaceMethods<SendsOpInterface, ["getSending"]>;
defvar TransfersParameters = Transfers<"Gather",
    "  bool readsSecondary() { return getFromSecondary(); }\n">;

def FSDP_AllGatherOp : FSDP_Op<"all_gather",
    [HoldsWeights, MovedBySchedule, GatherEffects, GatherSends, TransfersParameters,
     LayoutUserOpInterface, UsesSymbols]> {
  let summary = "Gathers layouts from the shards of all ranks";
  let description = [{
    Every rank receives the shards of all ranks, in rank order, one result per
    layout. A result lives until its `fsdp.free`. The op is not Pure: CSE must not
    merge the backward's gather with the forward's. `schedule-prefetch` splits it into
    `fsdp.all_gather_start` and `fsdp.all_gather_wait`.

    With `--reshard-to` the first gather of a layout in a microbatch has the mark
    `keep_secondary`: each rank keeps, of what it receives, the part that is its own in
    a group of ranks, the layout's secondary shard. Later gathers have the mark
    `from_secondary` and gather the secondary shards of the rank's group, so that
    nothing leaves it (ZeRO++'s hpZ: Wang et al., ZeRO++, 2023).

    **Constraints**
    - Each of `layouts` names an `fsdp.layout`, with a mark one that is `secondary`.
    - There is one result per layout: a vector of its elements in its compute type.
    - It has at most one of the two marks.

    Example:
    ```mlir
    %flat, %frozen = fsdp.all_gather [@h.0.flat, @h.0.frozen] : tensor<32xbf16>, tensor<8xf32>
    fsdp.free %flat : tensor<32xbf16>
    fsdp.free %frozen : tensor<8xf32>
    %first = fsdp.all_gather [@h.1.flat] keep_secondary : tensor<32xf32>
    fsdp.free %first : tensor<32xf32>
    %again = fsdp.all_gather [@h.1.flat] from_secondary : tensor<32xf32>
    fsdp.free %again : tensor<32xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts, UnitAttr:$keep_secondary,
                       UnitAttr:$from_secondary);
  let results = (outs Variadic<NN_Tensor>:$results);
  let assemblyFormat = [{
    $layouts (`keep_secondary` $keep_secondary^)? (`from_secondary` $from_secondary^)?
    attr-dict `:` type($results)
  }];
  let hasVerifier = 1; // at most one mark
}

def FSDP_FreeOp : FSDP_Op<"free", [MovedBySchedule, NoCall]> {
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

defvar SendsGradients = Sends<"reduce_scatter", "HandedOver", /*eachMicrobatch=*/1>;

def FSDP_ReduceScatterOp : FSDP_Op<"reduce_scatter",
    [MovedBySchedule, Transfers<"Reduce">, SendsGradients,
     MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>,
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
    [MovedBySchedule, GatherEffects, GatherSends, TransfersParameters, LayoutUserOpInterface,
     UsesSymbols]> {
  let summary = "Starts an all-gather";
  let description = [{
    Starts `fsdp.all_gather` on its own stream; compute goes on meanwhile. The
    destinations are live from here. The token stands for the collective under way. The
    marks are those of `fsdp.all_gather`.

    **Constraints**
    - Each of `layouts` names an `fsdp.layout`, with a mark one that is `secondary`.
    - It has at most one of the two marks.
    - The token is waited for exactly once (`verify-schedule`).

    Example:
    ```mlir
    %token = fsdp.all_gather_start [@h.0.flat]
    %flat = fsdp.all_gather_wait %token : tensor<32xbf16>
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts, UnitAttr:$keep_secondary,
                       UnitAttr:$from_secondary);
  let results = (outs FSDP_Token:$token);
  let assemblyFormat = [{
    $layouts (`keep_secondary` $keep_secondary^)? (`from_secondary` $from_secondary^)?
    attr-dict
  }];
  let hasVerifier = 1; // at most one mark
}

def FSDP_AllGatherWaitOp : FSDP_Op<"all_gather_wait",
    [HoldsWeights, MovedBySchedule, MemoryEffects<[MemRead<FSDP_ParameterMemory>, MemAlloc]>,
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
    [MovedBySchedule, Transfers<"Reduce">, SendsGradients,
     MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>,
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
    [MovedBySchedule, MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>,
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

#endif
