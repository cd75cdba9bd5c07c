// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns counts of collectives into places among a section's calls. A call may
// take several collectives, one per layout, and a replayed graph enqueues
// collectives that no call has counted on the host.
#include "runtime/cuda/command_counts.h"

#include <algorithm>

namespace fsdpc::runtime {

// Returns the channel of a stream, or -1 for one that does not communicate.
int CommandCounts::channelOf(int stream) {
  return stream == FSDPC_STREAM_GATHER   ? int(gatherChannel)
         : stream == FSDPC_STREAM_REDUCE ? int(reduceChannel)
                                         : -1;
}

void CommandCounts::start(const CollectiveChannels &opened) {
  std::lock_guard<std::mutex> lock(mutex);
  channels = &opened;
  for (size_t channel : {gatherChannel, reduceChannel}) {
    uint64_t now = opened[channel]->enqueued();
    before[channel] += now - counted[channel];
    counted[channel] = now;
  }
}

void CommandCounts::begin(const Section &section) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!channels)
    return;
  current = &kinds[section.entry()];
  made = {};
  sections[begun++ % sections.size()] = {current, calls, before};
}

void CommandCounts::called(int stream) {
  std::lock_guard<std::mutex> lock(mutex);
  if (current)
    ++made[size_t(stream)];
}

void CommandCounts::announced(Channel channel) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!current || current->isKnown)
    return;
  int stream = channel == gatherChannel ? int(FSDPC_STREAM_GATHER)
                                        : int(FSDPC_STREAM_REDUCE);
  current->firstOf[channel].emplace_back((*channels)[channel]->enqueued() -
                                             counted[channel],
                                         made[size_t(stream)] - 1);
}

void CommandCounts::end() {
  std::lock_guard<std::mutex> lock(mutex);
  if (!current)
    return;
  for (size_t channel : {gatherChannel, reduceChannel}) {
    uint64_t now = (*channels)[channel]->enqueued();
    if (!current->isKnown)
      current->collectives[channel] = now - counted[channel];
    counted[channel] = now;
    before[channel] += current->collectives[channel];
  }
  if (!current->isKnown)
    current->calls = made;
  current->isKnown = true;
  for (size_t stream = 0; stream < calls.size(); ++stream)
    calls[stream] += current->calls[stream];
  current = nullptr;
}

// The mutex is held. Returns how many collectives have ended on a channel.
// Marks have 32 bits, two for each collective; the rest follows from how many
// there can be. A graph may run before its section ends.
uint64_t CommandCounts::collectives(int channel) const {
  const Collectives &own = *(*channels)[size_t(channel)];
  uint64_t most = own.enqueued() - counted[size_t(channel)];
  if (current)
    most = std::max(most, current->collectives[size_t(channel)]);
  most += before[size_t(channel)];
  return most - ((most - own.marks() / 2) & 0x7fffffff);
}

// A replay is enqueued as a whole, when its section ends.
uint64_t CommandCounts::enqueued(int stream) const {
  std::lock_guard<std::mutex> lock(mutex);
  if (!channels || channelOf(stream) < 0)
    return 0;
  return calls[size_t(stream)] + (current ? made[size_t(stream)] : 0);
}

uint64_t CommandCounts::completed(int stream) const {
  std::lock_guard<std::mutex> lock(mutex);
  int channel = channelOf(stream);
  if (!channels || channel < 0)
    return 0;
  uint64_t done = collectives(channel);
  uint64_t kept = std::min<uint64_t>(begun, sections.size());
  for (uint64_t back = 1; back <= kept; ++back) {
    const Begun &section = sections[(begun - back) % sections.size()];
    uint64_t first = section.firstCollective[size_t(channel)];
    if (first > done)
      continue;
    uint64_t place = section.firstCall[size_t(stream)];
    // Nothing is left of the newest section if it has no such collective.
    if (done - first >= section.kind->collectives[size_t(channel)] &&
        section.kind != current)
      return place + section.kind->calls[size_t(stream)];
    for (auto [collective, call] : section.kind->firstOf[size_t(channel)])
      if (collective <= done - first)
        place = section.firstCall[size_t(stream)] + call;
    return place;
  }
  return 0;
}

bool CommandCounts::hasBegun(int stream) const {
  std::lock_guard<std::mutex> lock(mutex);
  int channel = channelOf(stream);
  return channels && channel >= 0 &&
         (*channels)[size_t(channel)]->marks() % 2 != 0;
}

} // namespace fsdpc::runtime
