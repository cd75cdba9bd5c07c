// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What passes and emitters ask of nn ops, without the ops: the interfaces and
// traits of NNInterfaces.td and NNMemory.td. A file that names ops includes
// their headers (ElementwiseOps.h, ShapeOps.h, …), which include this one.
#pragma once

#include "compiler/dialects/nn/Memory.h"
#include "compiler/dialects/nn/OpInterfaces.h"

#include "mlir/IR/Builders.h"

#include "compiler/dialects/nn/NNInterfaces.h.inc"
