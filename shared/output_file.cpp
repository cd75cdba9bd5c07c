// Creates, fills and renames files. A link at the path itself is replaced by
// the rename and never followed. A temporary file that a signal leaves behind
// begins with a dot and the file's name.
#include "shared/output_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <random>
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
  return {"cannot write '" + path + "': " + std::strerror(code)};
}

// 36^12 names, about 62 bits, so that nobody can guess one and plant a file.
static std::string randomSuffix() {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device source;
  std::uniform_int_distribution<size_t> letter(0, sizeof(letters) - 2);
  std::string suffix;
  for (int i = 0; i < 12; ++i)
    suffix += letters[letter(source)];
  return suffix;
}

Result<OutputFile> OutputFile::create(const std::string &path, unsigned mode) {
  OutputFile out;
  out.path = path;
  // lstat, because a link is replaced by the rename like a regular file.
  // Replacing a device such as /dev/null would destroy it for everybody.
  struct stat status;
  if (lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) &&
      !S_ISLNK(status.st_mode))
    return Error{"cannot write '" + path +
                 "': it exists and is not a regular file"};
  // Keeps the name short enough for the folder's file system.
  size_t slash = path.rfind('/');
  std::string folder =
      slash == std::string::npos ? "" : path.substr(0, slash + 1);
  std::string base = path.substr(folder.size(), 200);
  for (int attempt = 0; attempt < 16; ++attempt) {
    std::string name = folder + "." + base + "." + randomSuffix();
    out.file = ::open(name.c_str(),
                      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                      mode_t(mode));
    if (out.file >= 0) {
      out.temporary = name;
      return out;
    }
    // A taken name is worth another attempt; any other error stays the same.
    if (errno != EEXIST)
      break;
  }
  return out.failure(errno);
}

Status OutputFile::write(const void *data, size_t bytes) {
  const char *from = static_cast<const char *>(data);
  while (bytes > 0) {
    // One call writes at most 2 GiB, and may write less than it is given.
    ssize_t done = ::write(file, from, std::min<size_t>(bytes, 1 << 30));
    if (done < 0 && errno == EINTR)
      continue;
    if (done < 0)
      return failure(errno);
    from += done;
    bytes -= size_t(done);
  }
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
