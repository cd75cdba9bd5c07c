// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compares files by device and inode, since a path has many spellings.
#include "runtime/cli/output_paths.h"
#include "runtime/support/new_file.h"

#include <climits>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>

namespace fsdpc::runtime {
namespace {

// The file to which a path leads. If it does not exist: its folder and name.
struct Place {
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;
  bool known = false; // false: not even the folder exists
  // Places that are not known equal nothing.
  bool operator==(const Place &other) const {
    return known && other.known &&
           std::tie(device, inode, name) ==
               std::tie(other.device, other.inode, other.name);
  }
};

// Follows a link that leads to no file yet, so that its target can be compared.
// Returns an empty string if `path` is not a link.
std::string targetOf(const std::string &path) {
  char text[PATH_MAX];
  ssize_t length = readlink(path.c_str(), text, sizeof text);
  if (length <= 0)
    return "";
  std::string target(text, size_t(length));
  // A relative target counts from the folder of the link.
  if (target[0] == '/' || path.find('/') == std::string::npos)
    return target;
  return folderOf(path) + target;
}

// stat follows links to files that exist. A link to a file that does not is
// followed by hand, since writing would create its target. Returns an unknown
// place if not even the folder exists; opening the file will report that.
Place placeOf(std::string path) {
  struct stat status;
  Place place;
  // The kernel follows at most 40 links too.
  for (int links = 0; links < 40; ++links) {
    if (stat(path.c_str(), &status) == 0) {
      place.known = !S_ISCHR(status.st_mode); // /dev/null may be named twice
      place.device = status.st_dev;
      place.inode = status.st_ino;
      return place;
    }
    std::string target = targetOf(path);
    if (target.empty())
      break;
    path = target;
  }
  if (stat(folderOf(path).c_str(), &status) != 0)
    return place;
  place.known = true;
  place.device = status.st_dev;
  place.inode = status.st_ino;
  place.name = path.substr(path.rfind('/') + 1); // npos + 1 is 0
  return place;
}

Error oneFile(const RunFile &a, const RunFile &b) {
  if (a.path == b.path)
    return commandLineError(a.use + " and " + b.use + " are both '" + a.path +
                            "'; give each its own file");
  return commandLineError(a.use + " '" + a.path + "' and " + b.use + " '" +
                          b.path +
                          "' are the same file; give each its own file");
}

} // namespace

// Compares every pair; a run has few files.
Status checkDistinct(const std::vector<RunFile> &outputs,
                     const std::vector<RunFile> &inputs) {
  std::vector<Place> places;
  for (const RunFile &output : outputs) {
    Place place = placeOf(output.path);
    for (size_t i = 0; i < places.size(); ++i)
      if (places[i] == place)
        return oneFile(outputs[i], output);
    for (const RunFile &input : inputs)
      if (placeOf(input.path) == place)
        return oneFile(output, input);
    places.push_back(place);
  }
  return {};
}

} // namespace fsdpc::runtime
