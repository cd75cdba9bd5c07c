// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The low half of a mark is twice the collective's number, plus 1 if it has
// begun. The high half counts marks, so that the same collective beginning
// again counts as progress.
//
// A mark that has begun and does not move for the time limit means that this
// rank waits for another. All ranks will notice at about the same time;
// awaitTurn lets one of them print.
#include "runtime/cuda/watchdog.h"
#include "runtime/comm/thread.h"
#include "runtime/core/failure.h"
#include "runtime/cuda/kernels/own.h"
#include "runtime/support/concat.h"
#include "runtime/support/threads.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::runtime {

namespace {

constexpr size_t stepWord = 2, wordCount = 3;
using Clock = std::chrono::steady_clock;

// Reads a word that the device may be writing.
uint64_t load(const uint64_t &word) {
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
}
bool hasBegun(uint64_t word) { return word & 1; }
uint32_t nameIn(uint64_t word) { return uint32_t(word) >> 1; }
uint32_t value(uint32_t name, bool begins) {
  return name << 1 | uint32_t(begins);
}

std::string secondsText(double seconds) {
  char text[32];
  snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

} // namespace

Result<std::unique_ptr<Watchdog>>
Watchdog::make(CudaApi &api, Job &job, Limits limits, CudaStream compute) {
  void *memory = nullptr;
  if (CudaStatus status =
          api.allocatePinned(memory, wordCount * sizeof(uint64_t)))
    return runError("cannot allocate pinned memory: " + api.errorText(status));
  memset(memory, 0, wordCount * sizeof(uint64_t));
  return std::unique_ptr<Watchdog>(
      new Watchdog(api, job, limits, compute, static_cast<uint64_t *>(memory)));
}

Watchdog::Watchdog(CudaApi &api, Job &job, Limits limits, CudaStream compute,
                   uint64_t *words)
    : api(api), job(job), limits(limits), compute(compute), words(words) {
  // Takes number 0, which a word of zeroes names.
  nameOf("the start", "");
  for (Progress &progress : seen)
    progress.since = Clock::now();
  thread = startThread("the watch of collectives", [this] { loop(); });
}

Watchdog::~Watchdog() {
  stop();
  // The thread has ended, so from here on nothing else uses the communicators.
  // Another one limits the time, since NCCL waits for the other ranks without a
  // limit.
  uint32_t name = nameOf("the end of NCCL", "");
  thread = startThread("the watch of the end of NCCL",
                       [this, name] { limitEnd(name); });
  for (Channel channel : {gatherChannel, reduceChannel})
    while (CudaCommunicator last = takeLast(channel))
      check(name, api.destroyCommunicator(last));
  stop();
  api.freePinned(words);
}

void Watchdog::stop() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  changed.notify_one();
  thread.join();
  stopping = false;
}

// Communicators of groups come behind the one that they were split from, and
// are destroyed before it.
CudaCommunicator Watchdog::takeLast(Channel channel) {
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<CudaCommunicator> &of = communicators[channel];
  if (of.empty())
    return nullptr;
  CudaCommunicator last = of.back();
  of.pop_back();
  return last;
}

void Watchdog::limitEnd(uint32_t name) {
  double seconds = inFirstStep() ? limits.first : limits.later;
  std::unique_lock<std::mutex> lock(mutex);
  if (seconds <= 0 ||
      changed.wait_for(lock, std::chrono::duration<double>(seconds),
                       [this] { return stopping; }))
    return;
  lock.unlock();
  endLate(name);
}

void Watchdog::endLate(uint32_t name) {
  bool first = inFirstStep();
  end(machineError(describe(name) + " has not ended within " +
                   secondsText(first ? limits.first : limits.later) +
                   "; another rank has stopped or is slower than " +
                   (first ? "--first-step-timeout" : "--watchdog") + " allows"),
      /*later=*/false);
}

void Watchdog::watch(Channel channel, CudaCommunicator communicator) {
  std::lock_guard<std::mutex> lock(mutex);
  communicators[channel].push_back(communicator);
}

void Watchdog::beginStep(int64_t step) {
  if (firstStep < 0)
    firstStep = step;
  // Without a count: the step is only read for messages and is not watched.
  Mark mark{&words[stepWord], uint32_t(step), false};
  // A launch also returns what earlier work has met, such as a graph's.
  static constexpr char op[] =
      "earlier work (asynchronous; run with --no-graph and "
      "CUDA_LAUNCH_BLOCKING=1 to name the op)";
  checkLaunch(nameOf(op, ""), api.launchOwn(OwnKernels::numberOf<Mark>(), 1,
                                            &mark, sizeof mark, compute));
}

bool Watchdog::inFirstStep() const {
  return firstStep < 0 || int64_t(uint32_t(load(words[stepWord]))) <= firstStep;
}

