// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interfaces of rt ops and plans, besides the effects that ops state.
#ifndef FSDPC_RT_INTERFACES
#define FSDPC_RT_INTERFACES

include "mlir/IR/OpBase.td"

def CommandOpInterface : OpInterface<"CommandOpInterface"> {
  let cppNamespace = "::fsdpc::rt";
  let description = [{
    An op that puts a command on a stream. A stream runs its commands in order;
    commands of different streams are ordered by events only.
  }];
  let methods = [
    InterfaceMethod<"Returns the stream that gets the command.",
                    "::fsdpc::rt::Stream", "getStream">,
    InterfaceMethod<[{
      Returns true if the command does work, which a trace then names. A command
      without work only orders streams.
    }], "bool", "isWork", (ins), "", "return true;">
  ];
}

def AbiCallOpInterface : OpInterface<"AbiCallOpInterface"> {
  let cppNamespace = "::fsdpc::rt";
  let description = [{
    An op that is one call of a function of the C ABI (runtime/include/fsdpc.h). Code
    generation emits the call, and --trace names it, from what the op says here.
  }];
  let methods = [
    InterfaceMethod<"Returns the name of the C function.",
                    "::llvm::StringRef", "getFunction">,
    InterfaceMethod<"Passes the function's arguments, in its order, without the rank.",
                    "void", "passArguments", (ins "::fsdpc::rt::CallArguments &":$call)>
  ];
}

def AccessRangesOpInterface : OpInterface<"AccessRangesOpInterface"> {
  let cppNamespace = "::fsdpc::rt";
  let description = [{
    An op that reads or writes memory in a program of rt ops. It says how many bytes it
    accesses behind each of its addresses, from what the runtime passes on to kernels and
    libraries (plans, types of kernels, layouts), never from the pointers: `verify-rt`
    compares the two. Which bytes are read and which are written is in its effects.

    No method has a default, and `verify-rt` refuses an op with effects or addresses that
    lacks the interface. After IREE's `getAsyncAccessRanges`.
  }];
  let methods = [
    InterfaceMethod<[{
      Adds one range to `ranges` for each address that the op takes. Emits an error
      if the module lacks a symbol on which a range depends.
    }], "::llvm::LogicalResult", "getAccessRanges",
    (ins "const ::mlir::SymbolTable &":$symbols,
         "::llvm::SmallVectorImpl<::fsdpc::rt::AccessRange> &":$ranges)>
  ];
}

def PlanAttrInterface : AttrInterface<"PlanAttrInterface"> {
  let cppNamespace = "::fsdpc::rt";
  let description = [{
    The plan of a library call. Equal plans are one attribute, and the manifest lists
    each plan once, in a table per kind of plan.
  }];
  let methods = [
    InterfaceMethod<"Appends the plan to its table of the manifest.",
                    "void", "addTo", (ins "::fsdpc::Manifest &":$manifest)>,
    InterfaceMethod<"Returns the name that a trace gives to the call.",
                    "::std::string", "getTitle">,
    InterfaceMethod<[{
      Returns how many transcendental functions a call of so many flops evaluates.
    }], "int64_t", "countExps", (ins "int64_t":$flops), "", "(void)flops; return 0;">
  ];
}

#endif
