// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Creates, fills and renames files. A link at the path itself is replaced by
// the rename and never written through. A temporary file that a signal leaves
// behind begins with a dot and the file's name.
#include "runtime/support/output_file.h"
#include "runtime/support/concat.h"
#include "runtime/support/system_error.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace fsdpc {

OutputFile::OutputFile(OutputFile &&other) noexcept {
  *this = std::move(other);
}

// Swaps, so that `other` cleans up what this one held.
OutputFile &OutputFile::operator=(OutputFile &&other) noexcept {
  std::swap(path, other.path);
  std::swap(temporary, other.temporary);
  std::swap(file, other.file);
  return *this;
}

// Removes only the temporary file. After commit() its name is empty.
OutputFile::~OutputFile() {
  if (file >= 0)
    ::close(file);
  if (!temporary.empty())
    unlink(temporary.c_str());
}

Error OutputFile::failure(int code) const {
  return systemError(code, "cannot write '" + path + "'");
}

// Between the target's name and the random digits of a temporary name.
static constexpr char temporaryMark[] = ".tmp-";
static constexpr size_t temporaryDigits = 16;

// Returns a name next to `path`, or an empty string if there are no random
// numbers.
static std::string temporaryName(const std::string &path) {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != ssize_t(sizeof random))
    return "";
  char digits[temporaryDigits + 1];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(random));
  size_t slash = path.rfind('/');
  size_t begin = slash == std::string::npos ? 0 : slash + 1;
  // A name has at most 255 bytes.
  return path.substr(0, begin) + "." + path.substr(begin, 200) + temporaryMark +
         digits;
}

std::string temporaryTarget(const std::string &name) {
  size_t end = name.size() - std::min(name.size(), temporaryDigits);
  size_t mark = name.rfind(temporaryMark);
  if (name.empty() || name[0] != '.' || mark == std::string::npos ||
      mark + sizeof temporaryMark - 1 != end ||
      name.find_first_not_of("0123456789abcdef", end) != std::string::npos)
    return "";
  return name.substr(1, mark - 1);
}

// Calls `make` with names next to `path` until one is not taken, which goes to
// `temporary`. Returns what `make` returned, or -1. With 64 random bits a
// second attempt is hardly ever needed.
template <class Make>
static int makeBeside(const std::string &path, std::string &temporary,
                      const Make &make) {
  for (int attempt = 0; attempt < 16; ++attempt) {
    std::string name = temporaryName(path);
    if (name.empty())
      return -1;
    int made = make(name.c_str());
    if (made >= 0)
      temporary = name;
    // A taken name is worth another attempt; any other error stays the same.
    if (made >= 0 || errno != EEXIST)
      return made;
  }
  return -1;
}

int createBeside(const std::string &path, unsigned mode,
                 std::string &temporary) {
  return makeBeside(path, temporary, [&](const char *name) {
    return ::open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                  mode_t(mode));
  });
}

// Returns the name of an unnamed file in /proc, where a link finds it. The
// kernel would also take the descriptor itself, but only from a privileged
// process.
static std::string placeInProc(int file) {
  return concat("/proc/self/fd/", file);
}

int createUnnamed(const std::string &folder, unsigned mode) {
  int file =
      ::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, mode_t(mode));
  if (file < 0 || access(placeInProc(file).c_str(), F_OK) == 0)
    return file;
  ::close(file);
  return -1;
}

bool nameBeside(int file, const std::string &path, std::string &temporary) {
  std::string from = placeInProc(file);
  return makeBeside(path, temporary, [&](const char *name) {
           return linkat(AT_FDCWD, from.c_str(), AT_FDCWD, name,
                         AT_SYMLINK_FOLLOW);
         }) >= 0;
}

bool writeAll(int descriptor, const void *data, uint64_t bytes) {
  auto *from = static_cast<const char *>(data);
  while (bytes > 0) {
    // One call writes at most 2 GiB, and may write less than it is given.
    ssize_t wrote = ::write(descriptor, from, bytes);
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote <= 0)
      return false;
    from += wrote;
    bytes -= uint64_t(wrote);
  }
  return true;
}

bool writeAt(int descriptor, uint64_t offset, const void *data,
             uint64_t bytes) {
  auto *from = static_cast<const char *>(data);
  while (bytes > 0) {
    ssize_t wrote = pwrite(descriptor, from, bytes, off_t(offset));
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote <= 0)
      return false;
    from += wrote;
    offset += uint64_t(wrote);
    bytes -= uint64_t(wrote);
  }
  return true;
}

// Replacing a device such as /dev/null would destroy it for everybody, and so
// would replacing /dev/stdout. That is a link into /proc, which leads to a
// regular file if the output is redirected to one.
bool mayBeReplaced(const std::string &path) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode))
    return true;
  if (!S_ISLNK(status.st_mode))
    return false;
  char target[6];
  ssize_t length = readlink(path.c_str(), target, sizeof target);
  bool intoProc = length == sizeof target &&
                  std::memcmp(target, "/proc/", sizeof target) == 0;
  return !intoProc &&
         (stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode));
}

Result<OutputFile> OutputFile::create(const std::string &path, unsigned mode) {
  OutputFile out;
  out.path = path;
  if (!mayBeReplaced(path))
    return inputError("cannot write '" + path +
                      "': it exists and is not a regular file");
  out.file = createBeside(path, mode, out.temporary);
  if (out.file < 0)
    return out.failure(errno);
  return out;
}

Status OutputFile::write(const void *data, size_t bytes) {
  if (!writeAll(file, data, bytes))
    return failure(errno);
  return {};
}

Status OutputFile::commit() {
  // A network file system reports a full disk only here. The descriptor is
  // given up even if close() fails, as Linux does.
  int closed = ::close(std::exchange(file, -1));
  if (closed != 0)
    return failure(errno);
  if (std::rename(temporary.c_str(), path.c_str()) != 0)
    return failure(errno);
  // From here on the destructor must not remove the file.
  temporary.clear();
  return {};
}

Status writeWhole(const std::string &path, const void *data, size_t bytes,
                  unsigned mode) {
  Result<OutputFile> file = OutputFile::create(path, mode);
  if (!file)
    return file.error();
  FSDPC_TRY(file->write(data, bytes));
  return file->commit();
}

} // namespace fsdpc