// Strings are compared by address. Equal names at two addresses get two
// numbers, which describe() prints alike.
uint32_t Watchdog::nameOf(const char *op, const char *unit) {
  std::lock_guard<std::mutex> lock(mutex);
  auto [at, fresh] = numbers.emplace(std::pair(op, unit), names.size());
  if (fresh)
    names.emplace_back(op, unit);
  return at->second;
}

void Watchdog::markHost(Channel channel, uint32_t name, bool begins) {
  uint64_t count = (hosts[channel] >> 32) + 1; // only one thread writes it
  hosts[channel] = count << 32 | value(name, begins);
}

void Watchdog::markStream(Channel channel, uint32_t name, bool begins,
                          CudaStream stream) {
  marked[channel] += begins;
  Mark mark{&words[channel], value(name, begins), true};
  checkLaunch(name, api.launchOwn(OwnKernels::numberOf<Mark>(), 1, &mark,
                                  sizeof mark, stream));
}

uint32_t Watchdog::marks(Channel channel) const {
  return uint32_t(load(words[channel]) >> 32);
}

std::string Watchdog::describe(uint32_t name) {
  std::lock_guard<std::mutex> lock(mutex);
  auto [op, unit] = names[name];
  return concat("rank ", job.rank, ", step ", uint32_t(load(words[stepWord])),
                *unit ? std::string(", unit '") + unit + "'" : "", ": ", op);
}

void Watchdog::check(uint32_t name, CudaStatus status) {
  if (status == cudaOk)
    return;
  // The cause may be that another rank has ended, so let that one print first.
  end(machineError(describe(name) + " failed: " + api.errorText(status)),
      /*later=*/true);
}

// A launch also returns what this rank's earlier work has met.
void Watchdog::checkLaunch(uint32_t name, CudaStatus status) {
  if (status != cudaOk)
    end(runError(describe(name) + " failed: " + api.errorText(status)),
        /*later=*/true);
}

// Never returns. Other threads of the process may still be inside NCCL.
void Watchdog::end(const Error &error, bool later) {
  awaitTurn(job, later);
  std::vector<CudaCommunicator> all;
  {
    std::lock_guard<std::mutex> lock(mutex);
    for (const std::vector<CudaCommunicator> &of : communicators)
      all.insert(all.end(), of.begin(), of.end());
  }
  // NCCL's kernels can keep the process from exiting, so the communicators are
  // aborted. Not at once, because streams continue with whatever an aborted
  // collective leaves, on this rank and others. And on a thread that nobody
  // waits for, because a call that hangs may hold the communicator.
  std::thread aborting;
  int refused = tryThread(aborting, [all, &api = api] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    for (CudaCommunicator communicator : all)
      api.abortCommunicator(communicator);
  });
  if (refused == 0)
    aborting.detach();
  fail(error);
}

CudaStatus Watchdog::stateOf(Channel channel) {
  std::vector<CudaCommunicator> all;
  {
    std::lock_guard<std::mutex> lock(mutex);
    all = communicators[channel];
  }
  for (CudaCommunicator communicator : all)
    if (CudaStatus state = api.communicatorState(communicator);
        state != cudaOk && state != cudaInProgress)
      return state;
  return cudaOk;
}

// One look at both channels: asynchronous errors first, then the time since a
// mark last moved.
void Watchdog::look() {
  for (Channel channel : {gatherChannel, reduceChannel}) {
    uint64_t stream = load(words[channel]), host = hosts[channel];
    if (CudaStatus state = stateOf(channel)) {
      std::string error = api.errorText(state);
      uint32_t name = nameIn(hasBegun(stream) ? stream : host);
      end(machineError(describe(name) + " failed: " + error), /*later=*/true);
    }
    Progress &last = seen[channel];
    if (stream != last.stream || host != last.host)
      last = {stream, host, Clock::now()};
    // A rank may hang on the host, before its collective reaches the stream, or
    // on the stream, long after the call has returned.
    bool begun = hasBegun(stream) || hasBegun(host);
    std::chrono::duration<double> waited = Clock::now() - last.since;
    double seconds = inFirstStep() ? limits.first : limits.later;
    if (seconds > 0 && begun && waited.count() >= seconds)
      endLate(nameIn(hasBegun(stream) ? stream : host));
  }
}

void Watchdog::loop() {
  // Eight looks per limit keep the delay small against it; once a second still
  // finds asynchronous errors soon.
  double pause = 1.0;
  for (double limit : {limits.first, limits.later})
    if (limit > 0)
      pause = std::min(pause, limit / 8);
  std::unique_lock<std::mutex> lock(mutex);
  while (!stopping) {
    // look() takes the lock itself, and may call NCCL or end the job.
    lock.unlock();
    look();
    lock.lock();
    changed.wait_for(lock, std::chrono::duration<double>(pause),
                     [this] { return stopping; });
  }
}

} // namespace fsdpc::runtime
