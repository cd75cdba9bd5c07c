// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops that move activations between memory and the rank's file
// (--offload=activations).
#ifndef FSDPC_RT_OFFLOAD
#define FSDPC_RT_OFFLOAD

include "compiler/dialects/rt/RTBase.td"

let usesRank = 1 in {

def RT_OffloadOp : RT_Command<"offload", "reduce", [CopiesApart, MemoryEffects<[MemWrite<FSDP_ActivationFile>]>]> {
  let summary = "Writes an activation to the rank's file";
  let description = [{
    Calls `fsdpc_offload` on stream `reduce`. Writes `bytes` bytes of `memory` to the file
    of activations, from byte `place` on.

    **Constraints**
    - `bytes` does not exceed the pointer's bytes.

    Example:
    ```mlir
    %x = rt.pointer arena + 0 bytes 1536
    rt.offload %x bytes 1536 to 0
    ```
  }];
  let arguments = (ins RT_Read<"static_cast<int64_t>(getBytes())">:$memory, RT_Int64:$bytes, RT_Int64:$place);
  let assemblyFormat = "$memory `bytes` $bytes `to` $place attr-dict";
}

def RT_FetchOp : RT_Command<"fetch", "gather", [CopiesApart, MemoryEffects<[MemRead<FSDP_ActivationFile>]>]> {
  let summary = "Reads an activation from the rank's file";
  let description = [{
    Calls `fsdpc_fetch` on stream `gather`. Reads `bytes` bytes of the file of activations,
    from byte `place` on, into `memory`.

    **Constraints**
    - `bytes` does not exceed the pointer's bytes.

    Example:
    ```mlir
    %x = rt.pointer arena + 0 bytes 1536
    rt.fetch %x bytes 1536 from 0
    ```
  }];
  let arguments = (ins RT_Written<"static_cast<int64_t>(getBytes())">:$memory, RT_Int64:$bytes, RT_Int64:$place);
  let assemblyFormat = "$memory `bytes` $bytes `from` $place attr-dict";
}

}

#endif
