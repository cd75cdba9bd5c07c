// The host device: three streams on threads, a pool of compute threads under
// the compute stream, and the manifest's library plans.
#include "runtime/comm/failure.h"
#include "runtime/host/attention.h"
#include "runtime/host/convolution.h"
#include "runtime/host/device.h"
#include "runtime/host/matmul.h"
#include "runtime/host/pooling.h"
#include "runtime/host/stream.h"
#include "runtime/host/thread_pool.h"

#include <algorithm>
#include <omp.h>
#include <sys/mman.h>

namespace fsdpc {

namespace {

constexpr size_t hugePage = size_t(2) << 20;

// Primitives choose their blocking by the creating thread's team size.
class SingleThreadedOpenMp {
public:
  SingleThreadedOpenMp() : before(omp_get_max_threads()) {
    omp_set_num_threads(1);
  }
  ~SingleThreadedOpenMp() { omp_set_num_threads(before); }

private:
  int before;
};

// Every library plan of a manifest.
struct Plans {
  std::vector<Matmul> matmuls;
  std::vector<Convolution> convolutions;
  std::vector<Pooling> poolings;
  std::vector<Attention> attentions;
  size_t scratchBytes = 0; // a thread

  bool make(const Manifest &manifest, int threads, std::string &error) {
    GemmCache cache(threads);
    matmuls.resize(manifest.matmuls.size());
    convolutions.resize(manifest.convolutions.size());
    poolings.resize(manifest.poolings.size());
    attentions.resize(manifest.attentions.size());
    for (size_t i = 0; i < matmuls.size(); ++i) {
      if (!matmuls[i].plan(manifest.matmuls[i], cache, error))
        return false;
      scratchBytes = std::max(scratchBytes, matmuls[i].scratchBytes());
    }
    for (size_t i = 0; i < convolutions.size(); ++i) {
      if (!convolutions[i].plan(manifest.convolutions[i], cache, error))
        return false;
      scratchBytes = std::max(scratchBytes, convolutions[i].scratchBytes());
    }
    for (size_t i = 0; i < poolings.size(); ++i)
      if (!poolings[i].plan(manifest.poolings[i], error))
        return false;
    for (size_t i = 0; i < attentions.size(); ++i) {
      if (!attentions[i].plan(manifest.attentions[i], cache, error))
        return false;
      scratchBytes = std::max(scratchBytes, attentions[i].scratchBytes());
    }
    // A page of its own for each thread: none shares a line with another.
    scratchBytes = (scratchBytes + 4095) / 4096 * 4096;
    return true;
  }

  void prepare() {
    for (Matmul &matmul : matmuls)
      matmul.prepare();
    for (Convolution &convolution : convolutions)
      convolution.prepare();
    for (Attention &attention : attentions)
      attention.prepare();
  }
};

class HostDevice : public Device {
public:
  HostDevice(const Manifest &manifest, int threads, std::string &error)
      : pool(threads) {
    SingleThreadedOpenMp single;
    ready = plans.make(manifest, threads, error);
    if (!ready)
      return;
    plans.prepare();
    scratchTotal = plans.scratchBytes * threads;
    scratch.bytes = plans.scratchBytes;
    if (scratchTotal) {
      scratch.base = static_cast<char *>(allocate(scratchTotal));
      if (!scratch.base) {
        error = "no memory for " + std::to_string(scratchTotal) +
                " bytes of scratchpads";
        ready = false;
      }
    }
    events.resize(std::max(manifest.events, 0));
    for (std::unique_ptr<Stream> &stream : streams)
      stream = std::make_unique<Stream>([this](Command &c) { execute(c); });
  }

  ~HostDevice() override {
    for (std::unique_ptr<Stream> &stream : streams)
      stream.reset();
    if (scratch.base)
      release(scratch.base, scratchTotal);
  }

