// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the generated code of all nn ops needs, for the headers of ops.
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "compiler/dialects/nn/Interfaces.h"
#include "compiler/dialects/nn/NNDialect.h"
