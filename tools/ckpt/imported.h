// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tensors of another program's file as `fsdpc ckpt convert --from` sees
// them: sorted into parameters, buffers and optimizer states under the
// program's names.
#pragma once

#include "tools/ckpt/commands.h"
#include "tools/ckpt/source.h"

namespace fsdpc::ckpt {

/// Writes the tensors of `source` as a checkpoint. Those of an exchange file
/// (convert.cpp) have names that say what they are; of a plain file of weights,
/// all are values, except for what torch keeps in buffers.
Status writeImported(const TensorSource &source, bool isExchange,
                     const Arguments &arguments);

} // namespace fsdpc::ckpt
