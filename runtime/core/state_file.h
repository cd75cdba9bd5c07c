// The optimizer states of offloaded layouts (fsdpc's --offload=optimizer): a
// file of this rank, and memory for two pieces of it.
//
// An update takes the pieces one after the other, in the order of the layouts.
// While one piece is computed, a thread writes the piece before it back and
// reads the next one, as ZeRO-Infinity does (Rajbhandari et al., SC 2021). The
// file is read and written by position and not mapped: pages of a mapping count
// as the process's own, so the resident set would grow past the plan.
//
// The file has no name, so that nothing is left of it however the process ends.
#pragma once

#include "runtime/core/file.h"
#include "shared/status.h"

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fsdpc::runtime {

// States of the elements [begin, end) of the part of a layout that a rank
// updates. State i begins `i * stride` floats after `values`.
struct StatePiece {
  float *values = nullptr;
  int64_t stride = 0, begin = 0, end = 0;
};

class StateFile {
public:
  // The part of the file that holds a layout; empty if it has no states.
  struct Extent {
    int64_t elements = 0; // that the rank updates
    int32_t states = 0;
  };

  // Makes a file of zeroes in `folder`, and reserves its room on the disk. If
  // there is too little, the error has both numbers. `memory` holds two of the
  // largest pieces and outlives this object; a piece has up to `pieceElements`
  // elements of each state.
  static Result<std::unique_ptr<StateFile>>
  make(const std::string &folder, const std::vector<Extent> &layouts,
       int64_t pieceElements, float *memory);
  // Ends the thread. What is in memory is not written.
  ~StateFile();
  StateFile(const StateFile &) = delete;

  // Return the states of a layout's elements [begin, begin + count), or set
  // them. Not between `acquire` and `release`.
  Status read(size_t layout, int32_t state, int64_t begin, int64_t count,
              float *to);
  Status write(size_t layout, int32_t state, int64_t begin, int64_t count,
               const float *from);

  int64_t pieces(size_t layout) const {
    return int64_t(first[layout + 1] - first[layout]);
  }
  // Waits until a piece of a layout is in memory, where the caller may change
  // it until it calls `release`. Meanwhile the thread writes the last piece
  // back and reads the next. A failure of the thread is returned here.
  Result<StatePiece> acquire(size_t layout, int64_t piece);
  void release() { slots[current].changed = true; }

private:
  // The place of a piece in the file; its states lie one after the other.
  struct Place {
    int64_t begin = 0, end = 0;
    int32_t states = 0;
    uint64_t offset = 0;
    uint64_t bytes() const {
      return uint64_t(states) * uint64_t(end - begin) * sizeof(float);
    }
  };
  static constexpr size_t none = SIZE_MAX;
  // Memory for a piece, and the piece that is there.
  struct Slot {
    float *values = nullptr;
    size_t piece = none;
    bool changed = false; // since it was read
  };

  StateFile(const std::vector<Extent> &layouts, int64_t pieceElements,
            float *memory);
  Status create(const std::string &folder);
  Status writeBack(Slot &slot);
  Status load(Slot &slot, size_t piece);
  Status settle();
  template <class Body>
  Status forEachPlace(size_t layout, int64_t begin, int64_t count, Body body);
  void loop();

  std::vector<Place> places; // of all layouts
  std::vector<size_t> first; // a layout's first piece, and the end of all
  uint64_t bytes = 0;
  File file;
  int descriptor = -1; // owned by `file`
  std::array<Slot, 2> slots;
  size_t current = 0; // the slot that was acquired last

  std::mutex mutex;
  std::condition_variable requested, done;
  size_t wanted = none; // what the thread brings into the other slot
  bool stopping = false;
  Status outcome;     // of what the thread did last
  std::thread thread; // last member, since it uses all others
};

// Returns true if the files of a folder lie in memory (tmpfs).
bool liesInMemory(const std::string &folder);

} // namespace fsdpc::runtime
