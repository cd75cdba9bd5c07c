// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The cases that every rank of an emulated communicator runs, as a thread of
// the test or as a process of its own (nccl_rank). A case checks each element
// it receives and keeps the first error as text, since a process has no test
// framework.
#pragma once

#include "runtime/emulation/emulation.h"
#include "runtime/numeric/float16.h"

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace fsdpc::runtime::emulation {

/// Sleeps until all ranks have joined, and returns the state then.
inline CudaStatus awaitCommunicator(CudaApi &cuda,
                                    CudaCommunicator communicator) {
  CudaStatus state;
  while ((state = cuda.communicatorState(communicator)) == cudaInProgress)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  return state;
}

/// One rank with its own stream and memory. Used by one thread. `cuda` must
/// outlive it.
class NcclRank {
public:
  NcclRank(CudaApi &cuda, const NcclId &id, int rank, int size)
      : cuda(cuda), rank(rank), size(size) {
    check(cuda.selectDevice(rank), "selectDevice");
    check(cuda.createStream(stream, false), "createStream");
    check(cuda.initCommunicator(communicator, rank, size, id, {}),
          "initCommunicator");
    if (error.empty())
      check(awaitCommunicator(cuda, communicator), "communicatorState");
  }
  ~NcclRank() {
    if (communicator)
      cuda.destroyCommunicator(communicator);
    for (void *memory : allocations)
      cuda.freeDevice(memory);
    cuda.destroyStream(stream);
  }
  NcclRank(const NcclRank &) = delete;
  NcclRank &operator=(const NcclRank &) = delete;

  /// Keeps the first error; later ones follow from it.
  void check(CudaStatus status, const char *what) {
    if (status != cudaOk && error.empty())
      error = std::string(what) + ": " + cuda.errorText(status);
  }
  void expect(bool held, const char *what) {
    if (!held && error.empty())
      error = what;
  }
  template <typename T> T *allocate(size_t count) {
    void *memory = nullptr;
    check(cuda.allocateDevice(memory, count * sizeof(T)), "allocateDevice");
    allocations.push_back(memory);
    return static_cast<T *>(memory);
  }
  void synchronize() {
    check(cuda.synchronizeStream(stream), "synchronizeStream");
  }

  void runAllCases();

  CudaApi &cuda;
  const int rank, size;
  CudaStream stream = nullptr;
  CudaCommunicator communicator = nullptr;
  std::string error; ///< the first error

private:
  void gather(size_t elements);
  template <typename T> void reduce(size_t elements, WireType type);
  void exchange(size_t elements);
  void sumOnAll(CudaCommunicator over, int first, int step, int count,
                size_t elements);
  template <typename T> void sumAndShare(size_t elements, WireType type);
  void inHalves(size_t elements);
  void replay();

  DeviceAccess access;
  std::vector<void *> allocations;
};

/// In place, as the runtime gathers.
inline void NcclRank::gather(size_t elements) {
  auto *whole = allocate<int32_t>(elements * size_t(size));
  auto *own = whole + elements * size_t(rank);
  for (size_t i = 0; i < elements; ++i)
    own[i] = int32_t(i) * 64 + rank;
  check(cuda.allGather(communicator, own, whole, elements * 4, stream),
        "allGather");
  synchronize();
  for (int peer = 0; peer < size; ++peer)
    for (size_t i = 0; i < elements; ++i)
      expect(whole[size_t(peer) * elements + i] == int32_t(i) * 64 + peer,
             "a gathered element is wrong");
}

/// In place, with small whole numbers, which are exact in any order of
/// summation.
template <typename T> void NcclRank::reduce(size_t elements, WireType type) {
  auto *whole = allocate<T>(elements * size_t(size));
  for (size_t i = 0; i < elements * size_t(size); ++i)
    whole[i] = narrow<T>(float(i % 7 + size_t(rank)));
  T *shard = whole + size_t(rank) * elements;
  check(cuda.reduceScatter(communicator, whole, shard, elements, type, stream),
        "reduceScatter");
  synchronize();
  int sumOfRanks = size * (size - 1) / 2;
  for (size_t i = 0; i < elements; ++i) {
    size_t at = size_t(rank) * elements + i;
    float sum = float(size) * float(at % 7) + float(sumOfRanks);
    expect(widen(shard[i]) == sum, "a reduced element is wrong");
  }
}

/// Every rank sends a different number to each rank, itself included.
inline void NcclRank::exchange(size_t elements) {
  auto *from = allocate<int32_t>(elements * size_t(size));
  auto *to = allocate<int32_t>(elements * size_t(size));
  check(cuda.groupBegin(), "groupBegin");
  for (int peer = 0; peer < size; ++peer) {
    size_t first = size_t(peer) * elements;
    for (size_t i = 0; i < elements; ++i)
      from[first + i] = int32_t(i) + rank * 1000 + peer;
    check(cuda.send(communicator, from + first, elements * 4, peer, stream),
          "send");
    check(cuda.receive(communicator, to + first, elements * 4, peer, stream),
          "receive");
  }
  check(cuda.groupEnd(), "groupEnd");
  synchronize();
  for (int peer = 0; peer < size; ++peer)
    for (size_t i = 0; i < elements; ++i)
      expect(to[size_t(peer) * elements + i] == int32_t(i) + peer * 1000 + rank,
             "an exchanged element is wrong");
}

/// Sums over the ranks first, first + step, …; an all-reduce cuts what it sums,
/// so few elements leave some ranks without a part.
inline void NcclRank::sumOnAll(CudaCommunicator over, int first, int step,
                               int count, size_t elements) {
  auto *values = allocate<float>(elements);
  for (size_t i = 0; i < elements; ++i)
    values[i] = float(i % 7 + size_t(rank));
  check(cuda.allReduce(over, values, elements, stream), "allReduce");
  synchronize();
  int sumOfRanks = count * first + step * count * (count - 1) / 2;
  for (size_t i = 0; i < elements; ++i)
    expect(values[i] == float(count) * float(i % 7) + float(sumOfRanks),
           "an element that is summed on all ranks is wrong");
}

/// A group of reductions, one to each rank, whose roots then share their sums.
template <typename T>
void NcclRank::sumAndShare(size_t elements, WireType type) {
  auto *values = allocate<T>(elements), *sum = allocate<T>(elements);
  auto *shared = allocate<T>(elements * size_t(size));
  for (size_t i = 0; i < elements; ++i)
    values[i] = narrow<T>(float(i % 7 + size_t(rank)));
  check(cuda.groupBegin(), "groupBegin");
  for (int root = 0; root < size; ++root)
    check(cuda.reduce(communicator, values, root == rank ? sum : nullptr,
                      elements, type, root, stream),
          "reduce");
  check(cuda.groupEnd(), "groupEnd");
  size_t bytes = elements * sizeof(T);
  check(cuda.copy(shared + size_t(rank) * elements, sum, bytes, stream),
        "copy");
  check(cuda.groupBegin(), "groupBegin");
  for (int root = 0; root < size; ++root)
    check(cuda.broadcast(communicator, shared + size_t(root) * elements, bytes,
                         root, stream),
          "broadcast");
  check(cuda.groupEnd(), "groupEnd");
  synchronize();
  int sumOfRanks = size * (size - 1) / 2;
  for (size_t i = 0; i < elements * size_t(size); ++i)
    expect(widen(shared[i]) ==
               float(size) * float(i % elements % 7) + float(sumOfRanks),
           "an element that a root has summed is wrong");
}

/// Even and odd ranks sum among themselves, beside the whole communicator.
inline void NcclRank::inHalves(size_t elements) {
  CudaCommunicator half = nullptr;
  check(cuda.splitCommunicator(half, communicator, rank % 2),
        "splitCommunicator");
  check(awaitCommunicator(cuda, half), "communicatorState");
  sumOnAll(half, rank % 2, 2, (size + 1 - rank % 2) / 2, elements);
  sumOnAll(communicator, 0, 1, size, elements);
  check(cuda.destroyCommunicator(half), "destroyCommunicator");
}

/// A captured collective runs at each launch of the graph.
inline void NcclRank::replay() {
  auto *whole = allocate<int32_t>(size_t(size));
  CudaGraph graph = nullptr;
  check(cuda.beginCapture(stream), "beginCapture");
  check(cuda.allGather(communicator, whole + rank, whole, 4, stream),
        "allGather");
  check(cuda.endCapture(stream, graph), "endCapture");
  for (int round = 0; round < 3; ++round) {
    whole[rank] = round * 100 + rank;
    check(cuda.launchGraph(graph, stream), "launchGraph");
    synchronize();
    for (int peer = 0; peer < size; ++peer)
      expect(whole[peer] == round * 100 + peer, "a replayed element is wrong");
  }
  check(cuda.destroyGraph(graph), "destroyGraph");
}

inline void NcclRank::runAllCases() {
  void *registered = allocate<char>(4096), *registration = nullptr;
  check(cuda.registerMemory(communicator, registered, 4096, registration),
        "registerMemory");
  // One element, an odd number of them, and several pieces of a mailbox.
  for (size_t elements : {1, 1001, 100000}) {
    gather(elements);
    reduce<float>(elements, WireType::f32);
    reduce<BFloat16>(elements, WireType::bf16);
    reduce<Float16>(elements, WireType::f16);
    exchange(elements);
    sumOnAll(communicator, 0, 1, size, elements);
    sumAndShare<float>(elements, WireType::f32);
    sumAndShare<BFloat16>(elements, WireType::bf16);
  }
  inHalves(1001);
  replay();
  check(cuda.deregisterMemory(communicator, registration), "deregisterMemory");
}

} // namespace fsdpc::runtime::emulation
