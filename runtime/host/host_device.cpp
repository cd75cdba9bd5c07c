// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory, streams, launches and library calls of the host device. Calls write
// into a stream's ring; `execute` runs them on the stream's thread, and kernels
// and products fan out to the compute threads from there.
#include "runtime/host/host_device.h"

#include "runtime/core/rank.h"
#include "runtime/support/concat.h"
#include "runtime/support/pages.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::runtime {

// Streams start last: their threads use everything before.
Result<std::unique_ptr<HostDevice>> HostDevice::make(const Manifest &manifest,
                                                     int threads) {
  // The constructor is private, hence no make_unique.
  std::unique_ptr<HostDevice> device(new HostDevice(threads));
  FSDPC_TRY(device->plans.make(manifest, threads));
  device->plans.prepare();
  // One part per compute thread. The plans share it, since library calls run
  // one at a time, on the compute stream.
  device->scratch.bytes = device->plans.scratchBytes;
  device->scratchTotal = device->plans.scratchBytes * size_t(threads);
  if (device->scratchTotal) {
    device->scratch.base =
        static_cast<char *>(device->allocate(device->scratchTotal));
    if (!device->scratch.base)
      return runError(concat("out of memory for ", device->scratchTotal,
                             " bytes of scratchpads"));
  }
  device->events.resize(size_t(std::max(manifest.events, 0)));
  for (std::unique_ptr<Stream> &stream : device->streams)
    stream = std::make_unique<Stream>(
        [owner = device.get()](Command &command) { owner->execute(command); });
  return device;
}

// Streams end first, after their work.
HostDevice::~HostDevice() {
  for (std::unique_ptr<Stream> &stream : streams)
    stream.reset();
  if (scratch.base)
    release(scratch.base, scratchTotal);
}

std::vector<std::string> HostDevice::notes() const {
  if (!plans.avoidances)
    return {};
  return {concat(
      "oneDNN: ", plans.avoidances,
      plans.avoidances == 1 ? " matrix product runs" : " matrix products run",
      " on another implementation than its first choice, which needs more "
      "scratch memory on this processor than was planned")};
}

// ---- memory ----

void *HostDevice::allocate(size_t bytes) { return mapPages(bytes); }

void HostDevice::release(void *memory, size_t bytes) {
  unmapPages(memory, bytes);
}

void HostDevice::zero(void *memory, size_t bytes) {
  std::memset(memory, 0, bytes);
}

