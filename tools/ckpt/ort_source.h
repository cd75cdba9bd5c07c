// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A checkpoint of onnxruntime-training as `fsdpc ckpt convert --from
// onnxruntime` reads it.
#pragma once

#include "tools/ckpt/source.h"

namespace fsdpc::ckpt {

/// Opens the checkpoint at `path`. Its tensors have the names of an exchange
/// file (convert.cpp): "value/NAME", "buffer/NAME", "exp_avg/NAME" and
/// "exp_avg_sq/NAME"; the number "step" is that of its optimizer.
Result<std::unique_ptr<TensorSource>>
openOrtCheckpoint(const std::string &path);

} // namespace fsdpc::ckpt
