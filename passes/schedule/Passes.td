// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes of the phase `schedule`: after it, collectives start and are waited for at
// places of their own, so that they overlap compute within the memory cap.
#ifndef FSDPC_PASSES_SCHEDULE
#define FSDPC_PASSES_SCHEDULE

include "mlir/Pass/PassBase.td"

def SchedulePrefetch : Pass<"schedule-prefetch", "::mlir::ModuleOp"> {
  let summary = "Splits collectives into start and wait, placed by the solver under the memory cap";
  let description = [{
    Translates @microbatch into a problem of compiler/schedule (ops with their costs,
    collectives with the windows in which they may run, the arena's slots as buffers),
    solves it and rewrites the collectives. An offload of activations counts as a reduction
    and a fetch as a gather, on their channels. `prefetch` chooses the solver:

    | `prefetch` | an all_gather starts |
    |---|---|
    | `none` | where it is needed |
    | `post` | after the compute of the segment before |
    | `pre`  | before the compute of the segment before |
    | `auto` | where the least communication is exposed, then where the least memory is taken |

    `limit-all-gathers` bounds the gathers that are alive at once. `memory-limit` is a hard
    cap on a rank's planned peak at `plan-ranks`: it is kept, or the compile fails. Without it
    `auto` may take no more memory than `pre` does: it moves memory and time around within
    what one segment of prefetch costs. The rank's memory beside the arena is that of the
    runtime's own plan.

    Under a `memory-limit`, activations are offloaded only as far as the limit requires.
    Pieces that have the most time between their two ends, less that of their copies, leave
    first, and as many as make the step fastest of the numbers that were tried; the other
    offloads are removed before the rest is solved. `fsdp.offloaded` has what leaves, out
    of what could, with the time of its copies.

    With `schedule`, a table (compiler/schedule/table.h) places the collectives instead of a
    solver. A table that is not this module's, or breaks a rule of the model, is refused with
    its row and the rule.

    `problem=FILE` also writes the problem as JSON. `schedule_bench FILE` then solves it with
    each rule under several caps, beside the lower bound of what must be exposed.

    Before:
    ```mlir
    fsdp.enter @h.1
    %w = fsdp.all_gather [@h.1.flat] : tensor<2304xf32>
    %v = fsdp.view %w[@h.1.w at 0] : tensor<2304xf32> -> tensor<48x48xf32>
    %y = nn.matmul %x, %v : …
    fsdp.free %w : tensor<2304xf32>
    fsdp.exit @h.1
    ```
    After:
    ```mlir
    %t = fsdp.all_gather_start [@h.1.flat] {fsdp.bytes = 9216 : i64, fsdp.cost_us = 52.0 : f64}
    … compute of unit h.0 …
    fsdp.enter @h.1
    %w = fsdp.all_gather_wait %t {fsdp.exposed_us = 0.0 : f64} : tensor<2304xf32>
    %v = fsdp.view %w[@h.1.w at 0] : tensor<2304xf32> -> tensor<48x48xf32>
    %y = nn.matmul %x, %v : …
    fsdp.free %w : tensor<2304xf32>
    fsdp.exit @h.1
    ```
    The annotations are what the solver assumed. The module's
    `fsdp.communication` has the bytes that a rank sends per step, by kind of
    collective. `verify-schedule` writes both anew.
  }];
  let dependentDialects = ["::fsdpc::rt::RTDialect"]; // library plans
  let options = [Option<"problemFile", "problem", "std::string", /*default=*/"",
    "also writes the problem to this file, as JSON (tools/bench/schedules.cpp reads it)">];
  let statistics = [Statistic<"gathers", "gathers", "all_gathers placed">,
                    Statistic<"reductions", "reductions", "reduce_scatters placed">];
}

def ApplyProfile : Pass<"apply-profile", "::mlir::ModuleOp"> {
  let summary = "Replaces the costs of ops by what a run has measured";
  let description = [{
    With `--profile=TRACE`, this pass runs before `schedule-prefetch`. `trace` is the file of
    a program's `--trace`, by one rank on any number of ranks. Each op of @microbatch that has a cost gets
    the median of its durations over the microbatches in the file. Collectives keep
    the machine's times: those of a run contain the waits for other ranks.

    The program of the trace must have the same ops in the same order, whatever its
    schedule was; a difference in number, unit, direction or work is an error.

    Before:
    ```mlir
    %y = nn.matmul %x, %w {fsdp.cost_us = 52.000000e+00 : f64, fsdp.flops = 4608 : i64} : …
    ```
    After:
    ```mlir
    %y = nn.matmul %x, %w {fsdp.cost_us = 61.250000e+00 : f64, fsdp.flops = 4608 : i64} : …
    ```
  }];
  let dependentDialects = ["::fsdpc::rt::RTDialect"]; // library plans
  let options = [Option<"traceFile", "trace", "std::string", /*default=*/"",
    "the file of --trace">];
}

def VerifySchedule : Pass<"verify-schedule", "::mlir::ModuleOp"> {
  let summary = "Checks a schedule, whoever wrote it, and annotates what it exposes";
  let description = [{
    A schedule that was edited in a dump is checked by the same model that the solver
    solves. The pass refuses a module that breaks one of these rules:

    | rule | broken where |
    |---|---|
    | `split` | a collective of @microbatch is not split into start and wait |
    | `token` | a start is not waited for exactly once |
    | `used` | nothing reads what an all_gather gathers or a fetch reads, or nothing fetches what is offloaded |
    | `free-once` | a gathered or fetched buffer is not freed exactly once |
    | `free-after-use` | it is freed before the last use of it, of its views, or of what is accumulated in it |
    | `source-kept` | a gradient is written while its reduce_scatter is under way, or a value while it is offloaded |
    | `symbol-hazard` | memory behind a symbol is written, or read while written, by an op between a collective's start and its wait |
    | `live-gathers` | more gathers are alive than `limit-all-gathers` |
    | `start-window` | a reduction or an offload starts before its operands are complete (an offload also before its last reader), or a fetch before the backward has begun |
    | `wait-before-use` | a gather or a fetch is waited for after its first use, or an offload after the backward has begun |

    The effects of an op in ODS say what it does to memory behind symbols. An op that
    does not state them is refused, as is one that names layouts and has no effect on
    their memory.

    SSA guarantees the rest: a wait follows its start and precedes any use, and a reduction
    follows its gradient. A wait means that the result can be read, and the source
    overwritten, on all ranks.

    Before:
    ```mlir
    %t = fsdp.all_gather_start [@h.1.flat]
    %w = fsdp.all_gather_wait %t : tensor<2304xf32>
    ```
    After:
    ```mlir
    %t = fsdp.all_gather_start [@h.1.flat] {fsdp.bytes = 9216 : i64, fsdp.cost_us = 52.0 : f64}
    %w = fsdp.all_gather_wait %t {fsdp.exposed_us = 52.0 : f64} : tensor<2304xf32>
    ```
    `table=FILE` also writes the schedule of @microbatch as a table, a row per segment.
    `fsdp.predicted` on the module has the microseconds that a microbatch and an update are
    expected to take, for `--plan-ranks` and some other numbers of ranks.
    `fsdp.schedule_hash` on the module is a hash of the order of the starts on each channel,
    on which all ranks must agree.
  }];
  let dependentDialects = ["::fsdpc::rt::RTDialect"]; // library plans
  let options = [Option<"tableFile", "table", "std::string", /*default=*/"",
    "also writes the schedule of @microbatch to this file, as a table">];
}

#endif
