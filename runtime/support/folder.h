// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A folder that is open. Names are looked up in this very folder, wherever its
// path leads by now, and a link in it is never followed: nothing outside of the
// folder is read, renamed or removed by way of one.
#pragma once

#include "runtime/support/file.h"
#include "runtime/support/status.h"

#include <string>
#include <vector>

namespace fsdpc::runtime {

/// What a name in a folder stands for.
enum class Entry { none, file, folder, link, other };

/// Owns its descriptor. The names are those of entries, without a slash.
class Folder {
public:
  Folder() = default; ///< not open
  Folder(Folder &&other) noexcept;
  Folder &operator=(Folder &&other) noexcept;
  ~Folder();

  /// Opens a folder that the user has named; its path may lead through links.
  static Result<Folder> open(const std::string &path);
  /// Open a folder, or a regular file for reading, in this folder. Fail if the
  /// name is a link.
  Result<Folder> openFolder(const std::string &name) const;
  Result<File> openFile(const std::string &name) const;

  /// Returns the path of an entry, for messages.
  std::string pathOf(const std::string &name) const {
    return path + (path.back() == '/' ? "" : "/") + name;
  }
  bool isOpen() const { return file >= 0; }
  int descriptor() const { return file; }
  /// Returns the names of all entries, without "." and "..".
  Result<std::vector<std::string>> names() const;
  Result<Entry> kind(const std::string &name) const;

  Status makeFolder(const std::string &name) const;
  /// Replace a file, a link or an empty folder that has the new name, here or
  /// in another folder of the same file system.
  Status rename(const std::string &from, const std::string &to) const;
  Status move(const std::string &from, const Folder &other,
              const std::string &to) const;
  /// Removes a file or a link; what the link leads to stays.
  Status removeFile(const std::string &name) const;
  Status removeEmptyFolder(const std::string &name) const;
  /// Removes a file, a link, or a folder with all that is in it.
  Status removeTree(const std::string &name) const;
  /// Puts on the disk which names the folder has. Not every file system can,
  /// and then it succeeds.
  Status sync() const;

private:
  int openEntry(const std::string &name, int flags) const;
  std::string path;
  int file = -1;
};

/// The error about a name that turned out to be a link.
Error linkError(const std::string &path);

} // namespace fsdpc::runtime
