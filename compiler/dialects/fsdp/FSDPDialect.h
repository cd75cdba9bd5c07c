// The fsdp dialect: parameters, flat layouts, units, collectives, schedule.
#pragma once

#include "compiler/dialects/nn/NNDialect.h"

#include "compiler/dialects/fsdp/FSDPDialect.h.inc"

#define GET_TYPEDEF_CLASSES
#include "compiler/dialects/fsdp/FSDPTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "compiler/dialects/fsdp/FSDPAttributes.h.inc"

namespace fsdpc::fsdp {
// What symbols stand for, as side effects see it.
struct ParameterMemory : mlir::SideEffects::Resource::Base<ParameterMemory> {
  llvm::StringRef getName() final { return "parameters"; }
};
struct GradientMemory : mlir::SideEffects::Resource::Base<GradientMemory> {
  llvm::StringRef getName() final { return "gradients"; }
};
struct BufferMemory : mlir::SideEffects::Resource::Base<BufferMemory> {
  llvm::StringRef getName() final { return "buffers"; }
};
} // namespace fsdpc::fsdp

#define GET_OP_CLASSES
#include "compiler/dialects/fsdp/FSDPOps.h.inc"
