// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The nn dialect: tensor ops of neural networks on static shapes, with
// adjoints. This is the dialect alone; its ops are in ElementwiseOps.h,
// ShapeOps.h and the like, its interfaces in Interfaces.h, plans and grids in
// NNAttributes.h.
#pragma once

#include "mlir/IR/Dialect.h"

#include "compiler/dialects/nn/NNDialect.h.inc"
