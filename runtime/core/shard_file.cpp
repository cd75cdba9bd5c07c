// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes the file, and moves pieces between it and memory. A slot belongs to the
// thread while `wanted` names a piece for it, and to the caller otherwise, so
// reading and writing need no lock.
#include "runtime/core/shard_file.h"
#include "runtime/comm/thread.h"
#include "runtime/support/output_file.h"
#include "runtime/support/reserved_file.h"

#include <algorithm>
#include <utility>

namespace fsdpc::runtime {

// The second piece of memory follows the first, for the largest piece.
ShardFile::ShardFile(const std::vector<Extent> &layouts, int64_t pieceElements,
                     char *memory) {
  int64_t largest = 0;
  auto take = [&](int64_t size) {
    uint64_t offset = bytes;
    bytes += uint64_t(size);
    return offset;
  };
  for (size_t layout = 0; layout < layouts.size(); ++layout) {
    const Extent &extent = layouts[layout];
    Region region = {extent};
    region.parameters = take(extent.elements * extent.parameterBytes);
    region.gradient = take(extent.gradient ? extent.elements * 4 : 0);
    regions.push_back(region);
    first.push_back(places.size());
    bool hasPieces = extent.isUpdated && extent.elementBytes() > 0;
    for (int64_t begin = 0; hasPieces && begin < extent.elements;
         begin += pieceElements) {
      int64_t end = std::min(begin + pieceElements, extent.elements);
      places.push_back(
          {layout, begin, end, take(extent.states * (end - begin) * 4)});
      largest = std::max(largest, extent.elementBytes() * (end - begin));
    }
  }
  first.push_back(places.size());
  slots[0].memory = memory;
  slots[1].memory = memory + largest;
}

// Under the lock, or the thread could check, miss the flag and then sleep.
ShardFile::~ShardFile() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  requested.notify_one();
  if (thread.joinable())
    thread.join();
}

Status ShardFile::create(const std::string &folder) {
  Result<ReservedFile> made = reserveFile(folder + "/fsdpc-shards", bytes);
  FSDPC_TRY(made);
  descriptor = made->descriptor;
  file = std::move(made->file);
  return {};
}

Result<std::unique_ptr<ShardFile>>
ShardFile::make(const std::string &folder, const std::vector<Extent> &layouts,
                int64_t pieceElements, char *memory) {
  std::unique_ptr<ShardFile> made(
      new ShardFile(layouts, pieceElements, memory));
  FSDPC_TRY(made->create(folder));
  made->thread = startThread("the file of offloaded shards",
                             [shards = made.get()] { shards->loop(); });
  return made;
}

// Values in f32 come first, so that each kind is as aligned as the memory.
ShardPiece ShardFile::pieceIn(const Slot &slot) const {
  const Place &place = places[slot.piece];
  const Extent &extent = regions[place.layout].extent;
  auto *floats = reinterpret_cast<float *>(slot.memory);
  int64_t count = place.elements(), numbers = extent.states * count;
  ShardPiece piece{nullptr, nullptr, nullptr, count, place.begin, place.end};
  if (extent.states > 0)
    piece.states = floats;
  if (extent.gradient)
    piece.gradient = floats + numbers;
  if (extent.parameterBytes > 0)
    piece.parameters = reinterpret_cast<char *>(floats + numbers +
                                                (extent.gradient ? count : 0));
  return piece;
}

Status ShardFile::put(uint64_t offset, const void *from, uint64_t count) {
  if (!writeAt(descriptor, offset, from, count))
    return fileError(file.path(), "write");
  return {};
}

// An update does not change gradients.
Status ShardFile::writeBack(Slot &slot) {
  if (!slot.changed)
    return {};
  const Place &place = places[slot.piece];
  const Region &region = regions[place.layout];
  ShardPiece piece = pieceIn(slot);
  uint64_t count = uint64_t(place.elements());
  uint64_t width = uint64_t(region.extent.parameterBytes);
  if (piece.states)
    FSDPC_TRY(put(place.states, piece.states,
                  uint64_t(region.extent.states) * count * 4));
  if (piece.parameters)
    FSDPC_TRY(put(region.parameters + uint64_t(place.begin) * width,
                  piece.parameters, count * width));
  slot.changed = false;
  return {};
}

bool ShardFile::holds(const Slot &slot, size_t piece) const {
  if (slot.piece != piece)
    return false;
  return !regions[places[piece].layout].extent.gradient ||
         slot.age == gradientAge.load(std::memory_order_acquire);
}

// After a failure the slot's content is not known.
Status ShardFile::load(Slot &slot, size_t piece) {
  FSDPC_TRY(writeBack(slot));
  if (holds(slot, piece))
    return {};
  slot.age = gradientAge.load(std::memory_order_acquire);
  slot.piece = piece;
  const Place &place = places[piece];
  const Region &region = regions[place.layout];
  ShardPiece into = pieceIn(slot);
  slot.piece = none;
  uint64_t count = uint64_t(place.elements());
  if (into.states)
    FSDPC_TRY(file.read(place.states, into.states,
                        uint64_t(region.extent.states) * count * 4));
  if (into.gradient)
    FSDPC_TRY(
        readGradient(place.layout, place.begin, int64_t(count), into.gradient));
  if (into.parameters)
    FSDPC_TRY(readParameters(place.layout, place.begin, int64_t(count),
                             into.parameters));
  slot.piece = piece;
  return {};
}

