// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A regular file that someone else may own, opened for reading by position.
//
// Checks the very file that it reads: the kind of the file, its size and its
// links are asked of the descriptor that the bytes come from. Files are read
// and not mapped, because a mapped file that shrinks ends its reader by a
// signal.
#pragma once

#include "runtime/support/status.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace fsdpc {

/// Device and inode. Two paths with the same identity are the same file.
using FileIdentity = std::pair<uint64_t, uint64_t>;

/// Returns nullopt if the path does not exist. Links are followed.
std::optional<FileIdentity> identityOf(const std::string &path);

/// Returns what a file is that is not a regular one, from its st_mode: "a
/// folder", "a FIFO or pipe".
const char *kindOf(unsigned mode);

/// Reads exactly `count` bytes from `offset` of an open file, which held them
/// when it was opened. `name` is what the error calls the file. Leaves the code
/// of a read that failed in errno, and 0 if the file has become shorter.
Status readAt(int descriptor, const std::string &name, uint64_t offset,
              void *to, uint64_t count);

class InputFile {
public:
  InputFile(InputFile &&other) noexcept;
  InputFile &operator=(InputFile &&other) noexcept;
  ~InputFile();

  /// Opens a path that the user has named. Fails at once, and never waits, if
  /// it is a folder, a device, a pipe or a socket.
  static Result<InputFile> open(const std::string &path);
  /// Opens a path that a file has named, below a folder. Refuses an absolute
  /// path, one with '..', symbolic links in any of its parts, and a file with
  /// further hard links: each could lead to a file outside of the folder.
  static Result<InputFile> openBelow(const std::string &folder,
                                     const std::string &relative);

  uint64_t size() const { return bytes; } ///< when it was opened
  FileIdentity identity() const { return id; }
  /// Reads exactly `count` bytes from `offset`, or fails.
  Status read(uint64_t offset, void *to, uint64_t count) const;
  /// Reads the whole file. Fails if it is larger than `mostBytes`, or if its
  /// size has changed since it was opened.
  Result<std::string> readAll(uint64_t mostBytes) const;

private:
  InputFile() = default;
  static Result<InputFile> check(InputFile file);
  friend Result<std::string> readText(const std::string &, uint64_t);

  std::string name;
  int descriptor = -1;
  uint64_t bytes = 0, links = 0;
  FileIdentity id;
};

/// Returns what stands in a file that the user has named, of at most
/// `mostBytes` bytes. Never waits, as InputFile. The error is only the reason,
/// as "No such file or directory" or "it is a device, not a regular file"; the
/// caller names the file.
Result<std::string> readText(const std::string &path, uint64_t mostBytes);

} // namespace fsdpc
