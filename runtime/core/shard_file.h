// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parts of a rank's layouts that --offload keeps outside of memory: a file
// of its parameters, gradients and optimizer states, and memory for two pieces
// of an update.
//
// An update takes the pieces one after the other, in the order of the layouts.
// While one piece is computed, a thread writes the piece before it back and
// reads the next one, as ZeRO-Infinity does (Rajbhandari et al., SC 2021).
// Gathers, reductions and the norm read and write parameters and gradients by
// themselves, each on the thread of its stream. The file is read and written by
// position and not mapped: pages of a mapping count as the process's own, so
// the resident set would grow past the plan.
//
// The file has no name, so that nothing is left of it however the process ends.
#pragma once

#include "runtime/support/file.h"
#include "runtime/support/status.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fsdpc::runtime {

/// The elements [begin, end) of the part of a layout that a rank updates. State
/// i begins `i * stride` floats after `states`. A pointer is null if the file
/// does not hold its values.
struct ShardPiece {
  float *states = nullptr, *gradient = nullptr;
  char *parameters = nullptr;
  int64_t stride = 0, begin = 0, end = 0;
};

class ShardFile {
public:
  /// Describes what the file holds of a layout; by default nothing.
  struct Extent {
    int64_t elements = 0;       ///< of the rank's part
    int32_t states = 0;         ///< in f32
    int32_t parameterBytes = 0; ///< per element; 0: parameters are in memory
    bool gradient = false;      ///< in f32
    /// False for a frozen layout, which has no pieces.
    bool isUpdated = true;
    int64_t elementBytes() const {
      return 4 * states + 4 * int64_t(gradient) + parameterBytes;
    }
  };

  /// Makes a file of zeroes in `folder`, and reserves its room on the disk. If
  /// there is too little, the error has both numbers. `memory` holds two of the
  /// largest pieces and outlives this object; a piece has up to `pieceElements`
  /// elements of all that an update needs.
  static Result<std::unique_ptr<ShardFile>>
  make(const std::string &folder, const std::vector<Extent> &layouts,
       int64_t pieceElements, char *memory);
  /// Ends the thread. Pieces in memory are not written.
  ~ShardFile();
  ShardFile(const ShardFile &) = delete;

  /// Return the states of a layout's elements [begin, begin + count), or set
  /// them. Not between `acquire` and `release`.
  Status readStates(size_t layout, int32_t state, int64_t begin, int64_t count,
                    float *to);
  Status writeStates(size_t layout, int32_t state, int64_t begin, int64_t count,
                     const float *from);
  /// The same of parameters, in their type. Reading is safe on any thread, and
  /// gives what the last `flush` has written.
  Status readParameters(size_t layout, int64_t begin, int64_t count,
                        void *to) const;
  Status writeParameters(size_t layout, int64_t begin, int64_t count,
                         const void *from);
  /// The same of gradients, both on any thread while no update runs. Pieces of
  /// before are read anew after gradients have changed.
  Status readGradient(size_t layout, int64_t begin, int64_t count,
                      float *to) const;
  Status writeGradient(size_t layout, int64_t begin, int64_t count,
                       const float *from);

  int64_t pieces(size_t layout) const {
    return int64_t(first[layout + 1] - first[layout]);
  }
  /// The elements [begin, end) of a piece.
  std::pair<int64_t, int64_t> rangeOf(size_t layout, int64_t piece) const {
    const Place &place = places[first[layout] + size_t(piece)];
    return {place.begin, place.end};
  }
  /// Waits until a piece of a layout is in memory, where the caller may read it
  /// until the next call. If it changes parameters and states, it calls
  /// `release` then. Meanwhile the thread writes the last piece back and reads
  /// the next. A failure of the thread is returned here.
  Result<ShardPiece> acquire(size_t layout, int64_t piece);
  void release() { slots[current].changed = true; }
  /// Writes back what is in memory.
  Status flush();

private:
  /// Where the file has a layout's parameters and its gradient. Its states
  /// follow, piece by piece.
  struct Region {
    Extent extent;
    uint64_t parameters = 0, gradient = 0;
  };
  /// A piece, and where its states begin in the file; they lie one after the
  /// other.
  struct Place {
    size_t layout = 0;
    int64_t begin = 0, end = 0;
    uint64_t states = 0;
    int64_t elements() const { return end - begin; }
  };
  static constexpr size_t none = SIZE_MAX;
  /// Memory for a piece, and the piece that is there.
  struct Slot {
    char *memory = nullptr;
    size_t piece = none;
    bool changed = false; ///< since it was read
    uint64_t age = 0;     ///< `gradientAge` when it was read
  };

  ShardFile(const std::vector<Extent> &layouts, int64_t pieceElements,
            char *memory);
  Status create(const std::string &folder);
  ShardPiece pieceIn(const Slot &slot) const;
  bool holds(const Slot &slot, size_t piece) const;
  Status put(uint64_t offset, const void *from, uint64_t bytes);
  Status writeBack(Slot &slot);
  Status load(Slot &slot, size_t piece);
  Status settle();
  template <class Body>
  Status forEachPlace(size_t layout, int64_t begin, int64_t count, Body body);
  void forget();
  void loop();

  std::vector<Region> regions; ///< per layout
  std::vector<Place> places;   ///< of all layouts
  std::vector<size_t> first;   ///< a layout's first piece, and the end of all
  uint64_t bytes = 0;
  File file;
  int descriptor = -1; ///< owned by `file`
  std::array<Slot, 2> slots;
  size_t current = 0; ///< the slot that was acquired last
  std::atomic<uint64_t> gradientAge = 0;

  std::mutex mutex;
  std::condition_variable requested, done;
  size_t wanted = none; ///< what the thread brings into the other slot
  bool stopping = false;
  Status outcome;     ///< of what the thread did last
  std::thread thread; ///< last member, since it uses all others
};

} // namespace fsdpc::runtime
