// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interface of fsdp and rt ops that work on the memory of layouts, and the
// trait of fsdp ops that passes treat as data.
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
