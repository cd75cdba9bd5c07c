// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory that ops reach through symbols rather than through operands. An op
// states its effects on it in ODS; verify-schedule and verify-rt ask for them.
#ifndef FSDPC_FSDP_MEMORY
#define FSDPC_FSDP_MEMORY

include "mlir/Interfaces/SideEffectInterfaces.td"

// Memory of layouts. An effect on it concerns the layouts that the op names
// (LayoutUserOpInterface).
def FSDP_ParameterMemory : Resource<"::fsdpc::fsdp::ParameterMemory">;
def FSDP_GradientMemory : Resource<"::fsdpc::fsdp::GradientMemory">;
// The part of a layout that a rank keeps from the first gather in a microbatch
// to the later ones (--reshard-to).
def FSDP_SecondaryMemory : Resource<"::fsdpc::fsdp::SecondaryMemory">;
def FSDP_OptimizerMemory : Resource<"::fsdpc::fsdp::OptimizerMemory">;

// The model's buffers (running statistics).
def FSDP_BufferMemory : Resource<"::fsdpc::fsdp::BufferMemory">;

// The file that holds activations between forward and backward
// (--offload=activations).
def FSDP_ActivationFile : Resource<"::fsdpc::fsdp::ActivationFile">;

// No memory that a schedule could share, but effects all the same: they keep an
// op where it is. The bounds of a unit's segment; the loss and the norm that a
// step reports; what collectives without memory of layouts send to other ranks.
def FSDP_SegmentBounds : Resource<"::fsdpc::fsdp::SegmentBounds">;
def FSDP_StepReport : Resource<"::fsdpc::fsdp::StepReport">;
def FSDP_OtherRanks : Resource<"::fsdpc::fsdp::OtherRanks">;

#endif
