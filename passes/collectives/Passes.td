// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes of the phase `collectives`: after it, gathers, frees and reductions stand
// where the strategy wants them, in program order and synchronous.
// verify-collectives checks that.
#ifndef FSDPC_PASSES_COLLECTIVES
#define FSDPC_PASSES_COLLECTIVES

include "mlir/Pass/PassBase.td"

def DelayGradients : Pass<"delay-gradients", "::mlir::ModuleOp"> {
  let summary = "Computes gradients as late as their operands are in memory anyway";
  let description = [{
    The flat buffer of a unit's gradients (`fsdp.pack`) is occupied from the first gradient
    on. An op of @microbatch whose results only packs read, perhaps through views, moves
    down to the last reader of its operands, within its unit and direction. No operand
    lives longer. A unit whose gradients all move below the last reader of its weights
    needs the memory of the weights or of the gradients, but not of both.

    Before, the buffer of @h.0.flat is occupied from `%db` on, beside the weight `%w`:
    ```mlir
    %db = nn.reduce sum %dy [0] : tensor<4x8xf32> -> tensor<1x8xf32>
    %dx = nn.matmul %dy, %w {transpose_b} : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    %dw = nn.matmul %x, %dy {transpose_a} : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<8x8xf32>
    %g = fsdp.pack @h.0.flat(%dw, %db) : …
    ```
    After:
    ```mlir
    %dx = nn.matmul %dy, %w {transpose_b} : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    %db = nn.reduce sum %dy [0] : tensor<4x8xf32> -> tensor<1x8xf32>
    %dw = nn.matmul %x, %dy {transpose_a} : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<8x8xf32>
    %g = fsdp.pack @h.0.flat(%dw, %db) : …
    ```
  }];
  let statistics = [Statistic<"moved", "moved", "ops moved">];
}

def MaterializeCollectives : Pass<"materialize-collectives", "::mlir::ModuleOp"> {
  let summary = "Places gathers, frees and reductions as the strategies want them";
  let description = [{
    A segment is a run of ops of one unit in program order; ops that read no weight do not
    end one. `fsdp.enter` and `fsdp.exit` show its bounds.

    Each layout's strategy decides on its own; units may differ (`strategy-of`). A unit's
    layouts whose "compute" is not `whole` are gathered before the first op of a segment that
    reads them and freed after the last. A forward segment that the unit's own backward follows shares
    one gather with it. A unit whose weights the backward does not read is not gathered
    there; weights of another unit are gathered where they are read. For the other
    layouts `fsdp.replicated` takes the place of the flat buffer.

    | layouts | in @microbatch |
    |---|---|
    | whose strategy reduces at the end (zero1, hybrid_zero1, ddp) | one reduce_scatter of all of them at the end |
    | that have owners (oss) | a reduce_scatter of each bucket, after its last pack |
    | others | a reduce_scatter after the unit's pack |

    | what is `whole` | in @update |
    |---|---|
    | neither compute nor state (zero3) | |
    | compute, not state (zero2, zero1, oss) | gather_parameters at the end |
    | state (ddp) | gather_gradients before the optimizers, or with `max-accumulate = 1` a whole_gradient before each |

    The hybrid strategies differ from those beside them in the ranks that an op concerns:
    at run time their layouts are cut over groups of ranks. An op reduces each of its layouts
    that has an owner, a parameter, to that rank, and gathers it from there. A bucket takes the
    next packs, in program order, up to `bucket-size` elements; a larger one is reduced alone.

    With `reduce = step` packs are accumulated locally, and @update begins with
    reduce_gradients.

    With `reshard-to`, layouts that @microbatch gathers several times, and from all ranks, become
    `secondary`: the first gather has the mark `keep_secondary`, the others
    `from_secondary`, so that only the first one leaves its group of ranks.

    Before:
    ```mlir
    %f = fsdp.flat @h.0.flat {fsdp.unit = @h.0} : tensor<64xf32>
    %w = fsdp.view %f[@h.0.w at 0] {fsdp.unit = @h.0} : …
    %y = nn.matmul %x, %w {fsdp.unit = @h.0} : …
    ```
    After, in zero3:
    ```mlir
    fsdp.enter @h.0
    %f = fsdp.all_gather [@h.0.flat] {fsdp.unit = @h.0} : tensor<64xf32>
    %w = fsdp.view %f[@h.0.w at 0] {fsdp.unit = @h.0} : …
    %y = nn.matmul %x, %w {fsdp.unit = @h.0} : …
    fsdp.free %f {fsdp.unit = @h.0} : tensor<64xf32>
    fsdp.exit @h.0
    ```
  }];
  let statistics = [Statistic<"gathers", "gathers", "all_gathers placed">,
                    Statistic<"segments", "segments", "segments found">];
  let dependentDialects = ["::fsdpc::fsdp::FSDPDialect"];
}

