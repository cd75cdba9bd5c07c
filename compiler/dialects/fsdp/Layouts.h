// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Queries of layouts that passes, the planner and code generation share. They
// count elements of the flat buffer, or bytes of it where a layout holds
// constants in a type of their own.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/factors.h"

#include "llvm/ADT/SmallVector.h"

#include <string>

namespace fsdpc::fsdp {

/// Members start at multiples of this many elements: 64 bytes in f32, 32 in the
/// half types.
inline constexpr int64_t kMemberAlignment = 16;
/// Those of a layout of bytes start at multiples of this many bytes.
inline constexpr int64_t kByteAlignment = 64;

struct CompileOptions;

/// Returns the multiples of elements at which shard-parameters places members:
/// those above, or whole blocks if any travel between ranks, so that no block
/// has elements of two parameters. `ofBytes` is true for a layout of bytes.
int64_t memberAlignment(const CompileOptions &options, bool ofBytes);

/// Returns the size of the parameter as a member of a layout: elements, or
/// bytes if it is stored.
int64_t memberSizeOf(ParameterOp parameter);

/// Returns the element type of such blocks, as layouts have it; null for None.
mlir::Type wireTypeOf(BlockType type, mlir::MLIRContext *context);

/// Returns the type of the blocks in which the layout's parameters are
/// gathered. None: they travel in the compute type.
BlockType wireOf(LayoutOp layout);

/// Returns the bytes of the layout's gathered parameters on the wire, without
/// padding.
int64_t gatheredBytesOf(LayoutOp layout);

/// Returns the layout whose parameters `flat` holds, or null if it is not a
/// result of an op that names layouts (fsdp.flat, replicated, all_gather or
/// all_gather_wait).
mlir::FlatSymbolRefAttr getLayoutOf(mlir::Value flat);

/// Returns tensor<elements x compute>: the type of a layout's flat buffer,
/// gathered or packed.
mlir::RankedTensorType getFlatType(LayoutOp layout);

/// Returns true if `what` ("compute", "gradient", "master" or "state") is
/// replicated, that is, every rank keeps all of it. It looks `what` up in the
/// layout's attribute `whole`, which verifyReplication compares with the
/// strategy.
bool keepsWhole(LayoutOp layout, llvm::StringRef what);

/// Returns true if this rank's part of `what` ("state", "gradient" or
/// "parameter") lies in a file and not in memory.
bool isOffloaded(LayoutOp layout, llvm::StringRef what);

/// Returns true if a module that reads the parameter computes in f32 by
/// --keep-f32. The members of a layout are all such parameters or none is.
bool keepsF32(ParameterOp parameter);
bool keepsF32(LayoutOp layout, const mlir::SymbolTable &symbols);

/// Returns true if the update of an element of the layout needs nothing of the
/// others, and no op of the runtime's own.
bool isPointwise(LayoutOp layout);

/// Returns how an optimizer that factors its state sees the parameter.
FactorShape factorShapeOf(ParameterOp parameter);

/// Returns the number of rows and columns of all members of the layout. Both
/// numbers together: the length of the vector of factors that belongs to the
/// layout.
int64_t factorsOf(LayoutOp layout, const mlir::SymbolTable &symbols);

/// Returns the length of a layout's gradient that is gathered in the arena: its
/// elements, and the padding of its shards on up to --max-ranks ranks.
int64_t wholeGradientElementsOf(LayoutOp layout, const CompileOptions &options);

/// Returns the number of f64 from which these factors follow and that travel
/// between ranks (FactorShape::sumCount).
int64_t factorSumsOf(LayoutOp layout, const mlir::SymbolTable &symbols);

/// Returns the number of elements of all members of the layout, without gaps.
int64_t memberElementsOf(LayoutOp layout);

/// Returns the same with the room in which fsdp.orthogonalize computes: four
/// times the largest member. Both are rounded up to multiples of four elements.
int64_t orthogonalElementsOf(LayoutOp layout);

/// A buffer in which such an optimizer keeps its state of a parameter. An f32
/// tensor in a buffer of its own name, PARAMETER.row_var and so on.
struct FactorBuffer {
  std::string name;
  mlir::RankedTensorType type;
};
/// Returns one buffer for rows and one for columns, or one for a parameter of
/// fewer than two axes. The runtime finds them by these names.
llvm::SmallVector<FactorBuffer, 2> factorBuffersOf(ParameterOp parameter);

} // namespace fsdpc::fsdp
