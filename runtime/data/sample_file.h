// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The samples of one input on disk. Either a .npy array with the samples on its
// first axis, or windows of a flat token stream. Both reduce to runs of equally
// many elements from some offset on, so the reader (samples.h) treats them
// alike.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/data/documents.h"
#include "runtime/support/file.h"
#include "runtime/support/status.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fsdpc::runtime {

struct SampleFile {
  File file;
  std::string dtype;          ///< in the file
  uint64_t offset = 0;        ///< where sample 0 begins, in bytes
  int64_t sampleElements = 0; ///< per sample
  int64_t samples = 0;
  int64_t unshifted = 0; ///< samples without a token stream's shift
  /// Token streams: the tokens of the file and how many of them `offset` skips.
  int64_t tokens = 0, shift = 0;
  /// The windows of --split-at, or null without it. All inputs have the windows
  /// of the first one.
  std::shared_ptr<const DocumentWindows> documents;
};

/// The header of a .npy file (NumPy's format, versions 1 to 3).
struct NpyHeader {
  std::string dtype; ///< as the manifest names it
  std::vector<int64_t> shape;
  uint64_t offset = 0; ///< where the data begins, in bytes
};
/// Reads and checks a header. Fails unless the data is in C order, little
/// endian, of a dtype that the runtime knows, and exactly as long as the shape
/// says.
Result<NpyHeader> readNpyHeader(const File &file);
/// Returns true if the file begins as a .npy file does. Fails if it cannot be
/// read.
Result<bool> isNpy(const File &file);

/// Opens the file of --data NAME=FILE and checks it against the input: a .npy
/// file, FILE.npz[:ARRAY] or FILE.safetensors[:TENSOR], of which the tensor is
/// called as the input if no other is named. A sample is `rows` elements of the
/// first axis, which must be a multiple of them.
Result<SampleFile> openArraySamples(const Input &input, const std::string &name,
                                    int64_t rows = 1);
/// Opens the file of --data NAME=FILE of an input without an axis: an array as
/// above with a value per step, or with one value for all steps.
Result<SampleFile> openStepValues(const Input &input, const std::string &name);
/// Opens the file of --tokens NAME=FILE[:WIDTH][+SHIFT]. With T the last axis
/// of the input, sample i is elements i·T + SHIFT … i·T + T − 1 + SHIFT; an
/// incomplete last window is dropped, an incomplete last token is an error. An
/// empty `width` means a file that states its own type: .npy, a header of
/// llm.c, or an index of Megatron beside it.
Result<SampleFile> openTokenWindows(const Input &input, const std::string &path,
                                    const std::string &width, int64_t shift);

} // namespace fsdpc::runtime
