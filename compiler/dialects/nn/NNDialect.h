// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The nn dialect: tensor ops of neural networks on static shapes, with
// adjoints.
// Includes all op classes. A file that needs only the types in which interfaces
// answer includes OpInterfaces.h; one that needs plans and grids also includes
// NNAttributes.h.
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "compiler/dialects/nn/OpInterfaces.h"

#include "compiler/dialects/nn/NNDialect.h.inc"
#include "compiler/dialects/nn/NNEnums.h.inc"
#include "compiler/dialects/nn/NNInterfaces.h.inc"

#define GET_OP_CLASSES
#include "compiler/dialects/nn/NNOps.h.inc"
