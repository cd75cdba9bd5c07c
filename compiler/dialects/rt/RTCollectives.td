// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Communication of parameters, gradients and statistics. Each op names the layouts
// that it moves and states, as effects, which of the rank's memory it touches beside
// its pointers.
#ifndef FSDPC_RT_COLLECTIVES
#define FSDPC_RT_COLLECTIVES

include "compiler/dialects/rt/RTBase.td"

let usesRank = 1 in {

def RT_AllGatherOp : RT_Command<"all_gather", "gather",
    [ReachesPadding, MemoryEffects<[MemRead<FSDP_ParameterMemory>, MemWrite<RT_GatherWindow>]>, LayoutUserOpInterface]> {
  let summary = "Gathers layouts from the shards of all ranks";
  let description = [{
    Calls `fsdpc_all_gather` on stream `gather`. Writes, for each layout, the shards
    of all ranks in rank order to its destination, in the compute type. Those of a layout
    with a `wire` come in blocks and are converted. The length is padded to equal shards,
    so that the destination has room for padding after its last element, up to 128 bytes
    per rank, or a block. A destination that is the layout's own memory
    (space `whole`) is gathered in place. Where the ranks of a run hold their shards side
    by side, a destination in space `gathered` is these shards: nothing is copied, and the
    first gather of a step waits until all ranks have updated theirs.

    **Constraints**
    - There is one destination per layout.
    - The padding for `--max-ranks` ranks stays within the arena (`verify-rt`).

    Example:
    ```mlir
    %flat = rt.pointer gathered @h.1.flat + 0 bytes 9216 at 4096
    rt.all_gather [@h.1.flat] -> %flat
    ```
  }];
  let arguments = (ins RT_LayoutIndices:$layouts, RT_WrittenEach<FlatBuffers>:$destinations);
  let assemblyFormat = "$layouts `->` $destinations attr-dict";
}

def RT_KeepSecondaryOp : RT_Command<"keep_secondary", "gather",
    [ReachesPadding, MemoryEffects<[MemWrite<FSDP_SecondaryMemory>]>, LayoutUserOpInterface]> {
  let summary = "Keeps the rank's part of gathered layouts over its group";
  let description = [{
    Calls `fsdpc_keep_secondary` on stream `gather`. Copies, from each gathered layout,
    the part that this rank has in its group of ranks to the layout's secondary shard.
    No communication.

    **Constraints**
    - There is one source per layout, which has a secondary shard. An `rt.all_gather`
      has written it.

    Example:
    ```mlir
    %flat = rt.pointer gathered @h.1.flat + 0 bytes 9216 at 4096
    rt.all_gather [@h.1.flat] -> %flat
    rt.keep_secondary [@h.1.flat], %flat
    ```
  }];
  let arguments = (ins RT_LayoutIndices:$layouts, RT_ReadEach<FlatBuffers>:$sources);
  let assemblyFormat = "$layouts `,` $sources attr-dict";
}

def RT_GatherSecondaryOp : RT_Command<"gather_secondary", "gather",
    [ReachesPadding, MemoryEffects<[MemRead<FSDP_SecondaryMemory>, MemWrite<RT_GatherWindow>]>,
     LayoutUserOpInterface]> {
  let summary = "Gathers layouts from the secondary shards of the rank's group";
  let description = [{
    Calls `fsdpc_gather_secondary` on stream `gather`. Writes, for each layout, what
    `fsdpc_all_gather` wrote when its secondary shards were kept, from the ranks of this
    rank's group alone.

    **Constraints**
    - There is one destination per layout, which has a secondary shard.
    - The padding for `--max-ranks` ranks stays within the arena (`verify-rt`).

    Example:
    ```mlir
    %flat = rt.pointer gathered @h.1.flat + 0 bytes 9216 at 4096
    rt.gather_secondary [@h.1.flat] -> %flat
    ```
  }];
  let arguments = (ins RT_LayoutIndices:$layouts, RT_WrittenEach<FlatBuffers>:$destinations);
  let assemblyFormat = "$layouts `->` $destinations attr-dict";
}

def RT_ReduceScatterOp : RT_Command<"reduce_scatter", "reduce",
    [ThroughPieces, MemoryEffects<[MemRead<FSDP_GradientMemory>,
                    MemWrite<FSDP_GradientMemory>,
                    MemWrite<RT_ReduceWindow>]>,
     LayoutUserOpInterface]> {
  let summary = "Sums gradients over all ranks into the gradient shards";
  let description = [{
    Calls `fsdpc_reduce_scatter` on stream `reduce`. Reads each flat gradient, in the
    compute type, casts it to the wire type, sums over ranks in rank order in f32,
    and writes this rank's part to the layout's gradient shard (first microbatch of a
    step) or adds it (later ones).

    **Constraints**
    - There is one gradient per layout.

    Example:
    ```mlir
    %grad = rt.pointer arena + 4096 bytes 9216
    rt.reduce_scatter [@h.1.flat], %grad
    ```
  }];
  let arguments = (ins RT_LayoutIndices:$layouts, RT_ReadEach<FlatBuffers>:$gradients);
  let assemblyFormat = "$layouts `,` $gradients attr-dict";
}

def RT_AccumulateOp : RT_Command<"accumulate", "compute",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>, LayoutUserOpInterface]> {
  let summary = "Adds a gradient to a layout's full-size accumulator";
  let description = [{
    Calls `fsdpc_accumulate` on stream `compute`. Used with `--reduce=step`: writes
    (first microbatch of a step) or adds the flat gradient to the layout's f32
    accumulator, which every rank then keeps in full. No communication.

    **Constraints**
    - The layout keeps "gradient" on every rank.

    Example:
    ```mlir
    %grad = rt.pointer arena + 4096 bytes 9216
    rt.accumulate @h.1.flat, %grad
    ```
  }];
  let arguments = (ins RT_LayoutIndex:$layout,
                       RT_Read<"sizes.flat(getLayoutAttr())">:$gradient);
  let assemblyFormat = "$layout `,` $gradient attr-dict";
}

