// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interfaces of ops that work on the memory of layouts, that move memory while
// the device computes, and that send to other ranks; and the traits of fsdp ops.
#ifndef FSDPC_FSDP_INTERFACES
#define FSDPC_FSDP_INTERFACES

include "mlir/IR/OpBase.td"

def LayoutUserOpInterface : OpInterface<"LayoutUserOpInterface"> {
  let cppNamespace = "::fsdpc::fsdp";
  let description = [{
    An op that works on the memory of layouts: their parameters, gradients or
    optimizer state. Its effects say which of these and how; this interface says
    of which layouts.
  }];
  let methods = [
    InterfaceMethod<[{
      Returns the symbols of the layouts, in the op's order. The default takes
      them from the attribute `layouts` or `layout`.
    }], "::llvm::SmallVector<::mlir::FlatSymbolRefAttr>", "getLayoutRefs", (ins),
    /*methodBody=*/"", /*defaultImplementation=*/[{
      return ::fsdpc::fsdp::layoutRefsOf<ConcreteOp>($_op);
    }]>
  ];
}

def TransferOpInterface : OpInterface<"TransferOpInterface"> {
  let cppNamespace = "::fsdpc::fsdp";
  let description = [{
    An op that moves memory while the compute stream goes on: a gather, a reduction, or
    activations on their way to the rank's file and back. It does so in one piece, or is
    the start of one that an op with its token waits for. `schedule-prefetch` decides
    where each stands.
  }];
  let methods = [
    InterfaceMethod<"Returns what the op moves, and where to.",
      "::fsdpc::fsdp::TransferKind", "getTransferKind">,
    InterfaceMethod<[{
      Returns true if the op gathers the secondary shards of the rank's group.
    }], "bool", "readsSecondary", (ins), "", "return false;">,
    InterfaceMethod<[{
      Returns the op that waits for the transfer, or null if it is in one piece or nothing
      waits for it.
    }], "::mlir::Operation *", "getWait", (ins), "",
      "return ::fsdpc::fsdp::waitOf($_op);">,
    InterfaceMethod<[{
      Returns the tensors that a gather or fetch brings into memory: the results of the op,
      or of its wait. None for the others.
    }], "::mlir::ValueRange", "getArrivals", (ins), "",
      "return ::fsdpc::fsdp::arrivalsOf($_op, $_op.getTransferKind());">
  ];
}

// A transfer of this kind; `more` overrides other methods.
class Transfers<string kind, string more = "">
    : NativeOpTrait<"TransferOpInterface::Trait", [], [{
  ::fsdpc::fsdp::TransferKind getTransferKind() { return ::fsdpc::fsdp::TransferKind::}]
  # kind # "; }\n" # more> {
  let cppNamespace = "::fsdpc::fsdp";
}

def SendsOpInterface : OpInterface<"SendsOpInterface"> {
  let cppNamespace = "::fsdpc::fsdp";
  let description = [{
    An op by which a rank sends parts of layouts to other ranks. The bytes that a step
    sends are counted from these (`fsdp.communication`).
  }];
  let methods = [
    InterfaceMethod<[{
      Returns the name under which the bytes are listed, and the form in which each layout
      is sent.
    }], "::fsdpc::fsdp::Sending", "getSending">,
    InterfaceMethod<[{
      Returns the layouts whose parts the op sends. The default reads the attribute
      `layouts` or `layout`.
    }], "::llvm::SmallVector<::mlir::FlatSymbolRefAttr>", "getSentLayouts", (ins), "",
      "return ::fsdpc::fsdp::layoutRefsOf<ConcreteOp>($_op);">
  ];
}

// An op whose bytes are listed under `name` and sent in the form `form`, once per
// microbatch or once per step.
class Sends<string name, string form, bit eachMicrobatch>
    : NativeOpTrait<"SendsOpInterface::Trait", [], [{
  ::fsdpc::fsdp::Sending getSending() { return {"}] # name
  # "\", ::fsdpc::fsdp::SentForm::" # form # ", "
  # !if(eachMicrobatch, "true", "false") # "}; }\n"> {
  let cppNamespace = "::fsdpc::fsdp";
}

// The results hold parameters: a layout's, or a part of it.
def HoldsWeights : NativeOpTrait<"HoldsWeights"> { let cppNamespace = "::fsdpc::fsdp"; }

// mixed-precision gives the op the compute type of its layout, whatever types
// its operands have.
def InComputeType : NativeOpTrait<"InComputeType"> { let cppNamespace = "::fsdpc::fsdp"; }

// A call whose operands in the arena are flat layouts, each with room for the
// padding of its shards behind it.
def ReachesPadding : NativeOpTrait<"ReachesPadding"> { let cppNamespace = "::fsdpc::fsdp"; }

// A collective, in one piece or split, or a free. The schedule decides where it
// stands, so it has no position of its own among the ops of a function.
def MovedBySchedule : NativeOpTrait<"MovedBySchedule"> { let cppNamespace = "::fsdpc::fsdp"; }

// mixed-precision casts the op's operands to f32.
def InF32 : NativeOpTrait<"InF32"> { let cppNamespace = "::fsdpc::fsdp"; }

// The value is not a constant, though the op has no operands; it stays the same
// during a microbatch, so the backward reads it and never computes it again.
def FixedPerMicrobatch : NativeOpTrait<"FixedPerMicrobatch"> {
  let cppNamespace = "::fsdpc::fsdp";
}

#endif