def FuseSmallCollectives : Pass<"fuse-small-collectives", "::mlir::ModuleOp"> {
  let summary = "Joins neighbouring small collectives";
  let description = [{
    A collective costs its latency whatever its size. Neighbouring all_gathers, and
    neighbouring reduce_scatters with nothing but packs and marks between them, become one
    op on several layouts while they move at most 1 MiB together. Those of one unit (its
    trainable and its frozen layout) are joined at any size. Gathers with other marks for
    secondary shards are not joined, and neither are the buckets of oss.

    Before:
    ```mlir
    %a = fsdp.all_gather [@u.flat] : tensor<64xf32>
    %b = fsdp.all_gather [@u.frozen] : tensor<32xf32>
    ```
    After:
    ```mlir
    %a, %b = fsdp.all_gather [@u.flat, @u.frozen] : tensor<64xf32>, tensor<32xf32>
    ```
  }];
  let statistics = [Statistic<"fused", "fused", "collectives fused away">];
}

def OffloadActivations : Pass<"offload-activations", "::mlir::ModuleOp"> {
  let summary = "Has activations lie in a file between forward and backward";
  let description = [{
    With `offload = activations`, values that the backward reads are written to the rank's
    file, on GPUs to its pinned memory, after their last reader in the forward, and read
    back before their first one in the backward. Those with the same segments at both ends
    move together. The arena has their bytes for something else between the two.
    `schedule-prefetch` then has both overlap compute, as it does with reductions and
    gathers.

    A value stays in memory if it has less than 1024 bytes, if no other segment runs
    between the two readers, or if its memory is part of another value's (of a concat, a
    pack or a sum in place). An option that moves nothing is an error. Under a
    `memory-limit`, `schedule-prefetch` takes back what the limit has room for.

    Before:
    ```mlir
    %h = nn.launch @gelu_8x192(%x) {fsdp.unit = @h.0} : …
    %y = nn.matmul %h, %w {fsdp.unit = @h.0} : …
    … the other units …
    %dw = nn.matmul %h, %dy {fsdp.unit = @h.0, fsdp.backward} : …
    ```
    After:
    ```mlir
    %h = nn.launch @gelu_8x192(%x) {fsdp.unit = @h.0} : …
    %y = nn.matmul %h, %w {fsdp.unit = @h.0} : …
    %held = fsdp.offload %h {fsdp.unit = @h.0} : tensor<8x192xf32>
    … the other units …
    %again = fsdp.fetch %held {fsdp.unit = @h.0, fsdp.backward} : tensor<8x192xf32>
    %dw = nn.matmul %again, %dy {fsdp.unit = @h.0, fsdp.backward} : …
    ```
  }];
  let statistics = [Statistic<"offloads", "offloads", "pieces offloaded">,
                    Statistic<"bytes", "bytes", "bytes offloaded">];
}

