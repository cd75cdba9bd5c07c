// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See cache_folder.h. The time of a file's last change is that of its last use.
#include "runtime/support/cache_folder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace fsdpc {
namespace {

namespace fs = std::filesystem;

// Whoever may rename a folder above can put another one in its place. A group
// is often the user's own.
bool areSafe(const fs::path &folder) {
  std::error_code error;
  fs::path whole = fs::canonical(folder, error);
  for (fs::path at = whole.parent_path();; at = at.parent_path()) {
    struct stat state;
    if (error || stat(at.c_str(), &state) != 0)
      return false;
    bool isShared = (state.st_mode & S_IWOTH) && !(state.st_mode & S_ISVTX);
    if (isShared || (state.st_uid != geteuid() && state.st_uid != 0))
      return false;
    if (at == at.root_path())
      return true;
  }
}

} // namespace

Result<std::string> cacheFolder(const std::string &chosen,
                                const std::string &name) {
  const char *variable = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  std::error_code error;
  fs::path folder;
  if (!chosen.empty())
    folder = fs::absolute(chosen, error);
  else if (variable && *variable == '/')
    folder = fs::path(variable) / "fsdpc";
  else if (home && *home == '/')
    folder = fs::path(home) / ".cache" / "fsdpc";
  else
    return inputError("neither XDG_CACHE_HOME nor HOME names a folder");
  folder /= name;
  mode_t before = umask(077);
  fs::create_directories(folder, error);
  umask(before);
  struct stat state;
  if (error || stat(folder.c_str(), &state) != 0 ||
      access(folder.c_str(), W_OK | X_OK) != 0)
    return inputError("'" + folder.string() + "' cannot be written");
  if (state.st_uid != geteuid() || (state.st_mode & 022) != 0)
    return inputError("others can write to '" + folder.string() + "'");
  if (!areSafe(folder))
    return inputError("others can replace '" + folder.string() + "'");
  return folder.string();
}

void trimCache(const std::string &folder, CacheLimits limits) {
  struct Kept {
    fs::path path;
    fs::file_time_type used;
    uint64_t bytes;
  };
  std::error_code error;
  std::vector<Kept> files;
  for (const auto &each : fs::directory_iterator(folder, error)) {
    if (!each.is_regular_file(error))
      continue;
    Kept file{each.path(), each.last_write_time(error), each.file_size(error)};
    if (!error)
      files.push_back(std::move(file));
  }
  std::ranges::sort(files, std::ranges::greater(), &Kept::used);
  auto oldest = fs::file_time_type::clock::now() - limits.unused;
  uint64_t total = 0;
  for (const Kept &file : files) {
    total += file.bytes;
    if (file.used < oldest || total > limits.bytes)
      fs::remove(file.path, error);
  }
}

void noteUse(const std::string &path) {
  std::error_code error;
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);
}

} // namespace fsdpc
