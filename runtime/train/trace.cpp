// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the trace as Chrome trace events. An entry function enqueues the same
// commands in every call. Hence a command's position on its stream, not
// counting waits, is its index in the manifest's sequence for that stream, and
// the streams need not keep names.
#include "runtime/train/trace.h"
#include "runtime/support/concat.h"
#include "runtime/support/json_fields.h"
#include "runtime/support/new_file.h"

#include <algorithm>
#include <chrono>

namespace fsdpc::runtime {
namespace {

// The last steps are kept, when everything has warmed up. The second bound
// keeps a large --accumulate from taking gigabytes.
constexpr int64_t tracedSteps = 8;
constexpr size_t mostTimes = size_t(1) << 20; // per stream
constexpr const char *streamNames[FSDPC_STREAMS] = {"compute", "gather",
                                                    "reduce"};

// The same clock as the streams', so that entries and commands line up.
int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Bytes that a command on layouts touches on this rank. The manifest does not
// have them, because the compiler does not know the number of ranks. Reads and
// writes, in bytes. Gathers count what one rank moves.
int64_t layoutBytes(const fsdpc_rank &rank, const CommandInfo &command) {
  int64_t bytes = 0;
  for (int32_t index : command.layouts) {
    const Layout &layout = rank.manifest.layouts[size_t(index)];
    const LayoutBuffers &buffers = rank.layouts[size_t(index)];
    int64_t element = dtypeBytes(rank.manifest.computeDtypeOf(layout));
    if (command.op == "all_gather" && buffers.gathered)
      continue; // it lies there already
    if (command.op == "all_gather" && !layout.wire.empty())
      bytes += buffers.shard * 4 +
               2 * blockedBytes(buffers.whole, blockTypeOf(layout.wire)) +
               buffers.whole * element;
    else if (command.op == "all_gather") // every shard is read and written
      bytes += (2 * buffers.whole - buffers.shard) * element +
               buffers.shard * (buffers.computeShard ? element : 4);
    else if (command.op == "reduce_scatter") // every rank's part of the shard
      bytes += buffers.whole * element + buffers.shard * 4;
    else if (command.op == "accumulate")
      bytes += layout.elements * (element + 4);
    else if (command.op == "sum_squares" || command.op == "factor_sums")
      bytes += buffers.own * 4;
    else if (command.op == "update_factors") // averages, both ways
      for (const MemberFactors &member : buffers.factors)
        bytes += 8 * member.shape.count();
    else if (command.op == "momentum_updates") // gradient, state and update
      bytes += buffers.own * 4 * 3;
    else if (command.op == "member_sums") // all is read
      bytes += buffers.own * 4 * (2 + layout.states);
    else if (command.op == "optimizer") { // all but the gradient is written
      int64_t parameter = layout.noMaster ? 2 * element : 8;
      if (hasComputeCopy(rank.manifest, layout))
        parameter += element;
      bytes += buffers.part * (4 * (1 + 2 * layout.states) + parameter);
    } else if (command.op != "clip") // full-length gradients
      bytes += buffers.whole * 4;
  }
  return bytes;
}

// Appends an event to the list, of which `write` adds the brackets.
void append(std::string &text, const Json &event) {
  text += text.empty() ? "" : ",\n";
  text += dump(event);
}

// A "complete" event. `begin` and `end` are in ns, the format's times in µs. A
// rank is a process of the trace, a stream a thread.
Json slice(const std::string &name, const std::string &category, int rank,
           int track, int64_t begin, int64_t end) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"pid", rank},
          {"tid", track},
          {"ts", double(begin) / 1e3},
          {"dur", double(end - begin) / 1e3}};
}

// A "metadata" event, which names a process or a thread.
void label(std::string &text, const char *what, int rank, int track,
           const std::string &name) {
  append(text, {{"name", what},
                {"ph", "M"},
                {"pid", rank},
                {"tid", track},
                {"args", {{"name", name}}}});
}

// Returns the calls of an entry on a stream, in order. Waits are not listed.
const std::vector<Call> &callsOf(const Manifest &manifest,
                                 const std::string &entry, int stream) {
  static const std::vector<Call> none;
  for (const CallSequence &sequence : manifest.sequences)
    if (sequence.entry == entry && sequence.stream == stream)
      return sequence.calls;
  return none;
}

// The trace event of a command, named after what it does and for which unit.
Json commandSlice(const fsdpc_rank &rank, const Call &call, int stream,
                  const DeviceTimes &times) {
  const CommandInfo &command = rank.manifest.commands[size_t(call.command)];
  std::string title = command.op == "launch" ? "" : command.op;
  for (const std::string &part :
       {command.name, command.layouts.empty() ? call.unit : std::string()})
    title += (title.empty() || part.empty() ? "" : " ") + part;
  Json event =
      slice(title, command.op, rank.job.rank, stream, times.begin, times.end);
  event["args"] = {{"command", command.name},
                   {"unit", call.unit},
                   {"backward", call.backward},
                   {"node", call.node},
                   {"bytes", command.layouts.empty()
                                 ? command.bytes
                                 : layoutBytes(rank, command)},
                   {"flops", command.flops},
                   {"exps", command.exps},
                   {"cpu_us", double(times.cpu) / 1e3}};
  if (command.plan >= 0)
    event["args"]["plan"] = command.plan;
  return event;
}

} // namespace