def VerifyCollectives : Pass<"verify-collectives", "::mlir::ModuleOp"> {
  let summary = "Checks what holds after the phase `collectives`";
  let description = [{
    Refuses a module that breaks one of these rules, and changes nothing. Collectives are
    one piece here, and correct in program order; where they start and end is edited in
    the dump of `schedule-prefetch`. In the dumps of the phases `schedule` and `memory` all
    rules are checked again but `segment` and those on the lives of gathered buffers
    (`gather-once`, `used`, `free-once`, `free-after-use`, `kept`), which
    `verify-schedule` replaces.

    | rule of @microbatch | broken where |
    |---|---|
    | `replication` | a layout's `whole` is not what its strategy and `reduce` keep on every rank |
    | `unsummed` | a layout is `fsdp.unsummed` where several ranks or microbatches add to its gradient, or is not where one does |
    | `stage` | an `fsdp.flat` or `fsdp.reduce` is left, or a collective is split |
    | `replicated` | a replicated layout is gathered, or a sharded one is not |
    | `secondary` | a gather reads a secondary shard that no earlier gather of the function has kept, none of @microbatch keeps that of a layout that has one, or such a layout is not gathered from all ranks |
    | `segment` | `fsdp.enter` and `fsdp.exit` do not alternate and match, or an op reads weights outside of a segment of its unit and direction |
    | `gather-once` | a layout is gathered while an earlier gather of it is not freed |
    | `used` | nothing computes with what an all_gather gathers |
    | `free-once` | a gathered buffer is not freed exactly once |
    | `free-after-use` | it is freed before the last use of it or of a view |
    | `kept` | ops of two units read weights between a gather and its free |
    | `unit` | a gather, a free or a view is of another unit than its reader, or a reduction of a unit that has none of its layouts |
    | `reduce-once` | a trainable layout's gradient is not reduced exactly once (with `reduce = step`: accumulated), or the layouts whose strategies reduce at the end have more than one reduction |
    | `bucket` | a reduction to owners has layouts without one as well, or several with more than `bucket-size` elements together |
    | `gradient` | what is reduced for a layout is not its `fsdp.pack` |
    | `statistics` | a buffer is updated in the backward, or twice with one value |
    | `symmetric` | an op that communicates stands in a region |
    | `evaluate` | an op of @evaluate changes parameters, gradients, states or buffers |

    | rule of @update | broken where |
    |---|---|
    | `norm` | there is not one sum_squares of all trainable layouts, one all_reduce of it, and one clip_scale of that |
    | `scale` | the backward begins with `fsdp.loss_scale`, but `--loss-scale` is none |
    | `optimizer` | a trainable layout does not have one optimizer, scaled by clip_scale, or that takes what the layout does not say |
    | `sums` | the sums that an optimizer takes are not those of its layout's members, of gradients scaled by clip_scale and added up over the ranks once, or no optimizer takes them |
    | `factors` | the factors that an optimizer takes are not those of its layout's members, updated once from sums of all ranks |
    | `updates` | the updates that an optimizer takes are not those of its layout's momentum, collected, orthogonalised and spread once each |
    | `reduce-once` | an op other than reduce_gradients and gather_gradients changes gradients |
    | `update` | a collective is missing, unwanted, there twice, of other layouts than those whose strategy wants it, or out of order: reduce_gradients before sum_squares, gather_gradients before the optimizers, gather_parameters after them; or an optimizer of a whole layout whose gradient every rank has a part of does not take its whole_gradient, or another one does |

    Refused, since unit h.0's weights are kept while h.1's are read (`kept`):
    ```mlir
    %f = fsdp.all_gather [@h.0.flat] {fsdp.unit = @h.0} : tensor<64xf32>
    %y = nn.mul %x, %f {fsdp.unit = @h.0} : tensor<64xf32>
    …
    %z = nn.mul %y, %g {fsdp.unit = @h.1} : tensor<64xf32>
    fsdp.free %f {fsdp.unit = @h.0} : tensor<64xf32>
    ```
  }];
  let options = [
    Option<"scheduled", "scheduled", "bool", "false",
           "collectives are split, as in dumps of the phases schedule and memory">];
}

#endif
