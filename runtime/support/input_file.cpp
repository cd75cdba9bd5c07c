// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Opens files with openat2 where the kernel has it: it resolves a whole path
// below a folder and refuses links on the way, in one step that nobody can
// interfere with. Older kernels open part by part, each with O_NOFOLLOW.
#include "runtime/support/input_file.h"
#include "runtime/support/concat.h"
#include "runtime/support/system_error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#if __has_include(<linux/openat2.h>)
#include <linux/openat2.h>
#endif

namespace fsdpc {

// A pipe without a writer would make open() wait; O_NONBLOCK has no effect on
// regular files.
static constexpr int openFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

// The error of a file that exists but may not be used.
static Error refused(const std::string &name, const std::string &why) {
  return inputError("'" + name + "' " + why);
}

// Reads errno, so it must follow the failed call at once.
static Error notOpened(const std::string &name) {
  return systemError(errno, "'" + name + "' cannot be opened");
}

std::optional<FileIdentity> identityOf(const std::string &path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0)
    return std::nullopt;
  return FileIdentity(status.st_dev, status.st_ino);
}

InputFile::InputFile(InputFile &&other) noexcept { *this = std::move(other); }

InputFile &InputFile::operator=(InputFile &&other) noexcept {
  std::swap(name, other.name);
  std::swap(descriptor, other.descriptor);
  std::swap(bytes, other.bytes);
  std::swap(links, other.links);
  std::swap(id, other.id);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor >= 0)
    ::close(descriptor);
}

const char *kindOf(unsigned mode) {
  return S_ISDIR(mode)                    ? "a folder"
         : S_ISFIFO(mode)                 ? "a FIFO or pipe"
         : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
         : S_ISSOCK(mode)                 ? "a socket"
                                          : "of an unknown kind";
}

static std::string notRegular(unsigned mode) {
  return std::string("is ") + kindOf(mode) + ", not a regular file";
}

// Fills in what is known of an open file. It looks at the descriptor, not at
// the path, so the file that was checked is the one that is read.
Result<InputFile> InputFile::check(InputFile file) {
  struct stat status;
  if (file.descriptor < 0 || fstat(file.descriptor, &status) != 0)
    return notOpened(file.name);
  if (!S_ISREG(status.st_mode))
    return refused(file.name, notRegular(status.st_mode));
  file.bytes = uint64_t(status.st_size);
  file.links = uint64_t(status.st_nlink);
  file.id = {status.st_dev, status.st_ino};
  return file;
}

Result<InputFile> InputFile::open(const std::string &path) {
  InputFile file;
  file.name = path;
  file.descriptor = ::open(path.c_str(), openFlags);
  if (file.descriptor < 0)
    return systemError(errno, "cannot read '" + path + "'");
  return check(std::move(file));
}

// Opens `parts` one after another below the folder, without following links.
static int openParts(int folder, const std::vector<std::string> &parts) {
  int at = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (size_t i = 0; i < parts.size() && at >= 0; ++i) {
    bool isLast = i + 1 == parts.size();
    int next = openat(at, parts[i].c_str(),
                      openFlags | O_NOFOLLOW | (isLast ? 0 : O_DIRECTORY));
    int code = errno;
    ::close(at);
    errno = code;
    at = next;
  }
  return at;
}

// Returns a descriptor, or -1 with errno set: ELOOP for a link, EXDEV for a
// path that leads out of the folder.
static int openWithoutLinks(int folder, const std::string &relative,
                            const std::vector<std::string> &parts) {
#ifdef RESOLVE_BENEATH
  struct open_how how = {};
  how.flags = openFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  long found =
      syscall(SYS_openat2, folder, relative.c_str(), &how, sizeof(how));
  // Sandboxes that do not know openat2 answer EPERM instead of ENOSYS.
  if (found >= 0 || (errno != ENOSYS && errno != EPERM))
    return int(found);
#else
  (void)relative;
#endif
  return openParts(folder, parts);
}

