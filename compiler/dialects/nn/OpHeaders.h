// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Includes what the generated code of nn ops needs. The headers of ops begin
// with it.
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
