// A folder that appears whole or not at all: filled under a name with a dot
// beside its own, and renamed at the end.
#pragma once

#include "shared/status.h"

#include <string>

namespace fsdpc::ckpt {

class NewFolder {
public:
  NewFolder() = default;
  NewFolder(const NewFolder &) = delete;
  // Removes the files that were written, unless they were committed.
  ~NewFolder();
  // Makes the temporary folder. Fails if `path` exists, unless it is an empty
  // folder.
  Status open(const std::string &path);
  const std::string &temporary() const { return name; }
  Status commit();

private:
  std::string path, name;
};

} // namespace fsdpc::ckpt
