// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ops of nn and fsdp say about the memory of their results. It stands apart
// from NNInterfaces.td, on which the C++ of fsdp ops does not depend.
#ifndef FSDPC_NN_MEMORY
#define FSDPC_NN_MEMORY

include "mlir/IR/OpBase.td"

def ViewOpInterface : OpInterface<"ViewOpInterface"> {
  let cppNamespace = "::fsdpc::nn";
  let description = [{
    An op whose result lies in the memory of an operand, once kernels are outlined:
    the memory planner gives it no memory of its own.
  }];
  let methods = [
    InterfaceMethod<"Returns the value in whose memory the result lies.",
      "::mlir::Value", "getViewSource">,
    InterfaceMethod<[{
      Returns where the result begins in that memory, in elements from the source's
      first one.
    }], "int64_t", "getViewOffset", (ins), "", "return 0;">
  ];
}

// ---- answers, as traits of ops ----

// Implements methods of an interface beside the op: C++ that goes into its class.
class NN_Answers<string interface, string methods>
    : NativeOpTrait<interface # "::Trait", [], methods> {
  let cppNamespace = "::fsdpc::nn";
}

// An op whose result lies in operand 0's memory, at an offset in elements.
class ViewOf<string source, string offset = "0">
    : NN_Answers<"ViewOpInterface",
  "  ::mlir::Value getViewSource() { return " # source # "; }\n"
  # "  int64_t getViewOffset() { return " # offset # "; }\n">;

// The result has no slot in the arena: it lies in the memory of a symbol, or takes no memory.
def OutsideArena : NativeOpTrait<"OutsideArena"> { let cppNamespace = "::fsdpc::nn"; }
// The op names memory or marks a place: convert-to-rt makes no call of it.
def NoCall : NativeOpTrait<"NoCall"> { let cppNamespace = "::fsdpc::nn"; }
// Readers of the result read all of the operand instead: the backward keeps the operand.
def ReadAsOperand : NativeOpTrait<"ReadAsOperand"> { let cppNamespace = "::fsdpc::nn"; }
// The operands are computed at their places in the memory of the result.
def HoldsOperands : NativeOpTrait<"HoldsOperands"> { let cppNamespace = "::fsdpc::nn"; }
// The op may be `nn.strided`, so that its result is read where the operand lies, or its
// operands are written where the result lies.
def MayLieInOperand : NativeOpTrait<"MayLieInOperand"> { let cppNamespace = "::fsdpc::nn"; }
def MayLieInResult : NativeOpTrait<"MayLieInResult"> { let cppNamespace = "::fsdpc::nn"; }

#endif
