// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes of the phase `runtime`: after it, the program is calls of the runtime on
// three streams, and a verifier has proved that they do not race.
#ifndef FSDPC_PASSES_RUNTIME
#define FSDPC_PASSES_RUNTIME

include "mlir/Pass/PassBase.td"

def ConvertToRT : Pass<"convert-to-rt", "::mlir::ModuleOp"> {
  let summary = "Turns planned ops into calls of the runtime, with events between streams";
  let description = [{
    Every value has an offset in the arena or is a view of something that has one; it becomes
    an `rt.pointer`. The start of a collective waits for everything that the compute stream
    was given before it, because the planner reuses memory in program order; its wait makes
    the compute stream wait. The regions of optimizers become private functions marked
    `nn.optimizer`; equal ones share one.

    On GPUs, where each function is a graph of its own, `fsdp.gather_parameters` moves from
    the end of `@update` to the beginning of `@microbatch` and `@evaluate`: one `rt.all_gather`
    per unit, in the order of their first readers, before each of which compute waits. The
    runtime gathers in a step's first microbatch, and once in an evaluation.

    Before:
    ```mlir
    %t = fsdp.all_gather_start [@h.1.flat] {fsdp.offsets = array<i64: 4096>}
    %y = nn.launch @gelu_0(%x) {fsdp.offsets = array<i64: 0>} : (tensor<8x48xf32>) -> tensor<8x48xf32>
    %w = fsdp.all_gather_wait %t : tensor<2304xf32>
    ```
    After:
    ```mlir
    rt.event_record compute 0
    rt.event_wait gather 0
    %0 = rt.pointer gathered @h.1.flat + 0 bytes 9216 at 4096
    rt.all_gather [@h.1.flat] -> %0
    rt.event_record gather 1
    %1 = rt.pointer arena + 0 bytes 1536
    %2 = rt.pointer arena + 0 bytes 1536
    rt.launch @gelu_0(%1, %2)
    rt.event_wait compute 1
    ```
  }];
  let dependentDialects = ["::fsdpc::rt::RTDialect", "::mlir::func::FuncDialect"];
}

def ElideEvents : Pass<"elide-events", "::mlir::ModuleOp"> {
  let summary = "Removes events that order nothing, and numbers the rest densely";
  let description = [{
    A vector clock per stream says what the stream already follows (Lamport, Time, Clocks, and
    the Ordering of Events in a Distributed System, 1978). A wait that adds nothing to its
    stream's clock is removed, and so is a record that nothing waits for.

    Before:
    ```mlir
    rt.event_record compute 0
    rt.event_wait gather 0
    rt.all_gather [@a] -> %0
    rt.event_record compute 1
    rt.event_wait gather 1
    rt.all_gather [@b] -> %1
    ```
    After:
    ```mlir
    rt.event_record compute 0
    rt.event_wait gather 0
    rt.all_gather [@a] -> %0
    rt.all_gather [@b] -> %1
    ```
  }];
  let dependentDialects = ["::fsdpc::rt::RTDialect"];
  let statistics = [Statistic<"removed", "waits-removed", "event waits removed">];
}

def VerifyRT : Pass<"verify-rt", "::mlir::ModuleOp"> {
  let summary = "Proves that the program has no races and stays within its memory";
  let description = [{
    The effects of an op in ODS say which memory it touches: the bytes behind its
    pointers, the parameters, gradients and optimizer state of the layouts that it
    names, the model's buffers, the communication windows of its channel. Its
    `AccessRangesOpInterface` says how many bytes that is behind each pointer. The
    pass refuses a module in which

    - an op does not state its effects or ranges, or leaves out one of its pointers or
      the layouts that it names,
    - the module lacks a layout, buffer or kernel that an op names,
    - an op writes to memory that only the runtime writes (inputs, constants),
    - an event is waited for before it is recorded,
    - an op touches more bytes than its pointer says,
    - a pointer reaches past the arena,
    - two streams touch the same memory, one of them writing, without an event
      that orders them (happens-before by vector clocks). On GPUs, `rt.offload` and
      `rt.fetch` count as streams beside those whose events order them, since the
      runtime copies on streams of its own,
    - on a GPU, an op of the update reads what is offloaded of a layout after the same
      function has written it: its copies to the device wait for earlier functions only.

    Each function is a proof of its own, since the runtime lets the streams meet
    between two calls of entry functions.

    ```mlir
    rt.all_gather [@a] -> %0     // stream gather writes arena + 0
    rt.launch @gelu_0(%0, %1)    // error: without waiting for it

    rt.reduce_scatter [@a], %0   // stream reduce adds to the gradients of @a
    rt.accumulate @a, %1         // error: without waiting for it
    ```
  }];
  let dependentDialects = ["::fsdpc::rt::RTDialect"];
}

def PlanGrids : Pass<"plan-grids", "::mlir::ModuleOp"> {
  let summary = "Decides for a GPU how each kernel becomes a grid of threads";
  let description = [{
    For `--target=cuda` and its emulation. Writes `#nn.grid` on each kernel, beside the plan
    of its loops, and what divides the addresses of its buffers in every launch
    (`nn.alignments`, in bytes). Vectors are as wide as all accesses allow; the shape
    balances enough blocks to occupy the GPU against enough work for each thread. The order of
    a reduction (which threads share it, and the vectors that they add up) follows
    from the reduction alone. A block has 256 threads, or 1024 for rows of 16,384 elements
    or more, or 512 for the gradient of an embedding with wide rows; an emulated one has 1. The
    maximum of a row of more than 1024 elements and the sum of the exponentials below it, as in
    a softmax, take one loop.

    Before:
    ```mlir
    func.func private @neg(%x: tensor<2048xf32>) -> tensor<2048xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 1 stages[2048] extent 1 grain 1>} {
    rt.launch @neg(%0, %1)
    ```
    After:
    ```mlir
    func.func private @neg(%x: tensor<2048xf32>) -> tensor<2048xf32> attributes {nn.alignments = array<i64: 16, 16>, nn.grid = #nn.grid<blocks 2 threads 256 widths[4]>, nn.kernel, nn.plan = #nn.kernel_plan<map rows 1 stages[2048] extent 1 grain 1>} {
    ```
  }];
  let dependentDialects = ["::fsdpc::nn::NNDialect"];
  let options = [
    Option<"threads", "threads", "int64_t", "0",
           "threads per block, for tests; 0: those of the target">];
  let statistics = [Statistic<"planned", "planned", "kernels that got a grid">];
}

def VerifyGrids : Pass<"verify-grids", "::mlir::ModuleOp"> {
  let summary = "Checks the grids of a GPU's kernels";
  let description = [{
    Refuses a module that breaks one of these rules, and changes nothing. A grid that was
    edited in a dump is compiled as written, or refused here.

    **Constraints**
    - In a program for a GPU every kernel has a grid, which covers the kernel. It keeps no
      values (`nn.kept`).
    - `nn.alignments` has one number per buffer, which divides its address in every launch.
    - Vectors are aligned in all accesses and lie in one part of the lanes' loop.
    - Whatever decides the order of a reduction is what plan-grids chooses: the threads that
      share a row or columns, and the vectors that they add up.
    - A block has 1 thread, or a power of two from 32 to 1024; an emulated one has 1.
    - Sums in registers and in shared memory fit there.
  }];
}

#endif
