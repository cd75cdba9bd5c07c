// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes a plot as a PNG. rsvg-convert (of librsvg) draws the SVG, since fonts
// and a rasteriser would take a library in every build. It reads the SVG from
// memory and writes under a temporary name, so the file of before stays if it
// fails.
#include "runtime/support/new_file.h"
#include "runtime/support/output_file.h"
#include "runtime/support/programs.h"
#include "tools/top/top.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace fsdpc::top {
namespace {

// Runs rsvg-convert with `descriptor` as its stdin. It prints its own errors.
Status runConverter(int descriptor, const std::string &to) {
  Result<int> code =
      runAndWait({"rsvg-convert", "--format=png", "--output", to}, descriptor);
  if (!code)
    return code.error().reworded(code.error().message +
                                 "; install it (Debian: librsvg2-bin), or name "
                                 "a file that ends in .svg");
  if (*code == 0)
    return {};
  return runError("'rsvg-convert' could not draw the plot");
}

} // namespace

Status writePng(const std::string &path, const std::string &svg) {
  runtime::NewFile file;
  FSDPC_TRY(file.open(path));
  int image = memfd_create("plot", MFD_CLOEXEC);
  bool held = image >= 0 && writeAll(image, svg.data(), svg.size()) &&
              lseek(image, 0, SEEK_SET) == 0;
  Status drawn =
      held ? runConverter(image, file.temporaryPath())
           : runError(std::string("cannot hold the plot in memory: ") +
                      std::strerror(errno));
  if (image >= 0)
    close(image);
  FSDPC_TRY(drawn);
  return file.commit();
}

} // namespace fsdpc::top
