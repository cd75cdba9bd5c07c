// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The attributes of the nn dialect. Most passes need none of them, hence the
// header of their own.
#pragma once

#include "mlir/IR/Attributes.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/OpImplementation.h"

#include "compiler/dialects/nn/NNKernelPlanEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "compiler/dialects/nn/NNAttributes.h.inc"