void HostDevice::upload(void *to, const void *from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

void HostDevice::download(void *to, const void *from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

// ---- called by the training loop ----

// Runs nothing itself: the entry function enqueues. Results are sized here,
// before work on a stream may write them.
void HostDevice::enter(fsdpc_rank &rank, const Section &section,
                       void (*entry)(fsdpc_rank *)) {
  reported.metrics.resize(rank.manifest.outputs.size() *
                          size_t(rank.accumulate));
  reported.losses.resize(size_t(rank.accumulate));
  reported.valid.resize(size_t(rank.accumulate));
  // A sum over the microbatches of the step; the other results have a place per
  // microbatch.
  if (section.first)
    reported.zeroed = 0;
  meetsForGather |= section.first;
  entry(&rank);
}

// One step at a time (runsAhead is false), so `step` is the last.
void HostDevice::results(fsdpc_rank &, int64_t, StepResults &results) {
  synchronize();
  results = reported;
}

void HostDevice::synchronize() {
  // One pass is enough: streams may wait for each other, but none enqueues on
  // another.
  for (std::unique_ptr<Stream> &stream : streams)
    stream->waitFor(stream->enqueued());
}

// `k` is read now and kept by value: the loop has moved on when the work runs.
void HostDevice::reportLoss(fsdpc_rank &rank, const void *loss,
                            const void *valid) {
  size_t k = size_t(rank.microbatch);
  run(FSDPC_STREAM_COMPUTE, [=, this] {
    reported.losses[k] = *static_cast<const float *>(loss);
    // A loss without a divisor counts once per microbatch.
    reported.valid[k] = valid ? *static_cast<const float *>(valid) : 1;
  });
}

// A scalar goes to the results of the step, any other output to the memory that
// was planned for it.
void HostDevice::reportOutput(fsdpc_rank &rank, int32_t plan,
                              const void *value) {
  const Output &output = rank.manifest.outputs.at(size_t(plan));
  void *to = output.isScalar()
                 ? &reported.metrics[size_t(plan) * size_t(rank.accumulate) +
                                     size_t(rank.microbatch)]
                 : rank.outputs[size_t(plan)];
  size_t bytes = bytesOf(output);
  run(FSDPC_STREAM_COMPUTE, [=] { std::memcpy(to, value, bytes); });
}

void HostDevice::reportZeroed(fsdpc_rank &, const void *zeroed) {
  run(FSDPC_STREAM_COMPUTE, [=, this] {
    reported.zeroed += double(*static_cast<const float *>(zeroed));
  });
}

// All bits set are a NaN in f32 and bf16, so a read of freed memory shows in
// the loss.
void HostDevice::poison(void *memory, int64_t bytes) {
  run(FSDPC_STREAM_COMPUTE, [=] { std::memset(memory, 0xff, size_t(bytes)); });
}

// ---- streams ----

// An event is a position in its stream, so recording costs nothing.
void HostDevice::eventRecord(int32_t stream, int32_t event) {
  events.at(size_t(event)) = {streams[stream].get(),
                              streams[stream]->enqueued()};
}

void HostDevice::eventWait(int32_t stream, int32_t event) {
  const Event &recorded = events.at(size_t(event));
  // Work on one stream runs in order anyway, and an event that was never
  // recorded stands for no work.
  if (!recorded.stream || recorded.stream == streams[stream].get())
    return;
  // The position is taken now; recording the event again later does not change
  // it.
  streams[stream]->enqueue([&](Command &command) {
    command.kind = Command::Wait;
    command.other = recorded.stream;
    command.position = recorded.position;
  });
}

// The kernel lives in the program, its list of buffers only in the caller.
void HostDevice::launch(const fsdpc_kernel *kernel, void *const *buffers,
                        int32_t count) {
  void **kept = compute().keep(buffers, count);
  compute().enqueue([&](Command &command) {
    command.kind = Command::Launch;
    command.kernel = kernel->host;
    command.extent = kernel->extent;
    command.grain = kernel->grain;
    command.buffers = kept;
  });
}

// ---- library calls ----

// Host programs have no bias and no epilogue (Matmul::plan refuses them).
void HostDevice::matmul(int32_t plan, const void *a, const void *b,
                        const void *, const void *, const void *, void *c,
                        void *) {
  call(Command::Matmul, plan, {a, b, c});
}

void HostDevice::convolution(int32_t plan, const void *x, const void *w,
                             void *y) {
  call(Command::Convolution, plan, {x, w, y});
}

void HostDevice::pooling(int32_t plan, const void *source, void *destination,
                         void *workspace) {
  call(Command::Pooling, plan, {source, destination, workspace});
}

void HostDevice::attention(int32_t plan, const fsdpc_kernel *rows,
                           const void *query, const void *key,
                           const void *value, const void *mask, void *output,
                           void *lse) {
  call(Command::Attention, plan, {query, key, value, mask, output, lse}, rows);
}

void HostDevice::attentionGrad(int32_t plan, const fsdpc_kernel *rows,
                               const void *grad, const void *query,
                               const void *key, const void *value,
                               const void *output, const void *lse,
                               const void *mask, void *dquery, void *dkey,
                               void *dvalue) {
  call(Command::Attention, plan,
       {grad, query, key, value, output, lse, mask, dquery, dkey, dvalue},
       rows);
}

// Enqueues a library call; `rows` is the kernel that attention runs.
void HostDevice::call(Command::Kind kind, int32_t plan,
                      std::initializer_list<const void *> operands,
                      const fsdpc_kernel *rows) {
  const void **kept = compute().keep(operands.begin(), int(operands.size()));
  compute().enqueue([&](Command &command) {
    command.kind = kind;
    command.kernel = rows ? rows->host : nullptr;
    command.plan = plan;
    command.buffers = const_cast<void **>(kept);
  });
}

// Runs on the stream's thread. All kinds but Run and Wait belong to the compute
// stream, the only one that may use the pool.
void HostDevice::execute(Command &c) {
  size_t plan = size_t(c.plan);
  switch (c.kind) {
  case Command::Run:
    return c.work(c.captures);
  case Command::Launch:
    return parallelFor(c.extent, c.grain, [&](int64_t begin, int64_t end) {
      c.kernel(begin, end, c.buffers);
    });
  case Command::Matmul:
    return plans.matmuls[plan].run(pool, scratch, c.buffers[0], c.buffers[1],
                                   c.buffers[2]);
  case Command::Convolution:
    return plans.convolutions[plan].run(pool, scratch, c.buffers[0],
                                        c.buffers[1], c.buffers[2]);
  case Command::Pooling:
    return plans.poolings[plan].run(pool, c.buffers[0], c.buffers[1],
                                    static_cast<int32_t *>(c.buffers[2]));
  case Command::Attention:
    return plans.attentions[plan].run(pool, scratch, c.kernel, c.buffers);
  case Command::Wait:
    break; // the stream runs waits itself
  }
}

// ---- times ----

// The compute stream waits for nothing but communication.
int64_t HostDevice::takeExposedNanoseconds() {
  return compute().takeWaitedNanoseconds();
}

void HostDevice::keepTimes(const std::array<size_t, FSDPC_STREAMS> &count) {
  for (int stream = 0; stream < FSDPC_STREAMS; ++stream)
    streams[stream]->keepTimes(count[size_t(stream)]);
}

uint64_t HostDevice::enqueued(int stream) const {
  return streams[stream]->enqueued();
}

DeviceTimes HostDevice::times(int stream, uint64_t position) const {
  const CommandTimes &kept = streams[stream]->timesOf(position);
  DeviceTimes times{kept.begin, kept.end, kept.cpu, -1};
  for (int other = 0; other < FSDPC_STREAMS; ++other)
    if (streams[other].get() == kept.other)
      times.waitedFor = other;
  return times;
}

// ---- the backend ----

const char *backendName() { return "host"; }
bool isEmulation() { return false; }

// The host needs nothing beyond what checkMachine tests.
Status checkBackend(const Manifest &) { return {}; }

Result<std::unique_ptr<Device>> makeDevice(const Manifest &manifest,
                                           const fsdpc_program &, Job &,
                                           const DeviceOptions &options) {
  auto device = HostDevice::make(manifest, options.threads);
  FSDPC_TRY(device);
  return std::move(*device);
}

} // namespace fsdpc::runtime
