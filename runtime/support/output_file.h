// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A file that appears whole or not at all. It is written under a random name in
// its folder and renamed at the end, so that a failure leaves the old file in
// place and nothing else behind. The random name is created and never opened,
// so neither a file of the user nor a planted link can be in its place.
#pragma once

#include "runtime/support/status.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace fsdpc {

/// Owns the descriptor and the temporary file. Use one from a single thread:
/// create, write, commit. Without a commit nothing is left behind.
class OutputFile {
public:
  OutputFile(OutputFile &&other) noexcept;
  OutputFile &operator=(OutputFile &&other) noexcept;
  /// Removes what was written, unless it was committed.
  ~OutputFile();

  /// `mode` are the permissions of the new file, less the umask. Fails if there
  /// is something at the path that may not be replaced.
  static Result<OutputFile> create(const std::string &path,
                                   unsigned mode = 0666);
  /// For writers that keep their own buffer; the file stays the owner.
  int descriptor() const { return file; }
  /// Appends `bytes` bytes. After an error the file must not be committed.
  Status write(const void *data, size_t bytes);
  /// Gives the file its name. Call it once, after the last write; nothing may
  /// be written afterwards.
  Status commit();

private:
  OutputFile() = default;
  Error failure(int code) const;

  std::string path, temporary;
  int file = -1;
};

/// Returns true if a rename may replace what is at the path: nothing, a regular
/// file, or a link to either. A link is replaced itself, not what it leads to.
/// Links into /proc, such as /dev/stdout, may not be replaced.
bool mayBeReplaced(const std::string &path);

/// Creates a file in the folder of `path`, under a random name that goes to
/// `temporary`, for somebody who will rename it to `path`. The name is created
/// and never opened. Returns a descriptor for writing, or -1 with errno set.
int createBeside(const std::string &path, unsigned mode,
                 std::string &temporary);

/// Returns the name of the file for which a temporary file was made by one of
/// these functions, or an empty string if it has no such name. Both are names
/// in a folder, without a slash. Of a target's name it returns the first 200
/// bytes.
std::string temporaryTarget(const std::string &name);

/// Creates a file without a name, which is gone if the process ends before
/// `nameBeside`, however it ends. Returns a descriptor for writing, or -1 where
/// the folder's file system has no such files or /proc is missing.
int createUnnamed(const std::string &folder, unsigned mode);
/// Gives an unnamed file a random name in the folder of `path`, for somebody
/// who will rename it to `path`; the name goes to `temporary`. Returns false
/// with errno set on failure.
bool nameBeside(int file, const std::string &path, std::string &temporary);

/// Writes `bytes` to a descriptor, at its position. Returns false and sets
/// errno on failure, when part of them may be written.
bool writeAll(int descriptor, const void *data, uint64_t bytes);
/// The same from `offset` on, whatever the position.
bool writeAt(int descriptor, uint64_t offset, const void *data, uint64_t bytes);

/// Writes a whole file: it appears with all of its bytes, or the one that was
/// there stays. `mode` is cut by the umask.
Status writeWhole(const std::string &path, const void *data, size_t bytes,
                  unsigned mode = 0666);

} // namespace fsdpc
