// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The checkpoint that onnxruntime-training keeps beside a training model: a
// FlatBuffer with the values of all parameters and, after a training, the
// moments of its optimizer.
#pragma once

#include "runtime/support/input_file.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc {

/// A tensor's place: in the checkpoint, or in the file beside it that is called
/// NAME.data. Nothing says that its bytes fit the shape, or lie in the file.
struct OrtTensor {
  std::string name;
  std::vector<int64_t> shape;
  int32_t type = 0; ///< a number of onnx.TensorProto.DataType
  bool isExternal = false;
  uint64_t offset = 0;
  uint64_t bytes = 0; ///< 0 if external: the shape and the type tell
};

/// The moments of a parameter: "momentum0" is its mean, "momentum1" that of the
/// squares.
struct OrtState {
  std::string parameter;
  std::vector<OrtTensor> moments;
};

struct OrtCheckpoint {
  std::vector<OrtTensor> trained, frozen;
  std::vector<OrtState> states; ///< empty before a training
  int64_t step = 0;             ///< updates that the optimizer has made
};

/// Reads the checkpoint `name` in `folder`. Fails with words about the file if
/// it is none, damaged, or without values. The file may be hostile.
Result<OrtCheckpoint> readOrtCheckpoint(const std::string &folder,
                                        const std::string &name);

} // namespace fsdpc
