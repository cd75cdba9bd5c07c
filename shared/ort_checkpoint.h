// The checkpoint that onnxruntime-training keeps beside a training model: a
// FlatBuffer with the values of all parameters.
#pragma once

#include "shared/input_file.h"

#include "onnx-ml.pb.h"

#include <vector>

namespace fsdpc::frontend {

struct RuntimeCheckpoint {
  // Tensors without their values: external data of ONNX, in the checkpoint's
  // own file or in the one beside it.
  std::vector<onnx::TensorProto> trained, frozen;
  // It has moments of an optimizer, as after a training.
  bool hasOptimizerState = false;
};

// Reads the checkpoint `name` in `folder`. Fails with words about the file if
// it is none, damaged, or without values. The file may be hostile.
Result<RuntimeCheckpoint> readRuntimeCheckpoint(const std::string &folder,
                                                const std::string &name);

} // namespace fsdpc::frontend
