// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The streams of a rank, and which of them runs an op. Streams run side by
// side; only events order the commands of two of them.
#pragma once

#include "compiler/dialects/rt/RTDialect.h"

#include <optional>

namespace fsdpc::rt {

/// Compute, gather and reduce: the cases of the enum Stream.
constexpr int kStreams = 3;

/// Returns the stream that gets the op's command, or nullopt for an op without
/// one (a pointer, the return).
inline std::optional<Stream> streamOf(mlir::Operation *op) {
  if (auto command = mlir::dyn_cast<CommandOpInterface>(op))
    return command.getStream();
  return std::nullopt;
}

} // namespace fsdpc::rt
