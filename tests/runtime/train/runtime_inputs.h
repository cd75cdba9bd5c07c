// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An input of a model, for tests of files.
#pragma once

#include "runtime/abi/manifest.h"

inline fsdpc::Input ids() { return {"ids", {2, 3}, "i64", 100, 0, -100, true}; }
