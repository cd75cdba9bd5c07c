// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A file opened for reading, read by position.
//
// Files are read, not mapped. The kernel counts the pages of a mapping as
// memory of the process, so a large data set would grow the resident set past
// the plan. And if a mapped file shrinks, its reader gets a signal instead of
// an error message.
#pragma once

#include "runtime/support/status.h"

#include <cstdint>
#include <string>

namespace fsdpc::runtime {

/// Owns its descriptor. Reads from several threads at once are safe.
class File {
public:
  File() = default;
  File(File &&other) noexcept;
  File &operator=(File &&other) noexcept;
  ~File();

  /// Fails at once for what is not a regular file, such as a FIFO without a
  /// writer.
  static Result<File> open(const std::string &path);
  /// Takes a descriptor that is open for reading, of a file of `size` bytes
  /// that is being written. Errors call it `path`.
  static File adopt(const std::string &path, int descriptor, uint64_t size);
  const std::string &path() const { return name; }
  uint64_t size() const { return bytes; } ///< when it was opened
  /// Reads exactly `count` bytes from `offset`. Fails if the file does not hold
  /// all of them. Tries again, for about two seconds, after an error that may
  /// pass, as those of a network file system do. The first such error of the
  /// process is a warning.
  Status read(uint64_t offset, void *to, uint64_t count) const;

  /// Makes `size` bytes from `begin` on all that is read. Fails if the file
  /// does not hold them.
  Status cut(uint64_t begin, uint64_t size);

private:
  void reopen() const;

  std::string name;
  int descriptor = -1;
  bool hasPath = true; ///< `name` leads to it
  uint64_t start = 0;  ///< of what is read
  uint64_t bytes = 0;
};

/// Returns a hash of bytes [offset, offset + bytes). If there are more than
/// `mostPieces` pieces of 64 KiB, it takes a sample of so many, at least two,
/// evenly spread.
Result<uint64_t> hashOf(const File &file, uint64_t offset, uint64_t bytes,
                        uint64_t mostPieces = 256);

/// Returns $TMPDIR, or /tmp.
std::string temporaryFolder();
/// Returns the descriptor of a new file that has no name, open for reading and
/// writing. The kernel frees it with the last descriptor, also if the program
/// crashes. Until then it lies beside `path`, whose name it has in messages.
Result<int> makeUnnamed(const std::string &path);

/// Returns the error of errno (runtime/support/system_error.h): "cannot WHAT
/// 'PATH'".
Error fileError(const std::string &path, const char *what);

} // namespace fsdpc::runtime
