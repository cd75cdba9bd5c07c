// Makes the file, and moves pieces between it and memory. A slot belongs to the
// thread while `wanted` names a piece for it, and to the caller otherwise, so
// reading and writing need no lock.
#include "runtime/core/state_file.h"
#include "runtime/core/checkpoint_folder.h"
#include "runtime/core/spelling.h"
#include "shared/output_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <utility>

namespace fsdpc::runtime {

// The second piece of memory follows the first, for the largest piece.
StateFile::StateFile(const std::vector<Extent> &layouts, int64_t pieceElements,
                     float *memory) {
  int64_t largest = 0;
  for (const Extent &extent : layouts) {
    first.push_back(places.size());
    for (int64_t begin = 0; extent.states > 0 && begin < extent.elements;
         begin += pieceElements) {
      int64_t end = std::min(begin + pieceElements, extent.elements);
      places.push_back({begin, end, extent.states, bytes});
      bytes += places.back().bytes();
      largest = std::max(largest, extent.states * (end - begin));
    }
  }
  first.push_back(places.size());
  slots[0].values = memory;
  slots[1].values = memory + largest;
}

// Under the lock, or the thread could check, miss the flag and then sleep.
StateFile::~StateFile() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  requested.notify_one();
  if (thread.joinable())
    thread.join();
}

static Error noRoom(const std::string &folder, uint64_t bytes) {
  return {"the offloaded optimizer states of a rank take " +
          bytesText(int64_t(bytes)) + ", but '" + folder + "' has room for " +
          bytesText(std::max<int64_t>(0, freeBytes(folder))) +
          ", also for other ranks there; name another folder by --offload-dir"};
}

// Reserving is the reliable check, since other ranks may take the same room.
// Asking first spares the disk an attempt that cannot succeed.
Status StateFile::create(const std::string &folder) {
  if (int64_t room = freeBytes(folder); room >= 0 && uint64_t(room) < bytes)
    return noRoom(folder, bytes);
  std::string path = folder + "/fsdpc-states";
  Result<int> made = makeUnnamed(path);
  FSDPC_TRY(made);
  descriptor = *made;
  file = File::adopt(path, descriptor, bytes);
  int code;
  do
    code = bytes ? posix_fallocate(descriptor, 0, off_t(bytes)) : 0;
  while (code == EINTR);
  if (code == ENOSPC)
    return noRoom(folder, bytes);
  errno = code;
  return code ? fileError(path, "reserve room in") : Status();
}

Result<std::unique_ptr<StateFile>>
StateFile::make(const std::string &folder, const std::vector<Extent> &layouts,
                int64_t pieceElements, float *memory) {
  std::unique_ptr<StateFile> made(
      new StateFile(layouts, pieceElements, memory));
  FSDPC_TRY(made->create(folder));
  made->thread = std::thread([states = made.get()] { states->loop(); });
  return made;
}

Status StateFile::writeBack(Slot &slot) {
  if (!slot.changed)
    return {};
  const Place &place = places[slot.piece];
  if (!writeAt(descriptor, place.offset, slot.values, place.bytes()))
    return fileError(file.path(), "write");
  slot.changed = false;
  return {};
}

// After a failure the slot's content is not known.
Status StateFile::load(Slot &slot, size_t piece) {
  FSDPC_TRY(writeBack(slot));
  if (slot.piece == piece)
    return {};
  slot.piece = none;
  FSDPC_TRY(
      file.read(places[piece].offset, slot.values, places[piece].bytes()));
  slot.piece = piece;
  return {};
}

void StateFile::loop() {
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
Status StateFile::settle() {
  std::unique_lock<std::mutex> lock(mutex);
  done.wait(lock, [&] { return wanted == none; });
  return outcome;
}

// The piece is in memory already if pieces are taken in their order. With one
// piece in all, the other slot stays empty.
Result<StatePiece> StateFile::acquire(size_t layout, int64_t piece) {
  FSDPC_TRY(settle());
  size_t own = first[layout] + size_t(piece);
  if (slots[current].piece != own) {
    current = 1 - current;
    FSDPC_TRY(load(slots[current], own));
  }
  size_t next = (own + 1) % places.size();
  Slot &other = slots[1 - current];
  if (next != own && (other.changed || other.piece != next)) {
    std::lock_guard<std::mutex> lock(mutex);
    wanted = next;
    requested.notify_one();
  }
  const Place &place = places[own];
  return StatePiece{slots[current].values, place.end - place.begin, place.begin,
                    place.end};
}

// Calls body(place, first element, elements) for the parts of a layout's
// elements that lie in one piece each. The file then has what memory has.
template <class Body>
Status StateFile::forEachPlace(size_t layout, int64_t begin, int64_t count,
                               Body body) {
  FSDPC_TRY(settle());
  for (Slot &slot : slots)
    FSDPC_TRY(writeBack(slot));
  for (size_t i = first[layout]; i < first[layout + 1]; ++i) {
    int64_t from = std::max(places[i].begin, begin);
    int64_t to = std::min(places[i].end, begin + count);
    if (from < to)
      FSDPC_TRY(body(places[i], from, to - from));
  }
  return {};
}

static uint64_t offsetOf(uint64_t offset, int64_t element) {
  return offset + uint64_t(element) * sizeof(float);
}

Status StateFile::read(size_t layout, int32_t state, int64_t begin,
                       int64_t count, float *to) {
  return forEachPlace(
      layout, begin, count,
      [&](const Place &place, int64_t from, int64_t elements) {
        int64_t at = state * (place.end - place.begin) + from - place.begin;
        return file.read(offsetOf(place.offset, at), to + (from - begin),
                         uint64_t(elements) * sizeof(float));
      });
}

Status StateFile::write(size_t layout, int32_t state, int64_t begin,
                        int64_t count, const float *from) {
  auto put = [&](const Place &place, int64_t first,
                 int64_t elements) -> Status {
    int64_t at = state * (place.end - place.begin) + first - place.begin;
    if (!writeAt(descriptor, offsetOf(place.offset, at), from + (first - begin),
                 uint64_t(elements) * sizeof(float)))
      return fileError(file.path(), "write");
    return {};
  };
  FSDPC_TRY(forEachPlace(layout, begin, count, put));
  for (Slot &slot : slots)
    slot.piece = none; // what was in memory is of before
  return {};
}

bool liesInMemory(const std::string &folder) {
  struct statfs system;
  return statfs(folder.c_str(), &system) == 0 && system.f_type == TMPFS_MAGIC;
}

} // namespace fsdpc::runtime
