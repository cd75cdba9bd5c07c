// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads files by position, and again where that may help. Every range is
// checked against the size of the file, because ranges come from headers that
// may be wrong. Only regular files are opened, as others have no positions.
#include "runtime/support/file.h"
#include "runtime/support/concat.h"
#include "runtime/support/diagnostics.h"
#include "runtime/support/input_file.h"
#include "runtime/support/system_error.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fsdpc::runtime {

namespace {

// Milliseconds before each further try of a read.
constexpr int waits[] = {100, 400, 1600};

// Returns true for errors after which the same read may succeed: a disk or a
// server that answers late, or a file handle that the server has renewed.
bool mayPass(int code) {
  return code == EIO || code == ESTALE || code == EAGAIN;
}

// A bad network would fill the screen, so only the first error is printed.
void warnOnce(const std::string &message) {
  static std::atomic_flag warned = ATOMIC_FLAG_INIT;
  if (!warned.test_and_set())
    printWarning(message +
                 "; trying again, and saying so only for this first error");
}

} // namespace

// Takes errno first: the allocations below may change it.
Error fileError(const std::string &path, const char *what) {
  int code = errno;
  return systemError(code, std::string("cannot ") + what + " '" + path + "'");
}

File::File(File &&other) noexcept { *this = std::move(other); }

// Swaps, so that `other` closes what this one held.
File &File::operator=(File &&other) noexcept {
  std::swap(name, other.name);
  std::swap(descriptor, other.descriptor);
  std::swap(hasPath, other.hasPath);
  std::swap(start, other.start);
  std::swap(bytes, other.bytes);
  return *this;
}

File::~File() {
  if (descriptor >= 0)
    ::close(descriptor);
}

Result<File> File::open(const std::string &path) {
  File file;
  file.name = path;
  // Without O_NONBLOCK, opening a FIFO waits for a writer.
  file.descriptor =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat status;
  if (file.descriptor < 0 || fstat(file.descriptor, &status) != 0)
    return fileError(path, "open");
  if (!S_ISREG(status.st_mode))
    return inputError("cannot open '" + path + "': it is " +
                      kindOf(status.st_mode) +
                      ", but data is read by position, from a regular file");
  file.bytes = uint64_t(status.st_size);
  return file;
}

// A file without a path cannot be opened again after ESTALE.
File File::adopt(const std::string &path, int descriptor, uint64_t size) {
  File file;
  file.name = path;
  file.descriptor = descriptor;
  file.hasPath = false;
  file.bytes = size;
  return file;
}

Status File::cut(uint64_t begin, uint64_t size) {
  if (begin > bytes || size > bytes - begin)
    return inputError(concat("'", name, "' has only ", bytes,
                             " bytes, but one of its parts begins at byte ",
                             begin, " and has ", size));
  start += begin;
  bytes = size;
  return {};
}

// An error that passes costs the training at most two seconds; one that does
// not is the caller's.
Status File::read(uint64_t offset, void *to, uint64_t count) const {
  // Compared this way round, since offset + count may wrap around.
  if (offset > bytes || count > bytes - offset)
    return inputError(concat("'", name, "' has only ", bytes,
                             " bytes, but bytes ", offset, " to ", offset,
                             " + ", count, " are needed"));
  Status done = readAt(descriptor, name, start + offset, to, count);
  int code = done ? 0 : errno;
  for (int milliseconds : waits) {
    if (!mayPass(code))
      return done;
    warnOnce(done.error().message);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    if (code == ESTALE && hasPath)
      reopen();
    done = readAt(descriptor, name, start + offset, to, count);
    code = done ? 0 : errno;
  }
  if (!done)
    return done.error().reworded(concat(done.error().message, " (tried ",
                                        1 + std::size(waits), " times)"));
  return done;
}

// A stale handle stays so; the path leads to the same file by a new one. The
// number of the descriptor stays, for other threads are reading.
void File::reopen() const {
  int fresh = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat now;
  if (fresh >= 0 && fstat(fresh, &now) == 0 && S_ISREG(now.st_mode) &&
      uint64_t(now.st_size) >= start + bytes)
    dup3(fresh, descriptor, O_CLOEXEC);
  if (fresh >= 0)
    ::close(fresh);
}

std::string temporaryFolder() {
  const char *folder = std::getenv("TMPDIR");
  return folder && *folder ? folder : "/tmp";
}

Result<int> makeUnnamed(const std::string &path) {
  std::string name = path + "-XXXXXX";
  int descriptor = mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0)
    return fileError(path, "create");
  ::unlink(name.c_str());
  return descriptor;
}

// Each piece's hash is the seed of the next, so their order counts. The number
// of bytes is the first seed.
Result<uint64_t> hashOf(const File &file, uint64_t offset, uint64_t bytes,
                        uint64_t mostPieces) {
  constexpr uint64_t pieceBytes = 64 << 10;
  uint64_t pieces = (bytes + pieceBytes - 1) / pieceBytes;
  uint64_t taken = std::min(pieces, mostPieces);
  std::vector<char> piece(pieceBytes);
  uint64_t hash = bytes;
  for (uint64_t i = 0; i < taken; ++i) {
    // The last piece of all is the last one taken.
    uint64_t at = taken == pieces ? i : i * (pieces - 1) / (taken - 1);
    uint64_t begin = at * pieceBytes;
    uint64_t length = std::min(pieceBytes, bytes - begin);
    FSDPC_TRY(file.read(offset + begin, piece.data(), length));
    hash = XXH64(piece.data(), length, hash);
  }
  return hash;
}

} // namespace fsdpc::runtime
