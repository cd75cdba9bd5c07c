// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tables that generated code and the manifest must agree on: the index of
// each layout, buffer, input and library plan, and the offset of each constant.
// Generated code passes these indices to the C ABI, and the runtime looks them
// up in the manifest.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/rt/RTDialect.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Support/TypeID.h"
#include "llvm/ADT/MapVector.h"

namespace fsdpc::codegen {

/// Numbers keys in the order of first use. Attributes are unique in a context,
/// so equal plans and names are one key.
class IndexTable {
public:
  /// Returns the key's number, and adds the key if it is new.
  int32_t index(mlir::Attribute key) {
    return entries.try_emplace(key, entries.size()).first->second;
  }
  auto begin() const { return entries.begin(); }
  auto end() const { return entries.end(); }

private:
  llvm::MapVector<mlir::Attribute, int32_t> entries;
};

struct ProgramTables {
  /// Fills the tables from the symbols and rt ops of the final module. Borrows
  /// nothing: the bytes are copied.
  explicit ProgramTables(mlir::ModuleOp module);

  /// Keys are symbol names (StringAttr).
  IndexTable layouts, buffers, inputs;
  /// Returns the number of a plan among those of its kind. Calls with equal
  /// plans share one library object.
  int32_t index(rt::PlanAttrInterface plan) {
    return plans[plan.getTypeID()].index(plan);
  }
  /// A table per kind of plan; keys are plan attributes.
  llvm::MapVector<mlir::TypeID, IndexTable> plans;
  /// The bytes of all rt.constant ops, and the offset of each, by symbol name.
  llvm::DenseMap<mlir::Attribute, int64_t> constantOffsets;
  std::string constants;
  /// The bytes of all embedded initial values, and the offset of each, by name.
  llvm::DenseMap<mlir::Attribute, int64_t> weightOffsets;
  std::string weights;
  int32_t events = 0; ///< the number of events that the program records
};

} // namespace fsdpc::codegen
