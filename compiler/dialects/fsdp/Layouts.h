// Questions about layouts that passes, the planner and code generation share.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"

namespace fsdpc::fsdp {

/// Members and shards start at multiples of this many elements: 64 bytes of
/// f32.
inline constexpr int64_t kMemberAlignment = 16;

/// The layout whose parameters `flat` holds (the result of fsdp.flat, whole,
/// all_gather or all_gather_wait), or null.
mlir::FlatSymbolRefAttr getLayoutOf(mlir::Value flat);

/// tensor<elements x compute>: a layout's flat buffer, gathered or packed.
mlir::RankedTensorType getFlatType(LayoutOp layout);

/// Whether every rank keeps all of `what`: "compute", "gradient", "master" or
/// "state".
bool keepsWhole(LayoutOp layout, llvm::StringRef what);

} // namespace fsdpc::fsdp