Result<InputFile> InputFile::openBelow(const std::string &folder,
                                       const std::string &relative) {
  // Splits at '/'. Empty parts and "." are dropped, so "a//./b" is "a/b".
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= relative.size();) {
    size_t end = std::min(relative.find('/', begin), relative.size());
    std::string part = relative.substr(begin, end - begin);
    if (!part.empty() && part != ".")
      parts.push_back(part);
    begin = end + 1;
  }
  // A NUL byte would end the path early in the kernel: another file than the
  // one whose name was checked would be opened.
  if (parts.empty() || relative[0] == '/' ||
      relative.find('\0') != std::string::npos ||
      std::find(parts.begin(), parts.end(), "..") != parts.end())
    return refused(relative, "is outside the model's folder; use a relative "
                             "path without '..'");
  int below = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (below < 0)
    return notOpened(folder);
  InputFile file;
  file.name = relative;
  file.descriptor = openWithoutLinks(below, relative, parts);
  int code = errno;
  ::close(below);
  errno = code;
  if (file.descriptor < 0 && (code == ELOOP || code == EXDEV))
    return refused(relative, "is reached through a symbolic link, which may "
                             "lead outside the model's folder; put the file "
                             "itself there");
  // A hard link is not visible in the path: the link count is the only sign
  // that the file may have another name elsewhere.
  Result<InputFile> opened = check(std::move(file));
  if (opened && opened->links > 1)
    return refused(relative, concat("has ", opened->links,
                                    " hard links, so it may belong to another "
                                    "folder; put a copy of it in its place"));
  return opened;
}

Status readAt(int descriptor, const std::string &name, uint64_t offset,
              void *to, uint64_t count) {
  auto *out = static_cast<char *>(to);
  while (count > 0) {
    // One call reads at most 2 GiB.
    size_t piece = size_t(std::min<uint64_t>(count, 1 << 30));
    ssize_t got = pread(descriptor, out, piece, off_t(offset));
    if (got < 0 && errno == EINTR)
      continue;
    // The range was inside the file when it was opened.
    if (got <= 0) {
      int code = got < 0 ? errno : 0;
      std::string byte = std::to_string(offset);
      Error error =
          got < 0
              ? systemError(code, "cannot read '" + name + "' at byte " + byte)
              : inputError("'" + name +
                           "' was truncated while it was being read: it "
                           "ends at or before byte " +
                           byte);
      errno = code;
      return error;
    }
    out += got;
    offset += uint64_t(got);
    count -= uint64_t(got);
  }
  return {};
}

Status InputFile::read(uint64_t offset, void *to, uint64_t count) const {
  return readAt(descriptor, name, offset, to, count);
}

// Returns "" or what is wrong with a size. Tested before memory is allocated.
static std::string tooLarge(uint64_t bytes, uint64_t mostBytes) {
  return bytes <= mostBytes
             ? ""
             : concat("has ", bytes, " bytes, and is read up to ", mostBytes);
}

Result<std::string> InputFile::readAll(uint64_t mostBytes) const {
  if (std::string fault = tooLarge(bytes, mostBytes); !fault.empty())
    return refused(name, fault);
  std::string content(bytes, '\0');
  FSDPC_TRY(read(0, content.data(), bytes));
  struct stat status;
  if (fstat(descriptor, &status) != 0 || uint64_t(status.st_size) != bytes)
    return inputError("'" + name + "' has changed while it was being read");
  return content;
}

// `check` would name the file in its errors.
Result<std::string> readText(const std::string &path, uint64_t mostBytes) {
  InputFile file;
  file.name = path;
  file.descriptor = ::open(path.c_str(), openFlags);
  struct stat status;
  if (file.descriptor < 0 || fstat(file.descriptor, &status) != 0)
    return systemError(errno);
  if (!S_ISREG(status.st_mode))
    return inputError("it " + notRegular(status.st_mode));
  file.bytes = uint64_t(status.st_size);
  if (std::string fault = tooLarge(file.bytes, mostBytes); !fault.empty())
    return inputError("it " + fault);
  return file.readAll(mostBytes);
}

} // namespace fsdpc
