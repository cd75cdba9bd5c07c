// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Modules of the model in locations: the form that `nn.modules` has in short
// dumps, where the name of a location at the end of a line says it all.
#pragma once

#include "compiler/dialects/nn/NNAttributes.h"

#include "mlir/IR/Location.h"
#include "mlir/IR/OpImplementation.h"

namespace fsdpc::nn {

/// Returns `location` with the modules as its metadata: path and class in turn,
/// outermost first.
mlir::Location withModules(mlir::Location location, ModulesAttr modules);

/// Returns true if withModules has made the location.
bool hasModules(mlir::Location location);

/// Undoes withModules. Returns null modules if the location's list has not a
/// path and a class of each module.
std::pair<mlir::Location, ModulesAttr> withoutModules(mlir::Location location);

/// Names locations with modules in printed IR, by the module and the call.
struct OriginNames : mlir::OpAsmDialectInterface {
  using OpAsmDialectInterface::OpAsmDialectInterface;
  AliasResult getAlias(mlir::Attribute attribute,
                       mlir::raw_ostream &os) const override;
};

} // namespace fsdpc::nn
