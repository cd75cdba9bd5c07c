// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops of NNElementwise.td, with their enums.
#pragma once

#include "compiler/dialects/nn/OpHeaders.h"

#include "compiler/dialects/nn/NNElementwiseEnums.h.inc"

#define GET_OP_CLASSES
#include "compiler/dialects/nn/NNElementwise.h.inc"
