// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The attributes of the nn dialect. Most passes need none of them, hence the
// header of their own.
#pragma once

#include "compiler/dialects/nn/NNDialect.h"

#define GET_ATTRDEF_CLASSES
#include "compiler/dialects/nn/NNAttributes.h.inc"
