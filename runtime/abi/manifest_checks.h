// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks a manifest that was read from a program or from outside.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/support/status.h"

namespace fsdpc {

/// Returns an error that names the first thing in the manifest on which later
/// code could not rely: a size out of range, an index past its table, a layout
/// whose parts do not fit together.
Status checkManifest(const Manifest &manifest);

} // namespace fsdpc
