// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Capture and replay. Before each piece of work a lane waits until every other
// lane has progressed as far as the clock says. Lanes that no wait relates run
// side by side, in an order that differs from run to run.
#include "runtime/emulation/capture.h"

#include <algorithm>
#include <utility>

namespace fsdpc::runtime::emulation {

// The first lane needs no thread of its own: run() executes it on the stream
// that launches the graph, which is busy anyway. `progress` has a count per
// lane; a lane that has run all of its steps is done.
Graph::Graph(std::vector<std::vector<Step>> lanesOfWork, Device &device,
             uint64_t seed)
    : device(device), lanes(std::move(lanesOfWork)), progress(lanes.size()) {
  for (size_t lane = 1; lane < lanes.size(); ++lane)
    workers.push_back(std::make_unique<Stream>(device, seed));
}

void Graph::run(Chance &chance) {
  // CUDA too runs launches of one executable graph one after the other.
  std::lock_guard<std::mutex> alone(running);
  {
    std::lock_guard<std::mutex> lock(mutex);
    std::fill(progress.begin(), progress.end(), 0);
  }
  for (size_t lane = 1; lane < lanes.size(); ++lane)
    // enqueueAlways, because a lane must count its progress even if the device
    // has failed: the others wait for it.
    workers[lane - 1]->enqueueAlways(
        [this, lane](Chance &chance) { runLane(lane, chance); });
  runLane(0, chance);
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [this] {
    // Lanes end in any order; the graph has run when all have.
    for (size_t lane = 0; lane < lanes.size(); ++lane)
      if (progress[lane] < lanes[lane].size())
        return false;
    return true;
  });
}

void Graph::runLane(size_t lane, Chance &chance) {
  for (const Step &step : lanes[lane]) {
    {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] {
        for (size_t other = 0; other < step.after.size(); ++other)
          // A lane runs in order, so it need not wait for itself.
          if (other != lane && progress[other] < step.after[other])
            return false;
        return true;
      });
    }
    chance.delay();
    // A failed device skips the work, but not the count.
    if (!device.failed())
      step.work(chance);
    std::lock_guard<std::mutex> lock(mutex);
    ++progress[lane];
    changed.notify_all();
  }
}

// The clock of a new lane holds what it waited for to join, and later its own
// count.
size_t Capture::addLane(const Clock &clock) {
  lanes.emplace_back();
  clocks.emplace_back();
  wait(lanes.size() - 1, clock);
  return lanes.size() - 1;
}

void Capture::add(size_t lane, Work work) {
  lanes[lane].push_back({clocks[lane], std::move(work)});
  wait(lane, {}); // extends the clock to hold this lane's count
  // The own component counts the lane's work, which isJoined() looks for in the
  // clock of lane 0.
  clocks[lane][lane] = lanes[lane].size();
}

// The join of two vector clocks: the maximum of each component.
void Capture::wait(size_t lane, const Clock &clock) {
  Clock &own = clocks[lane];
  own.resize(std::max({own.size(), clock.size(), lane + 1}));
  for (size_t other = 0; other < clock.size(); ++other)
    own[other] = std::max(own[other], clock[other]);
}

// CUDA requires that the stream that began the capture has waited, directly or
// not, for the last work of every other one.
bool Capture::isJoined() const {
  const Clock &end = clocks[0];
  for (size_t lane = 0; lane < lanes.size(); ++lane)
    if ((lane < end.size() ? end[lane] : 0) < lanes[lane].size())
      return false;
  return true;
}

std::unique_ptr<Graph> Capture::instantiate(uint64_t seed) {
  return std::make_unique<Graph>(std::move(lanes), device, seed);
}

} // namespace fsdpc::runtime::emulation
