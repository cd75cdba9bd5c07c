// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shows what the stand-in of cudart knows to those of the other libraries and
// to tests. Every function locks; several threads may call at the same time.
#pragma once

#include "tests/runtime/cuda/vendor/record.h"

#include <cstddef>
#include <driver_types.h>

namespace fsdpc::vendor {

constexpr int devices = 2; ///< of the machine

/// The device that the calling thread has selected; 0 at first.
int currentDevice();
/// Returns true if [memory, memory + bytes) lies within one allocation that
/// `device` can access: its own, or pinned memory.
bool spans(const void *memory, size_t bytes, int device);
/// Allocates memory of the current device for another library, and frees it.
bool allocateOnDevice(void **memory, size_t bytes);
void releaseOnDevice(void *memory);
/// Returns the device of a stream that is alive, or -1.
int deviceOf(cudaStream_t stream);
/// Counts work that a library enqueues on a stream; in a capture it becomes
/// part of the graph, which then holds `owner` (null: nothing) until it is
/// destroyed.
void enqueue(cudaStream_t stream, const void *owner = nullptr);
/// Returns true if a graph that is alive, or a capture, holds `owner`.
bool isHeld(const void *owner);
/// Makes cudaLaunchKernel accept a kernel that is linked into the program.
void addKernel(const void *function);
/// Returns what is alive, by kind: "2 streams, 1 graph"; "" if nothing is.
std::string aliveInCudart();
/// The same for each other library.
std::string aliveInNccl();
std::string aliveInCublas();
std::string aliveInCudnn();

} // namespace fsdpc::vendor
