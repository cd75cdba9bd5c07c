// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the names of commands by their positions on a stream. An entry function
// enqueues the same commands in every call, so the n-th command of a stream
// that is not a wait is the n-th of the manifest's sequence.
#include "runtime/core/flight_recorder.h"
#include "runtime/support/concat.h"
#include "runtime/support/json_text.h"
#include "runtime/support/new_file.h"

#include <algorithm>
#include <unistd.h>

namespace fsdpc::runtime {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char *streamNames[FSDPC_STREAMS] = {"compute", "gather",
                                                    "reduce"};
// Commands that are written: so many that have run, and so many that follow.
constexpr uint64_t doneShown = 12, queuedShown = 4;

// Returns null for an entry without commands on the stream.
const std::vector<Call> *callsOf(const Manifest &manifest,
                                 const std::string &entry, int stream) {
  for (const CallSequence &sequence : manifest.sequences)
    if (sequence.entry == entry && sequence.stream == stream)
      return &sequence.calls;
  return nullptr;
}

} // namespace

// Notes how many commands each stream has been given so far; those of this call
// follow.
void FlightRecorder::enter(const char *name) {
  std::lock_guard<std::mutex> lock(mutex);
  Entry &entry = entries[entered++ % entries.size()];
  entry.name = name;
  entry.step = rank.step;
  entry.microbatch = rank.microbatch;
  for (int stream = 0; stream < FSDPC_STREAMS; ++stream)
    entry.first[size_t(stream)] = rank.device->enqueued(stream);
  ++changes;
}

void FlightRecorder::at(const char *what) {
  doing = what;
  ++changes;
}

// Each term only grows.
uint64_t FlightRecorder::progress() const {
  uint64_t sum = changes;
  for (int stream = 0; stream < FSDPC_STREAMS; ++stream)
    sum += rank.device->completed(stream);
  return sum;
}

// The mutex is held.
FlightRecorder::Command FlightRecorder::find(int stream,
                                             uint64_t position) const {
  Command command;
  command.isWait = rank.device->isWait(stream, position);
  uint64_t count = std::min<uint64_t>(entered, entries.size());
  for (uint64_t back = 1; back <= count && !command.entry; ++back) {
    const Entry &entry = entries[(entered - back) % entries.size()];
    if (entry.first[size_t(stream)] <= position)
      command.entry = &entry;
  }
  if (!command.entry || command.isWait)
    return command;
  size_t place = 0;
  // Waits are not in the manifest's sequence, so they are not counted.
  for (uint64_t at = command.entry->first[size_t(stream)]; at < position; ++at)
    place += !rank.device->isWait(stream, at);
  auto *calls = callsOf(rank.manifest, command.entry->name, stream);
  if (calls && place < calls->size())
    command.call = &(*calls)[place];
  return command;
}

std::string FlightRecorder::titleOf(const Command &command) const {
  if (command.isWait)
    return "wait for another stream";
  if (!command.call)
    return "a command";
  const CommandInfo &info =
      rank.manifest.commands[size_t(command.call->command)];
  return info.op + (info.name.empty() ? "" : " " + info.name);
}

// A stream that computes is what the rank does. Otherwise a stream that
// communicates waits for other ranks, as does the loop between steps.
FlightRecorder::Place FlightRecorder::place() const {
  std::lock_guard<std::mutex> lock(mutex);
  Place place;
  int64_t step = rank.step;
  place.waitsForOthers = true;
  std::string text = doing.load();
  for (int stream :
       {FSDPC_STREAM_COMPUTE, FSDPC_STREAM_REDUCE, FSDPC_STREAM_GATHER}) {
    uint64_t done = rank.device->completed(stream);
    if (done >= rank.device->enqueued(stream))
      continue;
    Command command = find(stream, done);
    if (command.isWait || !rank.device->hasBegun(stream))
      continue; // the stream that it waits for says more
    place.waitsForOthers = stream != FSDPC_STREAM_COMPUTE;
    if (command.entry)
      step = command.entry->step;
    text = titleOf(command);
    if (command.call && !command.call->unit.empty()) {
      place.text =
          concat("step ", step, ", unit '", command.call->unit, "': ", text);
      return place;
    }
    break;
  }
  place.text = concat("step ", step, ": ", text);
  return place;
}

// Called while the rank hangs, by another thread. It asks the device for
// counters only and waits for no stream.
Status FlightRecorder::write(const std::string &path) const {
  char host[128] = "";
  gethostname(host, sizeof host - 1);
  Place here = place();
  Json json = {{"rank", rank.job.rank},
               {"host", host},
               {"place", here.text},
               {"waits_for_others", here.waitsForOthers},
               {"loop", doing.load()}};
  std::lock_guard<std::mutex> lock(mutex);
  for (int stream = 0; stream < FSDPC_STREAMS; ++stream) {
    uint64_t done = rank.device->completed(stream);
    uint64_t end = std::min(rank.device->enqueued(stream), done + queuedShown);
    bool hasBegun = rank.device->hasBegun(stream);
    Json list = Json::array();
    for (uint64_t at = done - std::min(done, doneShown); at < end; ++at) {
      Command command = find(stream, at);
      Json row = {{"command", titleOf(command)},
                  {"state", at < done                ? "done"
                            : at == done && hasBegun ? "running"
                                                     : "queued"}};
      if (command.entry)
        row.update({{"entry", command.entry->name},
                    {"step", command.entry->step},
                    {"microbatch", command.entry->microbatch}});
      if (command.call)
        row.update(
            {{"unit", command.call->unit}, {"node", command.call->node}});
      list.push_back(row);
    }
    json["streams"][streamNames[stream]] = list;
  }
  std::string text = dump(json, 1) + "\n";
  NewFile file;
  FSDPC_TRY(file.open(path));
  FSDPC_TRY(file.write(0, text.data(), text.size()));
  return file.commit();
}

} // namespace fsdpc::runtime