  // Large memory begins at a huge page, and asks for them: rows of a weight are
  // far apart, and each would cost a look-up of its own page.
  void *allocate(size_t bytes) override {
    size_t size = (std::max<size_t>(bytes, 1) + 4095) / 4096 * 4096;
    size_t spare = size >= 2 * hugePage ? hugePage : 0;
    void *memory = mmap(nullptr, size + spare, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      return nullptr;
    if (!spare)
      return memory;
    char *mapped = static_cast<char *>(memory);
    size_t head = -reinterpret_cast<uintptr_t>(mapped) % hugePage;
    if (head)
      munmap(mapped, head);
    munmap(mapped + head + size, spare - head);
    madvise(mapped + head, size,
            MADV_HUGEPAGE); // or small ones, where it may not
    return mapped + head;
  }

  void release(void *memory, size_t bytes) override {
    munmap(memory, std::max<size_t>(bytes, 1));
  }

  void record(int stream, int event) override {
    events.at(event) = {streams[stream].get(), streams[stream]->enqueued()};
  }

  void wait(int stream, int event) override {
    const Event &recorded = events.at(event);
    // Work on one stream runs in order anyway; the unrecorded precede nothing.
    if (!recorded.stream || recorded.stream == streams[stream].get())
      return;
    streams[stream]->enqueue([&](Command &command) {
      command.kind = Command::Wait;
      command.other = recorded.stream;
      command.position = recorded.position;
    });
  }

  void run(int stream, std::function<void()> work) override {
    streams[stream]->enqueue([&](Command &command) {
      command.kind = Command::Run;
      command.work = std::move(work);
    });
  }

  void launch(fsdpc_kernel kernel, int64_t extent, int64_t grain,
              void *const *buffers, int count) override {
    compute().enqueue([&](Command &command) {
      command.kind = Command::Launch;
      command.kernel = kernel;
      command.extent = extent;
      command.grain = grain;
      command.buffers.assign(buffers, buffers + count);
    });
  }

  void matmul(int plan, const void *a, const void *b, void *c) override {
    call(Command::Matmul, plan, a, b, c);
  }
  void convolution(int plan, const void *x, const void *w, void *y) override {
    call(Command::Convolution, plan, x, w, y);
  }
  void pooling(int plan, const void *source, void *destination,
               void *workspace) override {
    call(Command::Pooling, plan, source, destination, workspace);
  }

  void attention(int plan, fsdpc_kernel rows, const void *const *operands,
                 int count) override {
    compute().enqueue([&](Command &command) {
      command.kind = Command::Attention;
      command.kernel = rows;
      command.plan = plan;
      command.buffers.clear();
      for (int i = 0; i < count; ++i)
        command.buffers.push_back(const_cast<void *>(operands[i]));
    });
  }

  void parallelFor(int64_t extent, int64_t grain,
                   const std::function<void(int64_t, int64_t)> &body) override {
    cut(extent, grain, body);
  }

  void synchronize() override {
    // A stream may have waited for another, none enqueues on another.
    for (std::unique_ptr<Stream> &stream : streams)
      stream->waitFor(stream->enqueued());
  }

  int64_t takeExposedNanoseconds() override {
    return compute().takeWaitedNanoseconds();
  }

  void keepTimes(const std::array<size_t, FSDPC_STREAMS> &count) override {
    for (int stream = 0; stream < FSDPC_STREAMS; ++stream)
      streams[stream]->keepTimes(count[size_t(stream)]);
  }

  uint64_t enqueued(int stream) const override {
    return streams[stream]->enqueued();
  }

  DeviceTimes times(int stream, uint64_t position) const override {
    const CommandTimes &kept = streams[stream]->timesOf(position);
    DeviceTimes times{kept.begin, kept.end, kept.cpu, -1};
    for (int other = 0; other < FSDPC_STREAMS; ++other)
      if (streams[other].get() == kept.other)
        times.waitedFor = other;
    return times;
  }

  bool ready = false;

private:
  struct Event {
    Stream *stream = nullptr;
    uint64_t position = 0;
  };

  Stream &compute() { return *streams[FSDPC_STREAM_COMPUTE]; }

  void call(Command::Kind kind, int plan, const void *x, const void *y,
            const void *z) {
    compute().enqueue([&](Command &command) {
      void *operands[] = {const_cast<void *>(x), const_cast<void *>(y),
                          const_cast<void *>(z)};
      command.kind = kind;
      command.plan = plan;
      command.buffers.assign(operands, operands + 3);
    });
  }

  // Several pieces a thread, so that a thread that lost its core for a while
  // does not hold up the others.
  template <typename Body>
  void cut(int64_t extent, int64_t grain, Body &&body) {
    if (extent <= 0)
      return;
    int64_t wanted = pool.threads() == 1 ? 1 : 4 * pool.threads();
    int64_t pieces =
        std::clamp<int64_t>(extent / std::max<int64_t>(grain, 1), 1, wanted);
    pool.run(pieces, [&](int64_t piece, int) {
      body(extent * piece / pieces, extent * (piece + 1) / pieces);
    });
  }

  void execute(Command &c) {
    switch (c.kind) {
    case Command::Run:
      return c.work();
    case Command::Launch:
      return cut(c.extent, c.grain, [&](int64_t begin, int64_t end) {
        c.kernel(begin, end, c.buffers.data());
      });
    case Command::Matmul:
      return plans.matmuls[c.plan].run(pool, scratch, c.buffers[0],
                                       c.buffers[1], c.buffers[2]);
    case Command::Convolution:
      return plans.convolutions[c.plan].run(pool, scratch, c.buffers[0],
                                            c.buffers[1], c.buffers[2]);
    case Command::Pooling:
      return plans.poolings[c.plan].run(pool, c.buffers[0], c.buffers[1],
                                        static_cast<int32_t *>(c.buffers[2]));
    case Command::Attention:
      return plans.attentions[c.plan].run(pool, scratch, c.kernel,
                                          c.buffers.data());
    case Command::Wait:
      break; // the stream's own
    }
  }

  ThreadPool pool;
  Plans plans;
  Scratch scratch;
  size_t scratchTotal = 0;
  std::vector<Event> events;
  std::unique_ptr<Stream> streams[FSDPC_STREAMS];
};

} // namespace

std::unique_ptr<Device> makeHostDevice(const Manifest &manifest, int threads,
                                       std::string &error) {
  auto device = std::make_unique<HostDevice>(manifest, threads, error);
  if (!device->ready)
    return nullptr;
  return device;
}

int64_t scratchpadBytes(const Manifest &manifest, int threads) {
  SingleThreadedOpenMp single;
  Plans plans;
  std::string error;
  // A plan that cannot be made is reported by makeHostDevice.
  if (!plans.make(manifest, 1, error))
    return 0;
  return int64_t(plans.scratchBytes) * threads;
}

} // namespace fsdpc