void ShardFile::loop() {
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    requested.wait(lock, [&] { return wanted != none || stopping; });
    if (wanted == none)
      return;
    lock.unlock();
    Status loaded = load(slots[1 - current], wanted);
    lock.lock();
    outcome = std::move(loaded);
    wanted = none;
    done.notify_one();
  }
}

// Waits until both slots are the caller's.
Status ShardFile::settle() {
  std::unique_lock<std::mutex> lock(mutex);
  done.wait(lock, [&] { return wanted == none; });
  return outcome;
}

// The piece is in memory already if pieces are taken in their order. With one
// piece in all, the other slot stays empty. Where only the gradient is old, the
// piece is read into its slot again, since the file may lack what that slot
// has. The piece after the last one is the first of the next update, whose
// gradient does not exist yet.
Result<ShardPiece> ShardFile::acquire(size_t layout, int64_t piece) {
  FSDPC_TRY(settle());
  size_t own = first[layout] + size_t(piece);
  if (slots[current].piece != own)
    current = 1 - current;
  if (!holds(slots[current], own))
    FSDPC_TRY(load(slots[current], own));
  size_t next = (own + 1) % places.size();
  bool isComplete = next > own || !regions[places[next].layout].extent.gradient;
  Slot &other = slots[1 - current];
  if (next != own && (other.changed || (isComplete && !holds(other, next)))) {
    std::lock_guard<std::mutex> lock(mutex);
    wanted = next;
    requested.notify_one();
  }
  return pieceIn(slots[current]);
}

Status ShardFile::flush() {
  FSDPC_TRY(settle());
  for (Slot &slot : slots)
    FSDPC_TRY(writeBack(slot));
  return {};
}

// Pieces in memory are of before something was set.
void ShardFile::forget() {
  for (Slot &slot : slots)
    slot.piece = none;
}

// Calls body(place, first element, elements) for the parts of a layout's
// elements that lie in one piece each. The file then has what memory has.
template <class Body>
Status ShardFile::forEachPlace(size_t layout, int64_t begin, int64_t count,
                               Body body) {
  FSDPC_TRY(flush());
  for (size_t i = first[layout]; i < first[layout + 1]; ++i) {
    int64_t from = std::max(places[i].begin, begin);
    int64_t to = std::min(places[i].end, begin + count);
    if (from < to)
      FSDPC_TRY(body(places[i], from, to - from));
  }
  return {};
}

static uint64_t offsetOf(uint64_t offset, int64_t element, int64_t width = 4) {
  return offset + uint64_t(element) * uint64_t(width);
}

Status ShardFile::readStates(size_t layout, int32_t state, int64_t begin,
                             int64_t count, float *to) {
  return forEachPlace(
      layout, begin, count,
      [&](const Place &place, int64_t from, int64_t elements) {
        int64_t at = state * place.elements() + from - place.begin;
        return file.read(offsetOf(place.states, at), to + (from - begin),
                         uint64_t(elements) * sizeof(float));
      });
}

Status ShardFile::writeStates(size_t layout, int32_t state, int64_t begin,
                              int64_t count, const float *from) {
  FSDPC_TRY(
      forEachPlace(layout, begin, count,
                   [&](const Place &place, int64_t at, int64_t elements) {
                     int64_t to = state * place.elements() + at - place.begin;
                     return put(offsetOf(place.states, to), from + (at - begin),
                                uint64_t(elements) * sizeof(float));
                   }));
  forget();
  return {};
}

Status ShardFile::readParameters(size_t layout, int64_t begin, int64_t count,
                                 void *to) const {
  const Region &region = regions[layout];
  int64_t width = region.extent.parameterBytes;
  return file.read(offsetOf(region.parameters, begin, width), to,
                   uint64_t(count * width));
}

Status ShardFile::writeParameters(size_t layout, int64_t begin, int64_t count,
                                  const void *from) {
  FSDPC_TRY(flush());
  forget();
  const Region &region = regions[layout];
  int64_t width = region.extent.parameterBytes;
  return put(offsetOf(region.parameters, begin, width), from,
             uint64_t(count * width));
}

Status ShardFile::readGradient(size_t layout, int64_t begin, int64_t count,
                               float *to) const {
  return file.read(offsetOf(regions[layout].gradient, begin), to,
                   uint64_t(count) * sizeof(float));
}

Status ShardFile::writeGradient(size_t layout, int64_t begin, int64_t count,
                                const float *from) {
  FSDPC_TRY(put(offsetOf(regions[layout].gradient, begin), from,
                uint64_t(count) * sizeof(float)));
  gradientAge.fetch_add(1, std::memory_order_release);
  return {};
}

} // namespace fsdpc::runtime
