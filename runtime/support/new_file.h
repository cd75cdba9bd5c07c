// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files that a run writes whole: weights, gradients, traces. Such a file
// appears under its name only when all of it is on disk. So a run that is
// killed, or a disk that is full, leaves the previous file as it was.
//
// Until then it has a temporary name in the same folder, or none. The name is
// random and created exclusively. So it can neither replace another file nor
// follow a link that someone has planted, and two runs never share one.
#pragma once

#include "runtime/support/status.h"

#include <cstdint>
#include <string>

namespace fsdpc::runtime {

/// The alignment that O_DIRECT needs: the largest block of a disk that is in
/// use.
constexpr uint64_t directAlignment = 4096;

class NewFile {
public:
  NewFile() = default;
  NewFile(const NewFile &) = delete;
  /// Removes the file unless it is complete.
  ~NewFile();

  /// Creates the temporary file. Fails if `path` names something that is not a
  /// regular file, or one that may not be written.
  Status open(const std::string &path);
  /// The same, but until `commit` the file has no name at all, where the file
  /// system allows that. So nothing of it is left if the process is killed, as
  /// a rank is when another one dies while all of them save.
  Status openUnnamed(const std::string &path);
  /// Writes all of the bytes at an offset. Calls may come in any order, but
  /// from one thread. A failure of `open` or of a write is kept: what follows
  /// does nothing and returns it. So a rank that others wait for may go on to
  /// the end, and look at `commit` alone.
  Status write(uint64_t offset, const void *data, uint64_t bytes);
  /// Makes later writes bypass the page cache (O_DIRECT), or use it again. That
  /// spares the processor a copy of everything and the system a cache that
  /// nobody reads. Memory, offsets and lengths must then be multiples of
  /// `directAlignment`. A file system that cannot do it goes on through its
  /// cache.
  void setDirect(bool wanted);
  /// Flushes the data to the disk before `commit`, which then takes no time for
  /// it.
  Status sync();
  /// Removes what was written; `commit` must not follow.
  void discard();
  /// The name under which another program may write the data instead; not for
  /// unnamed files.
  const std::string &temporaryPath() const { return temporary; }
  /// Flushes the data to the disk and gives the file its name. If only the name
  /// cannot be given, the file stays, and the error names it.
  Status commit();

private:
  Status create(const std::string &path, bool named);
  std::string path, temporary;
  int descriptor = -1;
  bool direct = false;
  Status failure;
};

/// Fails unless a NewFile could be made for `path`. Leaves nothing behind.
Status checkWritable(const std::string &path);

/// Returns the folder of a path, as a path that can be opened.
std::string folderOf(const std::string &path);

} // namespace fsdpc::runtime
