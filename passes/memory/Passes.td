// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes of the phase `memory`: after it, every tensor has an offset in one arena,
// and a verifier has checked that no two live tensors share a byte.
#ifndef FSDPC_PASSES_MEMORY
#define FSDPC_PASSES_MEMORY

include "mlir/Pass/PassBase.td"

def PlanMemory : Pass<"plan-memory", "::mlir::ModuleOp"> {
  let summary = "Gives every tensor an offset in one arena";
  let description = [{
    Values that must share memory form a slot: views, the members of a `fsdp.pack`, a product
    and its accumulator. A result that may take an operand's memory (`tied`) does so if the
    operand's slot ends there. A slot lives from its first definition to its last use. A
    collective's operands and results live from its start to its wait, a gathered buffer until
    its `fsdp.free`. The packer of compiler/schedule places the slots; @update uses the arena
    after @microbatch is done. `schedule-prefetch` has planned with the same slots.

    A gathered slot has room for the padding of --max-ranks shards of 128 bytes. `fsdp.arena`
    on the module holds the bytes, the lower bound (the most bytes alive at once), the shares
    of the peak, and in `reused` each range of bytes that one stream takes over from another:
    there collectives and compute must be ordered although no value passes between them.

    The pack of a layout that is `fsdp.unsummed` is the memory of its gradient, outside the
    arena: the offsets of its values count from the beginning of that.

    Each `fsdp.offload_start` gets the `places` of its values in the rank's file, and
    `fsdp.arena` the file's bytes as `offloaded`.

    Before:
    ```mlir
    %y = nn.launch @gelu_8x48(%x) {tied = array<i64: 0>} : (tensor<8x48xf32>) -> tensor<8x48xf32>
    ```
    After:
    ```mlir
    %y = nn.launch @gelu_8x48(%x) {fsdp.offsets = array<i64: 4096>, tied = array<i64: 0>} : …
    ```
  }];
  let dependentDialects = ["::fsdpc::rt::RTDialect"]; // library plans
  let statistics = [Statistic<"reuses", "reuses", "slots that another stream takes over">];
}

def VerifyMemory : Pass<"verify-memory", "::mlir::ModuleOp"> {
  let summary = "Checks the arena's plan";
  let description = [{
    Refuses a module that breaks one of these rules, and changes nothing.

    **Constraints**
    - A tensor that needs memory has an offset (`planned`), which is not negative and is
      aligned (`aligned`).
    - Two slots that are alive at one time share no byte (`overlap`).
    - A value that must lie inside another (a member of a pack, a product over its
      accumulator) lies there (`placed`).
    - No slot reaches past the bytes of `fsdp.arena` (`arena`), and one that is the gradient
      of a layout begins at 0 (`layout`).
    - Offloaded values lie within the file of `offloaded` bytes, and no two share a byte of it
      (`file`).
    - A rank's planned peak at `plan-ranks` is at most `memory-limit` (`memory-cap`).

    ```mlir
    %y = nn.launch @gelu_8x48(%x) {fsdp.offsets = array<i64: 0>} : …
    %z = nn.launch @gelu_8x48(%x) {fsdp.offsets = array<i64: 64>} : …  // error: overlaps %y, which is read below
    %s = nn.launch @add_8x48(%y, %z) {fsdp.offsets = array<i64: 4096>} : …
    ```
  }];
  let dependentDialects = ["::fsdpc::rt::RTDialect"]; // library plans
}

#endif
