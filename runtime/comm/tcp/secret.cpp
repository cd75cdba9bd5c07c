// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The folder is $XDG_RUNTIME_DIR, or one of the user's own in /tmp; either is
// used only if it belongs to the user and nobody else can enter it. All files
// are reached through the folder's descriptor, so that nobody can exchange the
// folder between the check and the use.
#include "runtime/comm/tcp/secret.h"
#include "runtime/support/concat.h"
#include "runtime/support/descriptor.h"
#include "runtime/support/system_error.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace fsdpc::runtime {

namespace {

// Returns true if the open file is of the type, belongs to this user, and
// grants nothing to anybody else.
bool isPrivate(int file, mode_t type) {
  struct stat state;
  return fstat(file, &state) == 0 && (state.st_mode & S_IFMT) == type &&
         state.st_uid == geteuid() && (state.st_mode & 077) == 0;
}

// The folders in which a secret may lie, in order. The one in /tmp comes last;
// JobKey::make creates it if it is missing.
std::vector<std::string> folders() {
  std::vector<std::string> paths;
  if (const char *path = getenv("XDG_RUNTIME_DIR"); path && *path == '/')
    paths.push_back(path);
  paths.push_back(concat("/tmp/fsdpc-", geteuid()));
  return paths;
}

// Opens a folder if it is private; returns -1 otherwise.
int openPrivateFolder(const std::string &path) {
  Descriptor folder(
      open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.file < 0 || !isPrivate(folder.file, S_IFDIR))
    return -1;
  return folder.release();
}

// Eight of the bytes tell files apart well enough.
std::string shortHexOf(const Bytes32 &bytes) {
  return hexOf(std::span(bytes).first(8));
}

// Returns the file's name, from what all ranks of the job know: readable up to
// the port, then a digest of everything.
std::string fileName(const LaunchEnvironment &environment) {
  std::string readable = environment.address.substr(0, 64);
  for (char &c : readable)
    if (!isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-')
      c = '_';
  std::string port = std::to_string(environment.port);
  // Separated by NUL, which none of them contains, so that different jobs never
  // give the same text.
  std::string all = environment.address + '\0' + port + '\0' + environment.job;
  return "fsdpc-secret-" + readable + "-" + port + "-" +
         shortHexOf(digestOf(all));
}

// The end of every message about a key that cannot be shared.
std::string remedy() {
  return "set FSDPC_SECRET to the same random text on every rank, for example "
         "with export FSDPC_SECRET=$(openssl rand -hex 32)";
}

std::string namesOf(const std::vector<std::string> &paths) {
  std::string names;
  for (const std::string &path : paths)
    names += (names.empty() ? "'" : " or '") + path + "'";
  return names;
}

// Writes the whole file under a name that nobody can know and renames it, so
// that no rank reads a part, and so that the file of a killed job is replaced.
bool writeSecret(int folder, const std::string &name, const Bytes32 &bytes) {
  std::string temporary = name + "." + shortHexOf(randomBytes());
  Descriptor file(openat(folder, temporary.c_str(),
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                         0600));
  if (file.file < 0)
    return false;
  if (write(file.file, bytes.data(), bytes.size()) == ssize_t(bytes.size()) &&
      renameat(folder, temporary.c_str(), folder, name.c_str()) == 0)
    return true;
  int why = errno;
  unlinkat(folder, temporary.c_str(), 0);
  errno = why;
  return false;
}

// Checks owner and mode of the opened file, not of its name. O_NONBLOCK, since
// a planted FIFO would block the rank.
bool readSecret(int folder, const std::string &name, Bytes32 &bytes) {
  Descriptor file(openat(folder, name.c_str(),
                         O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return file.file >= 0 && isPrivate(file.file, S_IFREG) &&
         read(file.file, bytes.data(), bytes.size()) == ssize_t(bytes.size());
}

} // namespace

// Uses the folder's descriptor: the path may lead elsewhere by now.
JobKey::~JobKey() {
  if (folder < 0)
    return;
  unlinkat(folder, name.c_str(), 0);
  close(folder);
}

// Uses the first folder in which the file can be written; findJobKey looks in
// the same folders in the same order.
Status JobKey::make(const LaunchEnvironment &environment) {
  if (!environment.secret.empty()) {
    bytes = digestOf(environment.secret);
    return {};
  }
  bytes = randomBytes();
  name = fileName(environment);
  // Its failure shows when the folder is opened.
  std::string own = folders().back();
  mkdir(own.c_str(), 0700); // may exist
  Error why = inputError("the folder must belong to you, with mode 0700");
  for (const std::string &path : folders()) {
    Descriptor candidate(openPrivateFolder(path));
    if (candidate.file < 0)
      continue;
    if (writeSecret(candidate.file, name, bytes)) {
      folder = candidate.release();
      return {};
    }
    why = systemError(errno);
  }
  return why.reworded("rank 0 cannot leave the job's secret for the other "
                      "ranks in " +
                      namesOf(folders()) + " (" + why.message + "); " +
                      remedy());
}

Result<Bytes32> findJobKey(const LaunchEnvironment &environment) {
  if (!environment.secret.empty())
    return digestOf(environment.secret);
  std::string name = fileName(environment);
  for (const std::string &path : folders()) {
    Descriptor folder(openPrivateFolder(path));
    Bytes32 bytes;
    if (folder.file >= 0 && readSecret(folder.file, name, bytes))
      return bytes;
  }
  return inputError(
      "the job's secret '" + name + "' is not in " + namesOf(folders()) +
      ", so rank 0 belongs to another machine, user or job; ranks "
      "that share no such folder need a secret: " +
      remedy());
}

} // namespace fsdpc::runtime
