// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The state that a CUDA device's parts share. The names of calls come from the
// manifest's sequences, which list what each entry function enqueues on each
// stream, in order.
#include "runtime/cuda/context.h"
#include "runtime/comm/failure.h"
#include "runtime/core/failure.h"
#include "runtime/support/concat.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace fsdpc::runtime {

namespace {

// Current while no call of the program is being enqueued.
const NamedCall unnamed{"the runtime", "", "fsdpc"};

bool usesNcclAlone() {
  const char *value = getenv("FSDPC_NCCL_ALONE");
  return value && !strcmp(value, "1");
}

} // namespace

CudaContext::CudaContext(CudaApi &api, Job &job, const Manifest &manifest)
    : api(api), job(job), manifest(manifest),
      alone(job.size == 1 && !usesNcclAlone()), current(&unnamed) {
  for (const CallSequence &sequence : manifest.sequences)
    for (const Call &call : sequence.calls) {
      const CommandInfo &command = manifest.commands[size_t(call.command)];
      // Kernels go by their own name; all of them would be "launch" otherwise.
      std::string op = command.op == "launch" ? command.name : command.op;
      entries[sequence.entry][size_t(sequence.stream)].push_back(
          {op, call.unit, call.unit.empty() ? op : call.unit + " " + op});
    }
}

CudaContext::~CudaContext() {
  for (CudaStream stream : streams)
    if (stream)
      api.destroyStream(stream);
}

Status CudaContext::makeStreams() {
  for (int i = 0; i < cudaStreams; ++i)
    // Communication and copies are urgent: they need few multiprocessors, but
    // others wait for them.
    if (CudaStatus status =
            api.createStream(streams[size_t(i)], i != FSDPC_STREAM_COMPUTE))
      return runError("cannot create a stream: " + api.errorText(status));
  return {};
}

// Every section enqueues the calls of its entry function from the start, so the
// positions of all streams return to zero. A replayed graph enqueues none.
void CudaContext::begin(const std::string &name, int64_t newStep) {
  step = newStep;
  auto found = entries.find(name);
  entry = found == entries.end() ? nullptr : &found->second;
  position = {};
  // The last commands that were enqueued are long done if graphs run.
  if (replayed)
    current = &unnamed;
}

void CudaContext::replay() {
  replayed = true;
  current = &unnamed;
}

// The sequences of the manifest hold the calls per stream in the order in which
// the entry function makes them, so counting is enough to know which one it is.
const NamedCall &CudaContext::next(int stream) {
  commands.called(stream);
  current = &unnamed;
  if (entry) {
    // Programs without sequences, such as those of tests, have no names.
    const std::vector<NamedCall> &calls = (*entry)[size_t(stream)];
    size_t &at = position[size_t(stream)];
    if (at < calls.size())
      current = &calls[at++];
  }
  return *current;
}

// By the time a call fails, `current` is the op that was being enqueued, or a
// later one if the error is asynchronous.
void CudaContext::check(CudaStatus status) const {
  if (status == cudaOk)
    return;
  std::string unit =
      current->unit.empty() ? "" : " of unit '" + current->unit + "'";
  std::string what = current->op + unit, advice;
  // The calls of a graph have no place on the host, and one of them may have
  // failed some time ago.
  if (replayed && current == &unnamed) {
    what = "graph replay (asynchronous)";
    advice = "; run with --no-graph and CUDA_LAUNCH_BLOCKING=1 to name the op";
  }
  fail(runError(concat("rank ", job.rank, ", step ", step, ": ", what,
                       " failed: ", api.errorText(status), advice)));
}

void CudaContext::checkGraph(CudaStatus status) const {
  if (status != cudaOk)
    fail(runError(concat(
        "rank ", job.rank, ", step ", step,
        ": making a graph failed: ", api.errorText(status),
        "; compile with a lower --memory-limit, or run with --no-graph")));
}

// Another rank may be waiting for this one in a collective; its line says more.
void CudaContext::endHung() const {
  awaitTurn(job, /*later=*/true);
  char seconds[32];
  snprintf(seconds, sizeof seconds, "%g", limitSeconds);
  fail(machineError(concat(
      "rank ", job.rank, ", step ", step, ": the GPU has made no progress for ",
      seconds, " s; a kernel hangs, or is slower than ",
      isFirstStep ? "--first-step-timeout" : "--watchdog", " allows")));
}

// Polls with growing pauses of up to 100 µs. CUDA's own wait spins by default,
// on a core that other ranks may need.
void OwnedEvent::await() {
  using namespace std::chrono_literals;
  auto began = std::chrono::steady_clock::now();
  bool done = !recorded;
  for (auto pause = 1us; !done; pause = std::min(2 * pause, 100us)) {
    context.check(context.api.queryEvent(event, done));
    if (done)
      return;
    std::chrono::duration<double> waited =
        std::chrono::steady_clock::now() - began;
    if (context.limitSeconds > 0 && waited.count() >= context.limitSeconds)
      context.endHung();
    std::this_thread::sleep_for(pause);
  }
}

} // namespace fsdpc::runtime
