// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops of NNLibrary.td, with their enums.
#pragma once

#include "compiler/dialects/nn/OpHeaders.h"

#include "compiler/dialects/nn/NNLibraryEnums.h.inc"

#define GET_OP_CLASSES
#include "compiler/dialects/nn/NNLibrary.h.inc"
