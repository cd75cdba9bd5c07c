// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops of NNGradients.td.
#pragma once

#include "compiler/dialects/nn/OpHeaders.h"

#define GET_OP_CLASSES
#include "compiler/dialects/nn/NNGradients.h.inc"
