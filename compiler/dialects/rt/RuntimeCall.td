// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns an op of another dialect into a call of the runtime. Library ops of nn
// implement this interface outside their dialect (compiler/dialects/rt/calls),
// because nn does not know rt.
#ifndef FSDPC_RT_RUNTIME_CALL
#define FSDPC_RT_RUNTIME_CALL

include "mlir/IR/OpBase.td"

def RuntimeCallOpInterface : OpInterface<"RuntimeCallOpInterface"> {
  let cppNamespace = "::fsdpc::rt";
  let description = [{
    An op that becomes one call of the runtime with a plan. `convert-to-rt` asks it for
    the call, and the memory model for the plan, from which scratch memory follows.
  }];
  let methods = [
    InterfaceMethod<[{
      Returns the plan of the call: shapes, strides, element types and the library.
      Strides are read from the ops around it, so the plan is final once the arena is
      planned.
    }], "::mlir::Attribute", "getPlan">,
    InterfaceMethod<"Builds the call where `calls` inserts ops.",
      "void", "createCall", (ins "::fsdpc::rt::CallBuilder &":$calls)>
  ];
}

#endif
