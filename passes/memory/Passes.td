// Stage `memory`: every tensor gets an offset in one arena.
#ifndef FSDPC_PASSES_MEMORY
#define FSDPC_PASSES_MEMORY

include "mlir/Pass/PassBase.td"

def PlanMemory : Pass<"plan-memory", "::mlir::ModuleOp"> {
  let summary = "Gives every tensor an offset in one arena";
  let description = [{
    Values that must share memory form a slot: views, the members of a
    `fsdp.pack`, a product and its accumulator; a result that may take an
    operand's memory (`tied`) does where the operand's slot ends. A slot lives
    from its first definition to its last use; what a collective reads or writes
    lives from its start to its wait, a gathered buffer to its `fsdp.free`. The
    packer of compiler/schedule places the slots; @update uses the arena after
    @microbatch is done.

    Gathered slots have room for the padding of --max-ranks shards of 128 bytes.
    `fsdp.arena` on the module has the bytes, the lower bound (most bytes
    alive at once), the shares of the peak, and in `reused` each range of bytes
    that one stream takes over from another: where collectives and compute must be
    ordered although no value goes from one to the other.

    Before:
    ```mlir
    %y = nn.launch @gelu_8x48(%x) {tied = array<i64: 0>} : (tensor<8x48xf32>) -> tensor<8x48xf32>
    ```
    After:
    ```mlir
    %y = nn.launch @gelu_8x48(%x) {fsdp.offsets = array<i64: 4096>, tied = array<i64: 0>} : …
    ```
  }];
  let statistics = [Statistic<"reuses", "reuses", "slots that another stream takes over">];
}

def VerifyMemory : Pass<"verify-memory", "::mlir::ModuleOp"> {
  let summary = "Checks the arena's plan";
  let description = [{
    Refuses a module in which

    - a tensor that needs memory has no offset, or one that is negative or not
      aligned (planned, aligned),
    - two slots alive at one time share a byte (overlap),
    - a value that must lie inside another (a member of a pack, a product over its
      accumulator) lies elsewhere (placed),
    - a slot reaches past `fsdp.arena`'s bytes (arena).
  }];
}

#endif
