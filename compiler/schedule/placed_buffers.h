// The buffers that the packer has placed, by their offsets. Nearly all of its
// time goes into finding those few that are live with a new one.
#ifndef FSDPC_COMPILER_SCHEDULE_PLACED_BUFFERS_H
#define FSDPC_COMPILER_SCHEDULE_PLACED_BUFFERS_H

#include "compiler/schedule/packer.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fsdpc::schedule {

class PlacedBuffers {
public:
  struct Bytes {
    int64_t offset, top; // [offset, top)
  };

  /// Holds none yet; only buffers of `intervals` may be inserted. Most of them
  /// are short, so the positions are cut into windows that know the buffers in
  /// them.
  explicit PlacedBuffers(const std::vector<Interval> &intervals);

  void insert(int64_t offset, const Interval &interval);
  /// Returns the buffers that are live with `interval`, in the order of their
  /// offsets. They are valid until the next call.
  std::span<const Bytes> liveWith(const Interval &interval);

  size_t size() const { return all.bytes.size(); }
  /// Returns the number of buffers that begin at or below an offset.
  size_t countUpTo(int64_t offset) const { return all.placeFor(offset); }

private:
  /// Live ranges stand apart from bytes, so that they are compared many at a
  /// time.
  struct List {
    std::vector<Bytes> bytes;
    std::vector<int> begins, ends;

    size_t placeFor(int64_t offset) const;
    void insert(int64_t offset, const Interval &interval);
  };
  /// Windows of two widths at half a width's distance: what is shorter than
  /// half of one lies in one of them.
  int64_t windowOf(int position) const {
    return (int64_t(position) - first) / step;
  }
  const List &listFor(const Interval &interval) const;

  int first = 0;    // position
  int64_t step = 1; // half a window
  List all;
  std::vector<List> windows; // number k covers steps k and k + 1
  std::vector<uint8_t> marks;
  std::vector<Bytes> live;
};

} // namespace fsdpc::schedule

#endif // FSDPC_COMPILER_SCHEDULE_PLACED_BUFFERS_H