// An op that works on the memory of layouts alone.
class RT_OnLayouts<string mnemonic, string stream, list<Trait> traits>
    : RT_Command<mnemonic, stream, !listconcat(traits, [LayoutUserOpInterface])> {
  let arguments = (ins RT_LayoutIndices:$layouts);
  let assemblyFormat = "$layouts attr-dict";
}

def RT_ReduceGradientsOp : RT_OnLayouts<"reduce_gradients", "reduce",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>,
                    MemWrite<RT_ReduceWindow>]>]> {
  let summary = "Sums the accumulated gradients over all ranks";
  let description = [{
    Calls `fsdpc_reduce_gradients` on stream `reduce`. Used once per step with
    `--reduce=step`: sums the full-size f32 gradients that `rt.accumulate` left,
    over ranks in rank order, into this rank's part of each.

    **Constraints**
    - The layouts keep "gradient" on every rank.

    Example:
    ```mlir
    rt.reduce_gradients [@h.0.flat, @h.1.flat]
    ```
  }];
}

def RT_GatherGradientsOp : RT_OnLayouts<"gather_gradients", "gather",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>,
                    MemWrite<RT_GatherWindow>]>]> {
  let summary = "Gathers the reduced gradients of all ranks in place";
  let description = [{
    Calls `fsdpc_gather_gradients` on stream `gather`. Used by the strategy `ddp`:
    after it every rank holds the whole f32 gradient of each layout.

    **Constraints**
    - The layouts keep "gradient" on every rank.

    Example:
    ```mlir
    rt.gather_gradients [@h.0.flat, @h.1.flat]
    ```
  }];
}

def RT_WholeGradientOp : RT_Command<"whole_gradient", "gather",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<RT_GatherWindow>]>,
     LayoutUserOpInterface]> {
  let summary = "Gathers a layout's reduced gradient from all ranks";
  let description = [{
    Calls `fsdpc_whole_gradient` on stream `gather`. Used by the strategy `ddp` with
    `--max-accumulate=1`: writes the f32 gradient shards of all ranks, in rank order, to
    `gradient`, which has room for their padding.

    **Constraints**
    - `gradient` reaches 4 bytes per element of the layout and of the padding of
      `--max-ranks` shards.

    Example:
    ```mlir
    %gradient = rt.pointer arena + 4096 bytes 8704
    rt.whole_gradient @h.1.flat -> %gradient
    ```
  }];
  let arguments = (ins RT_LayoutIndex:$layout,
                       RT_Written<"sizes.wholeGradient(getLayoutAttr())">:$gradient);
  let assemblyFormat = "$layout `->` $gradient attr-dict";
}

def RT_UpdateStatisticsOp : RT_Command<"update_statistics", "reduce",
    [MemoryEffects<[MemWrite<RT_ReduceWindow>,
                    MemRead<RT_StatisticsMemory>,
                    MemWrite<RT_StatisticsMemory>]>]> {
  let summary = "Applies the batch statistics of the ranks to a buffer";
  let description = [{
    Calls `fsdpc_update_statistics` on stream `reduce`. Gathers every rank's
    statistic (f32, the buffer's length), then computes, for the ranks in order,
    buffer = (1 - momentum) · buffer + momentum · statistic. `mode` is one of
    FSDPC_BUFFERS_*: with LOCAL the rank applies its own statistic and gathers
    nothing, with BROADCAST all ranks apply that of rank 0, with AVERAGE the mean over
    ranks.

    **Constraints**
    - `buffer` names an `fsdp.buffer` of the statistic's length.
    - 0 ≤ `mode` ≤ 3.

    Example:
    ```mlir
    %mean = rt.pointer arena + 0 bytes 64
    rt.update_statistics @bn.running_mean, %mean momentum 1.000000e-01
    ```
  }];
  let arguments = (ins RT_BufferIndex:$buffer,
                       RT_Read<"sizes.buffer(getBufferAttr())">:$statistic, RT_Float64:$momentum,
                       RT_PassedAttr<DefaultValuedAttr<ConfinedAttr<I32Attr, [IntNonNegative, IntMaxValue<3>]>, "0">,
                                     "int32_t $name", "constant">:$mode);
  let assemblyFormat = "$buffer `,` $statistic `momentum` $momentum attr-dict";
}

} // usesRank

#endif