std::string Trace::pathOf(const std::string &path, int rank, int ranks) {
  if (ranks == 1)
    return path;
  // A dot in a folder's name is not an extension.
  size_t dot = path.rfind('.');
  if (dot == std::string::npos || path.find('/', dot) != std::string::npos)
    dot = path.size();
  return concat(path.substr(0, dot), ".", rank, path.substr(dot));
}

Status Trace::open(const std::string &name, int rank, int ranks) {
  path = pathOf(name, rank, ranks);
  return checkWritable(path);
}

// Sizes the rings for the last steps: per stream all commands and waits of that
// many steps.
void Trace::start(fsdpc_rank &rank, int64_t accumulate) {
  if (path.empty())
    return;
  // There are at most as many waits as events. Evaluations are not traced.
  for (const CallSequence &sequence : rank.manifest.sequences) {
    if (sequence.entry.starts_with("evaluate"))
      continue;
    kept[size_t(sequence.stream)] +=
        (sequence.calls.size() + size_t(rank.manifest.events)) *
        size_t(sequence.entry.starts_with("microbatch") ? accumulate : 1);
  }
  for (size_t &count : kept)
    count = std::clamp<size_t>(count * tracedSteps, 1, mostTimes);
  rank.device->keepTimes(kept);
  entries.resize(
      size_t(std::min(tracedSteps * (accumulate + 1), int64_t(mostTimes))));
}

// Remembers where each stream stands. Commands from there up to the next
// entry's positions belong to this entry.
void Trace::enter(const fsdpc_rank &rank, const char *name) {
  if (path.empty())
    return;
  leave();
  Entry &entry = entries[entered++ % entries.size()];
  entry = {name, rank.step, rank.microbatch, now(), 0, {}};
  for (int stream = 0; stream < FSDPC_STREAMS; ++stream)
    entry.first[size_t(stream)] = rank.device->enqueued(stream);
}

// Only the first call after `enter` counts.
void Trace::leave() {
  if (path.empty() || entered == 0)
    return;
  int64_t &end = entries[(entered - 1) % entries.size()].end;
  if (end == 0)
    end = now();
}

// Writes the entry on a track of its own, then its commands on their streams.
// `next` is where the following entry begins.
void Trace::writeEntry(const fsdpc_rank &rank, const Entry &entry,
                       const Positions &next, std::string &text) const {
  int self = rank.job.rank;
  Json where = {{"step", entry.step}, {"microbatch", entry.microbatch}};
  auto put = [&](Json event) {
    event["args"].update(where);
    append(text, event);
  };
  put(slice(entry.name, "entry", self, FSDPC_STREAMS, entry.begin, entry.end));
  for (int stream = 0; stream < FSDPC_STREAMS; ++stream) {
    const std::vector<Call> &calls = callsOf(rank.manifest, entry.name, stream);
    size_t place = 0;
    for (uint64_t position = entry.first[size_t(stream)];
         position < next[size_t(stream)]; ++position) {
      DeviceTimes times = rank.device->times(stream, position);
      // Only commands advance `place`: a wait has no entry in the sequence.
      if (times.waitedFor >= 0)
        put(slice(std::string("wait for ") + streamNames[times.waitedFor],
                  "wait", self, stream, times.begin, times.end));
      else if (place < calls.size())
        put(commandSlice(rank, calls[place++], stream, times));
    }
  }
}

// Times are those of this machine's clock since it booted; traces of ranks on
// several machines do not line up.
Status Trace::write(const fsdpc_rank &rank) {
  if (path.empty())
    return {};
  std::string text;
  int self = rank.job.rank;
  label(text, "process_name", self, 0, concat("rank ", self));
  for (int stream = 0; stream < FSDPC_STREAMS; ++stream)
    label(text, "thread_name", self, stream, streamNames[stream]);
  label(text, "thread_name", self, FSDPC_STREAMS, "steps");

  Positions next;
  for (int stream = 0; stream < FSDPC_STREAMS; ++stream)
    next[size_t(stream)] = rank.device->enqueued(stream);
  // An entry is complete only if the ring of every stream still holds its first
  // command.
  const Positions all = next;
  auto isKept = [&](const Entry &entry) {
    for (size_t stream = 0; stream < kept.size(); ++stream)
      if (all[stream] - entry.first[stream] > kept[stream])
        return false;
    return true;
  };
  // From the newest entry backwards, as long as the streams still have the
  // times of all its commands.
  for (uint64_t back = 0; back < std::min<uint64_t>(entered, entries.size());
       ++back) {
    const Entry &entry = entries[(entered - 1 - back) % entries.size()];
    if (!isKept(entry))
      break;
    writeEntry(rank, entry, next, text);
    next = entry.first;
  }
  text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + text + "\n]}\n";
  NewFile file;
  FSDPC_TRY(file.open(path));
  FSDPC_TRY(file.write(0, text.data(), text.size()));
  return file.commit();
}

} // namespace fsdpc::runtime
