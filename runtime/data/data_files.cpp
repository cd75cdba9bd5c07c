// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/data_files.h"

#include <glob.h>
#include <unistd.h>

#include <algorithm>

namespace fsdpc::runtime {
namespace {

// Adds the files of one entry: a name, or the matches of a pattern.
Status addMatches(const std::string &pattern, std::vector<std::string> &files) {
  // A file may have such characters in its name.
  if (pattern.find_first_of("*?[") == std::string::npos ||
      access(pattern.c_str(), F_OK) == 0) {
    files.push_back(pattern);
    return {};
  }
  glob_t found = {};
  // Sorted in the program's locale, which is "C": by bytes on every machine.
  int code = glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  for (size_t i = 0; code == 0 && i < found.gl_pathc; ++i)
    files.push_back(found.gl_pathv[i]);
  globfree(&found);
  if (code == GLOB_NOMATCH)
    return inputError("'" + pattern + "' matches no file");
  if (code != 0)
    return inputError("cannot list the files of '" + pattern +
                      "': a folder cannot be read");
  return {};
}

} // namespace

// A name that exists as it stands wins over any reading of its commas and
// stars.
Result<std::vector<std::vector<std::string>>>
dataFiles(const std::string &text) {
  std::vector<std::vector<std::string>> files;
  if (access(text.c_str(), F_OK) == 0) {
    files.push_back({text});
    return files;
  }
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin)
      return commandLineError("'" + text +
                              "' has an empty name between its commas");
    files.emplace_back();
    FSDPC_TRY(addMatches(text.substr(begin, end - begin), files.back()));
    begin = end + 1;
  }
  return files;
}

} // namespace fsdpc::runtime
