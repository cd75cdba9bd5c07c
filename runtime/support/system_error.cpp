// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one place that decides whose fault an errno value is.
#include "runtime/support/system_error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace fsdpc {

// What was named is wrong, and stays so until somebody corrects the name, the
// file or its permissions.
static constexpr int wrongNames[] = {
    ENOENT, EACCES,       EPERM,   EISDIR,        ENOTDIR,
    ELOOP,  ENAMETOOLONG, EEXIST,  EROFS,         ENXIO,
    ENODEV, ENOEXEC,      ETXTBSY, EADDRNOTAVAIL, EAFNOSUPPORT};

// GNU's strerror_r, which returns the text.
std::string systemText(int code) {
  char text[128];
  return strerror_r(code, text, sizeof text);
}

Error systemError(int code, const std::string &what) {
  std::string message =
      what.empty() ? systemText(code) : what + ": " + systemText(code);
  bool isWrong = std::find(std::begin(wrongNames), std::end(wrongNames),
                           code) != std::end(wrongNames);
  return isWrong ? inputError(message) : runError(message);
}

} // namespace fsdpc
