// Arrays of a .npz file: a zip archive with a .npy file per array.
#pragma once

#include "runtime/core/file.h"

#include <string>

namespace fsdpc::runtime {

// Opens the .npz file `path` at the array `name`; the result reads as the .npy
// file that the archive holds. An array that was saved by numpy.savez is read
// in place. One of numpy.savez_compressed is first inflated, to a file without
// a name in $TMPDIR or /tmp that goes with the result, because samples are read
// in any order.
Result<File> openNpz(const std::string &path, const std::string &name);

} // namespace fsdpc::runtime
