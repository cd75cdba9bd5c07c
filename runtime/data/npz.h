// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Arrays of a .npz file: a zip archive with a .npy file per array. Like any
// file from outside, it may be damaged; no array lies past its end.
#pragma once

#include "runtime/data/safetensors.h"
#include "runtime/support/file.h"

#include <map>
#include <string>

namespace fsdpc::runtime {

/// Opens the .npz file `path` at the array `name`; the result reads as the .npy
/// file that the archive holds. An array that was saved by numpy.savez is read
/// in place. One of numpy.savez_compressed is first inflated, to a file without
/// a name in $TMPDIR or /tmp that goes with the result, because samples are
/// read in any order.
Result<File> openNpz(const std::string &path, const std::string &name);

/// Returns where the arrays of a .npz file lie in it, by name. Fails for one
/// that numpy.savez_compressed has written, whose arrays have no place.
Result<std::map<std::string, SafeTensor>> arraysInNpz(const std::string &path);

} // namespace fsdpc::runtime
