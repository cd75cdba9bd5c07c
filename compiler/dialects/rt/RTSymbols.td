// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops for what a program declares (inputs, constants), for addresses in its
// memory, and for events, by which its streams wait for each other. Only the events are calls that
// enqueue something.
#ifndef FSDPC_RT_SYMBOLS
#define FSDPC_RT_SYMBOLS

include "compiler/dialects/rt/RTBase.td"

def RT_InputOp : RT_Op<"input", [Symbol]> {
  let summary = "An input of the program";
  let description = [{
    Declares an input of the model: its name, and the type of one microbatch of it.
    Data files and `--data` bind to this name. `bound` is the number of rows of the
    table that the input indexes; the runtime refuses an integer outside
    [0, `bound`), except the value `ignored` (a target that does not count).
    In a program of several buckets, `bucket_types` has the type in each of them,
    and `type` is the one with the most elements.

    **Constraints**
    - The symbol is unique in its module.
    - `type` is the tensor type of the argument that the input was
      (`convert-to-rt` writes it).
    - `bucket_types`, where it is given, has a type per name in `fsdp.buckets`
      (`linkBuckets` writes both).

    Example:
    ```mlir
    rt.input @tokens : tensor<4x256xi64> {bound = 50257 : i64}
    rt.input @targets : tensor<4x256xi64> {bound = 50257 : i64, ignored = -100 : i64}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$type,
                       OptionalAttr<I64Attr>:$bound, OptionalAttr<I64Attr>:$ignored,
                       OptionalAttr<TypeArrayAttr>:$bucket_types);
  let assemblyFormat = "$sym_name `:` $type attr-dict";
}

def RT_ConstantOp : RT_Op<"constant", [Symbol]> {
  let summary = "A constant tensor of the program";
  let description = [{
    Declares bytes that are compiled into the program. All constants form one
    read-only block, in which each starts at a multiple of 64 bytes; equal constants
    share one symbol.

    **Constraints**
    - The symbol is unique in its module.

    Example:
    ```mlir
    rt.constant @constant dense<[1.0, 0.5]> : tensor<2xf32>
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, ElementsAttr:$value);
  let assemblyFormat = "$sym_name attr-dict $value";
}

def RT_PointerOp : RT_Op<"pointer", [Pure]> {
  let summary = "The address of bytes in one of the rank's memory spaces";
  let description = [{
    Calls `fsdpc_pointer`. The result is the address of byte `offset` of a space, and
    `bytes` says how many bytes from there its users may touch: `verify-rt` reads
    both, the runtime only the offset.

    | space | `symbol` | memory |
    |---|---|---|
    | `arena` | none | the planned arena |
    | `input` | `rt.input` | one microbatch of an input |
    | `constant` | `rt.constant` | the program's constants |
    | `buffer` | `fsdp.buffer` | running statistics of the model |
    | `whole` | `fsdp.layout` | a layout's parameters in the compute type, where every rank keeps all of them |
    | `random` | none | four i32: seed low, seed high, microbatch, step; then an f32: the scale of the loss |
    | `gradient` | `fsdp.layout` | the gradient of a layout that is unsummed, in the compute type |
    | `gathered` | `fsdp.layout` | a layout's parameters in the compute type, from their gather to their free |

    Gathered parameters begin at byte `at` of the arena. Where the ranks of a run hold
    their shards side by side, the runtime returns that memory instead, and the bytes of
    the arena stay unused. So only gathers write to this space, and whoever reads from it
    reads the layout's parameters as well.

    **Constraints**
    - The space's symbol is as the table says.
    - `at` is given for the space `gathered`, and for no other.
    - A pointer into the arena or a gradient stays within its bytes (`verify-rt`).

    Example:
    ```mlir
    %activation = rt.pointer arena + 4096 bytes 81920
    %parameters = rt.pointer whole @h.0.flat + 0 bytes 3548928
    %weight = rt.pointer gathered @h.1.flat + 9216 bytes 36864 at 4096
    ```
  }];
  let arguments = (ins RT_Space:$space, OptionalAttr<FlatSymbolRefAttr>:$symbol,
                       I64Attr:$offset, I64Attr:$bytes, OptionalAttr<I64Attr>:$at);
  let results = (outs RT_Pointer:$result);
  let assemblyFormat = "$space ($symbol^)? `+` $offset `bytes` $bytes (`at` $at^)? attr-dict";
  let hasVerifier = 1;
}

def RT_EventRecordOp : RT_Event<"event_record",
    [MemoryEffects<[MemWrite<RT_EventState>]>]> {
  let summary = "Records an event on a stream";
  let description = [{
    Calls `fsdpc_event_record`. Makes `event` stand for all work that `stream` was
    given so far. Recording an event again replaces what it stood for.

    **Constraints**
    - Events are numbered from 0, without gaps after `elide-events`.

    Example:
    ```mlir
    rt.event_record compute 0
    rt.event_wait gather 0
    ```
  }];
}

def RT_EventWaitOp : RT_Event<"event_wait",
    [MemoryEffects<[MemRead<RT_EventState>, MemWrite<RT_EventState>]>]> {
  let summary = "Makes a stream wait for an event";
  let description = [{
    Calls `fsdpc_event_wait`. Whatever `stream` is given from here on starts after
    what the last record of `event` stands for. The calling thread does not wait.

    **Constraints**
    - The event is recorded earlier in the same function (`verify-rt`).

    Example:
    ```mlir
    rt.event_record gather 1
    rt.event_wait compute 1
    ```
  }];
}

#endif
