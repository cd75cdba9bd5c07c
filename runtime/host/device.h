// The device of one rank: streams, events, kernel launches and library calls,
// behind one table for every backend. The host device implements streams with
// threads, so that overlap, ordering and races are tested without a GPU.
#pragma once

#include "runtime/core/manifest.h"
#include "runtime/include/fsdpc.h"

#include <array>
#include <functional>
#include <memory>
#include <string>

namespace fsdpc {

// When a command of a stream ran, in nanoseconds of the host's steady clock.
struct DeviceTimes {
  int64_t begin = 0, end = 0;
  int64_t cpu = 0;    // of them, those that the stream's own thread had a core
  int waitedFor = -1; // of an event wait: the other stream
};

class Device {
public:
  virtual ~Device() = default;
  // Memory of the device, 64-byte aligned (4096 for 1 MiB and more), not
  // touched; null when there is none.
  virtual void *allocate(size_t bytes) = 0;
  virtual void release(void *memory, size_t bytes) = 0;

  // All of these only enqueue.
  virtual void record(int stream, int event) = 0;
  virtual void wait(int stream, int event) = 0;
  virtual void run(int stream, std::function<void()> work) = 0;
  virtual void launch(fsdpc_kernel kernel, int64_t extent, int64_t grain,
                      void *const *buffers, int count) = 0;
  virtual void matmul(int plan, const void *a, const void *b, void *c) = 0;
  virtual void convolution(int plan, const void *x, const void *w, void *y) = 0;
  virtual void pooling(int plan, const void *source, void *destination,
                       void *workspace) = 0;
  // `operands` in the order of fsdpc_attention or fsdpc_attention_grad.
  virtual void attention(int plan, fsdpc_kernel rows,
                         const void *const *operands, int count) = 0;
  // Cuts [0, extent) among the compute threads and returns when all is done;
  // to be called from work that runs on the compute stream.
  virtual void
  parallelFor(int64_t extent, int64_t grain,
              const std::function<void(int64_t, int64_t)> &body) = 0;

  // Returns when everything enqueued on every stream has run.
  virtual void synchronize() = 0;
  // Nanoseconds that the compute stream has slept in event waits on other
  // streams since the last call: exposed communication.
  virtual int64_t takeExposedNanoseconds() = 0;

  // For --trace. Keeps when the last commands of each stream ran, `count[s]` of
  // stream s; before anything is enqueued.
  virtual void keepTimes(const std::array<size_t, FSDPC_STREAMS> &count) = 0;
  // Commands that a stream got so far, waits included.
  virtual uint64_t enqueued(int stream) const = 0;
  // When command `position` of a stream ran, which is done and still kept.
  virtual DeviceTimes times(int stream, uint64_t position) const = 0;
};

// Makes `threads` compute threads and prepares every library plan of the
// manifest (primitives, scratchpads in one allocation).
std::unique_ptr<Device> makeHostDevice(const Manifest &manifest, int threads,
                                       std::string &error);
// Bytes of scratchpads that such a device takes, all threads together; known
// without making it, for the memory table. (Stacks are the memory plan's.)
int64_t scratchpadBytes(const Manifest &manifest, int threads);

} // namespace fsdpc
