// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Activations that lie in a file between forward and backward. The idea is that of
// ZeRO-Infinity (Rajbhandari et al., SC 2021) and of torch's save_on_cpu. The schedule
// treats an offload as a reduction (it reads what ops wrote, and its wait releases the
// memory) and a fetch as a gather (its wait makes memory readable, and a free ends that).
#ifndef FSDPC_FSDP_OFFLOAD
#define FSDPC_FSDP_OFFLOAD

include "compiler/dialects/fsdp/FSDPCollectives.td"

def FSDP_Offloaded : TypeDef<FSDP_Dialect, "Offloaded"> {
  let mnemonic = "offloaded";
  let summary = "activations that a file holds";
}

// ---- after offload-activations ----

def FSDP_OffloadOp : FSDP_Op<"offload",
    [MovedBySchedule, Transfers<"Offload">, OutsideArena,
     MemoryEffects<[MemWrite<FSDP_ActivationFile>]>]> {
  let summary = "Writes activations to the rank's file";
  let description = [{
    Copies the values to the file, each to a place of its own. On GPUs the file is pinned
    host memory. The result stands for what the file holds until the next microbatch
    writes it. `schedule-prefetch` splits the op into `fsdp.offload_start` and `fsdp.offload_wait`.

    **Constraints**
    - Every value is dense and lies in the arena (`plan-memory`).

    Example:
    ```mlir
    %held = fsdp.offload %x, %h : tensor<8x48xf32>, tensor<8x192xf32>
    %x2, %h2 = fsdp.fetch %held : tensor<8x48xf32>, tensor<8x192xf32>
    ```
  }];
  let arguments = (ins Variadic<NN_Tensor>:$values);
  let results = (outs FSDP_Offloaded:$held);
  let assemblyFormat = "$values attr-dict `:` type($values)";
}

def FSDP_FetchOp : FSDP_Op<"fetch",
    [MovedBySchedule, Transfers<"Fetch">,
     MemoryEffects<[MemRead<FSDP_ActivationFile>, MemAlloc]>]> {
  let summary = "Reads offloaded activations back";
  let description = [{
    Copies what the file holds into new memory, one result per value that was
    offloaded. A result lives until its `fsdp.free`. `schedule-prefetch` splits the op
    into `fsdp.fetch_start` and `fsdp.fetch_wait`.

    **Constraints**
    - `held` is the result of an `fsdp.offload` or `fsdp.offload_wait`.
    - The results have the types of the values that were offloaded.

    Example:
    ```mlir
    %held = fsdp.offload %x : tensor<8x48xf32>
    %x2 = fsdp.fetch %held : tensor<8x48xf32>
    fsdp.free %x2 : tensor<8x48xf32>
    ```
  }];
  let arguments = (ins FSDP_Offloaded:$held);
  let results = (outs Variadic<NN_Tensor>:$results);
  let assemblyFormat = "$held attr-dict `:` type($results)";
  let hasVerifier = 1; // the types are those of the offload
}

// ---- after schedule-prefetch ----

def FSDP_OffloadStartOp : FSDP_Op<"offload_start",
    [MovedBySchedule, Transfers<"Offload">, OutsideArena,
     MemoryEffects<[MemWrite<FSDP_ActivationFile>]>]> {
  let summary = "Starts to write activations to the rank's file";
  let description = [{
    Starts `fsdp.offload` on the stream of reductions; compute goes on meanwhile. The
    values stay live until the wait, and nothing may write them before it. `places` has
    the first byte of each value in the file; `plan-memory` sets it.

    **Constraints**
    - The token is waited for exactly once (`verify-schedule`).
    - `places` has one entry per value. No two values of a function share a byte of the
      file, whose size is `offloaded` of `fsdp.arena` (`verify-memory`).

    Example:
    ```mlir
    %token = fsdp.offload_start %x {places = array<i64: 0>} : tensor<8x48xf32>
    %held = fsdp.offload_wait %token
    ```
  }];
  let arguments = (ins Variadic<NN_Tensor>:$values, OptionalAttr<DenseI64ArrayAttr>:$places);
  let results = (outs FSDP_Token:$token);
  let assemblyFormat = "$values attr-dict `:` type($values)";
  let hasVerifier = 1; // one place per value
}

def FSDP_OffloadWaitOp : FSDP_Op<"offload_wait",
    [MovedBySchedule, OutsideArena, MemoryEffects<[MemWrite<FSDP_ActivationFile>]>]> {
  let summary = "Waits until activations are in the file";
  let description = [{
    From here on the file holds the values, and their memory may be reused.

    **Constraints**
    - `token` is the result of an `fsdp.offload_start`.

    Example:
    ```mlir
    %token = fsdp.offload_start %x : tensor<8x48xf32>
    %held = fsdp.offload_wait %token
    ```
  }];
  let arguments = (ins FSDP_Token:$token);
  let results = (outs FSDP_Offloaded:$held);
  let assemblyFormat = "$token attr-dict";
  let hasVerifier = 1; // the token is offload_start's
}

def FSDP_FetchStartOp : FSDP_Op<"fetch_start",
    [MovedBySchedule, Transfers<"Fetch">,
     MemoryEffects<[MemRead<FSDP_ActivationFile>, MemAlloc]>]> {
  let summary = "Starts to read offloaded activations back";
  let description = [{
    Starts `fsdp.fetch` on the stream of gathers; compute goes on meanwhile. The
    destinations are live from here.

    **Constraints**
    - `held` is the result of an `fsdp.offload_wait`.
    - The token is waited for exactly once (`verify-schedule`).

    Example:
    ```mlir
    %stored = fsdp.offload_start %x : tensor<8x48xf32>
    %held = fsdp.offload_wait %stored
    %token = fsdp.fetch_start %held
    %x2 = fsdp.fetch_wait %token : tensor<8x48xf32>
    ```
  }];
  let arguments = (ins FSDP_Offloaded:$held);
  let results = (outs FSDP_Token:$token);
  let assemblyFormat = "$held attr-dict";
  let hasVerifier = 1; // what is held was waited for
}

def FSDP_FetchWaitOp : FSDP_Op<"fetch_wait",
    [MovedBySchedule, MemoryEffects<[MemRead<FSDP_ActivationFile>, MemAlloc]>]> {
  let summary = "Waits for offloaded activations";
  let description = [{
    The activations can be read from here on. A result lives until its `fsdp.free`.

    **Constraints**
    - `token` is the result of an `fsdp.fetch_start`.
    - The results have the types of the values that were offloaded.

    Example:
    ```mlir
    %stored = fsdp.offload_start %x : tensor<8x48xf32>
    %held = fsdp.offload_wait %stored
    %token = fsdp.fetch_start %held
    %x2 = fsdp.fetch_wait %token : tensor<8x48xf32>
    fsdp.free %x2 : tensor<8x48xf32>
    ```
  }];
  let arguments = (ins FSDP_Token:$token);
  let results = (outs Variadic<NN_Tensor>:$results);
  let assemblyFormat = "$token attr-dict `:` type($results)";
  let hasVerifier = 1; // the token is fetch_start's, the types are the offload's
}

#endif
