// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rt dialect itself: its types, the memory that no pointer names, and the
// classes of its ops. An op of class RT_Call is one function of the runtime's C ABI
// (runtime/include/fsdpc.h), and each of its arguments says how it is passed.
// tools/gen-abi.py writes the C declarations and the forwarding to the device from
// this. Shapes and strides of library calls are plans, attributes that the manifest
// lists once each; operands are addresses.
#ifndef FSDPC_RT_BASE
#define FSDPC_RT_BASE

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "compiler/dialects/fsdp/FSDPInterfaces.td"
include "compiler/dialects/fsdp/FSDPMemory.td"
include "compiler/dialects/rt/RTInterfaces.td"

def RT_Dialect : Dialect {
  let name = "rt";
  let cppNamespace = "::fsdpc::rt";
  let summary = "Calls of the runtime, in the order in which they are enqueued";
  let description = [{
    `@microbatch` and `@update` are straight lines of calls. Each call works on one
    stream: `compute`, `gather` or `reduce`; events order streams. A call only
    enqueues work and returns.

    Operands are addresses that say how many bytes they reach, so that `verify-rt` can
    prove that no two streams race. Kernels are private functions marked `nn.kernel`.

    `convert-to-rt` writes these ops, and the constraints of an op are those of its C
    function. The op verifies the kernel that it names; events, bounds and races are
    the business of `verify-rt`.
  }];
  // Library ops of nn and reports of fsdp become calls: see calls/.
  let dependentDialects = ["::fsdpc::nn::NNDialect", "::fsdpc::fsdp::FSDPDialect"];
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

class RT_Op<string mnemonic, list<Trait> traits = []> : Op<RT_Dialect, mnemonic, traits>;

// Memory of the runtime that no pointer of the program names.
def RT_GatherWindow : Resource<"::fsdpc::rt::GatherWindow">;
def RT_ReduceWindow : Resource<"::fsdpc::rt::ReduceWindow">;
def RT_StatisticsMemory : Resource<"::fsdpc::rt::StatisticsMemory">;
// The state of events: it orders streams, and is no memory that they share.
def RT_EventState : Resource<"::fsdpc::rt::EventState">;

def RT_Pointer : TypeDef<RT_Dialect, "Pointer"> {
  let mnemonic = "ptr";
  let summary = "an address in one of the rank's memory spaces";
}

def RT_Space : I32EnumAttr<"Space", "memory space, FSDPC_SPACE_* of the ABI", [
    I32EnumAttrCase<"arena", 0>, I32EnumAttrCase<"input", 1>,
    I32EnumAttrCase<"constant", 2>, I32EnumAttrCase<"buffer", 3>,
    I32EnumAttrCase<"whole", 4>, I32EnumAttrCase<"random", 5>,
    I32EnumAttrCase<"gradient", 6>, I32EnumAttrCase<"gathered", 7>]> {
  let cppNamespace = "::fsdpc::rt";
}

def RT_Stream : I32EnumAttr<"Stream", "stream, FSDPC_STREAM_* of the ABI", [
    I32EnumAttrCase<"compute", 0>, I32EnumAttrCase<"gather", 1>,
    I32EnumAttrCase<"reduce", 2>]> {
  let cppNamespace = "::fsdpc::rt";
}

// A copy to or from the host, which a GPU runs beside the other commands of its
// stream.
def CopiesApart : NativeOpTrait<"CopiesApart"> { let cppNamespace = "::fsdpc::rt"; }

// A call that on a GPU reaches what is offloaded of layouts through pieces of
// device memory. Those on stream `compute` bring pieces ahead of their kernels.
def ThroughPieces : NativeOpTrait<"ThroughPieces"> { let cppNamespace = "::fsdpc::rt"; }

// ---- calls ----

// Says how an argument of an op is passed to the op's C function: the parameters that declare it,
// from which tools/gen-abi.py writes the C declarations, and the function of CallArguments that
// passes it. In both `$name` is the argument's name; `$Name` is the same with a capital.
class RT_Passed<string parameters, string passing> {
  string cParameters = parameters;
  string pass = passing;
  // Adds the range of bytes that the call accesses behind an address (getAccessRanges). Attributes
  // leave it empty.
  string addRange = "";
}

// Addresses, by what the call does with the bytes behind them. The address of an absent pointer is
// null. `bytes` is the C++ expression of how many bytes the call accesses, from the address on. It
// may ask the op for its plan and symbols, and `sizes` (AccessSizes) for the bytes of what symbols
// name. It may not ask for the pointer, whose bytes verify-rt compares with these.
class RT_Address<string bytes, Constraint pointers, list<OpVariableDecorator> effects, string type>
    : Arg<pointers, "", effects>, RT_Passed<type # " *$name", "address(get$Name())"> {
  let addRange = "addRange(get$NameMutable(), [&]() -> ::llvm::FailureOr<int64_t> { return "
                 # bytes # "; }, ranges)";
}
class RT_Read<string bytes, Constraint pointers = RT_Pointer>
    : RT_Address<bytes, pointers, [MemRead], "const void">;
class RT_Written<string bytes, Constraint pointers = RT_Pointer>
    : RT_Address<bytes, pointers, [MemWrite], "void">;
class RT_Updated<string bytes, Constraint pointers = RT_Pointer>
    : RT_Address<bytes, pointers, [MemRead, MemWrite], "void">;

// Arrays of addresses. `bytes` is the C++ expression of a list with one number per address.
class RT_Addresses<string bytes, list<OpVariableDecorator> effects, string parameters,
                   string function>
    : Arg<Variadic<RT_Pointer>, "", effects>,
      RT_Passed<parameters, function # "(get$Name())"> {
  let addRange = "addRanges(get$NameMutable(), " # bytes # ", ranges)";
}
// One address per layout of the call.
class RT_ReadEach<string bytes>
    : RT_Addresses<bytes, [MemRead], "void *const *$name", "addresses">;
class RT_WrittenEach<string bytes>
    : RT_Addresses<bytes, [MemWrite], "void *const *$name", "addresses">;
// An array of addresses and its length. The op says itself which it reads.
class RT_Buffers<string bytes>
    : RT_Addresses<bytes, [], "void *const *$name, int32_t count", "countedAddresses">;

// Expressions for `bytes`: one f32, and the flat buffers of the call's layouts.
defvar OneF32 = "sizeof(float)";
defvar FlatBuffers = "sizes.flats(getLayoutRefs())";

// Attributes, which all are constants of the program.
class RT_PassedAttr<Constraint attribute, string parameters, string function,
                    list<OpVariableDecorator> effects = []>
    : Arg<attribute, "", effects>,
      RT_Passed<parameters, function # "(getProperties().$name)">;
// The index of a plan in the manifest's table of its kind.
class RT_PlanIndex<Constraint plan> : RT_PassedAttr<plan, "int32_t $name", "plan">;
// An outlined kernel; null if an optional one is absent.
class RT_Kernel<Constraint symbol = FlatSymbolRefAttr>
    : RT_PassedAttr<symbol, "const fsdpc_kernel *$name", "kernel">;
// Indices of the manifest's layouts and buffers.
def RT_LayoutIndex : RT_PassedAttr<FlatSymbolRefAttr, "int32_t $name", "layout">;
def RT_LayoutIndices
    : RT_PassedAttr<FlatSymbolRefArrayAttr, "int32_t count, const int32_t *$name", "layouts">;
def RT_BufferIndex
    : RT_PassedAttr<FlatSymbolRefAttr, "int32_t $name", "buffer",
                    [MemRead<FSDP_BufferMemory>, MemWrite<FSDP_BufferMemory>]>;
def RT_Int32 : RT_PassedAttr<I32Attr, "int32_t $name", "constant">;
def RT_Int64 : RT_PassedAttr<I64Attr, "int64_t $name", "constant">;
def RT_Float64 : RT_PassedAttr<F64Attr, "double $name", "constant">;

// The name of an argument as ODS has it in accessors: get$Name().
class RT_AccessorName<string argument> {
  string name = !toupper(!substr(argument, 0, 1)) # !substr(argument, 1);
}

// An op that is one call of the C function `fsdpc_MNEMONIC`, which returns nothing.
// The function's parameters are the rank and then, in their order, the op's
// arguments, each of which says how it is passed.
class RT_Call<string mnemonic, list<Trait> traits = []>
    : RT_Op<mnemonic, !listconcat([AbiCallOpInterface, CommandOpInterface, AccessRangesOpInterface], traits)> {
  // Set for a function whose work needs more of the rank than its device.
  bit usesRank = 0;

  string callDeclarations = [{
    /// Returns the name of the C function.
    static ::llvm::StringRef getFunction() { return "fsdpc_}] # mnemonic # [{"; }
    /// Passes the function's arguments, in its order, without the rank.
    void passArguments(::fsdpc::rt::CallArguments &call);
    /// Adds the bytes that the call accesses behind each of its addresses.
    ::llvm::LogicalResult getAccessRanges(const ::mlir::SymbolTable &symbols,
        ::llvm::SmallVectorImpl<::fsdpc::rt::AccessRange> &ranges);
  }];
  let extraClassDeclaration = callDeclarations;
  let extraClassDefinition = [{
    void $cppClass::passArguments(::fsdpc::rt::CallArguments &call) {
      }] # !interleave(!foreach(i, !range(!size(arguments)),
             !subst("$name", !getdagname(arguments, i),
             !subst("$Name", RT_AccessorName<!getdagname(arguments, i)>.name,
             !if(!initialized(!getdagarg<RT_Passed>(arguments, i)),
                 "call." # !getdagarg<RT_Passed>(arguments, i).pass # ";", "?")))), "\n      ") # [{
    }
    ::llvm::LogicalResult $cppClass::getAccessRanges(const ::mlir::SymbolTable &symbols,
        ::llvm::SmallVectorImpl<::fsdpc::rt::AccessRange> &ranges) {
      [[maybe_unused]] ::fsdpc::rt::AccessSizes sizes(*this, symbols);
      }] # !interleave(!foreach(i, !range(!size(arguments)),
             !subst("$Name", RT_AccessorName<!getdagname(arguments, i)>.name,
             !if(!initialized(!getdagarg<RT_Passed>(arguments, i)),
             !if(!empty(!getdagarg<RT_Passed>(arguments, i).addRange), "",
                 "if (::llvm::failed(" # !getdagarg<RT_Passed>(arguments, i).addRange
                 # "))\n        return ::llvm::failure();\n      "),
             ""))), "") # [{return ::llvm::success();
    }
  }];
  assert !foldl(1, !range(!size(arguments)), all, i,
                !and(all, !initialized(!getdagarg<RT_Passed>(arguments, i)))),
         "an argument of rt." # mnemonic # " does not say how it is passed (RT_Passed)";
}

// A call that puts work on the stream `stream`. Its effects are what the work does
// when it runs.
class RT_Command<string mnemonic, string stream, list<Trait> traits = []>
    : RT_Call<mnemonic, traits> {
  string onStream = stream;
  let extraClassDeclaration = callDeclarations # [{
    /// Returns the stream that gets the work.
    ::fsdpc::rt::Stream getStream() { return ::fsdpc::rt::Stream::}] # stream # [{; }
  }];
}

// A call that orders streams by an event and does no work.
class RT_Event<string mnemonic, list<Trait> traits> : RT_Call<mnemonic, traits> {
  let arguments = (ins RT_PassedAttr<RT_Stream, "int32_t $name", "constant">:$stream,
                       RT_Int32:$event);
  let assemblyFormat = "$stream $event attr-dict";
  let extraClassDeclaration = callDeclarations # [{
    /// Returns false: an event only orders streams.
    bool isWork() { return false; }
  }];
}

#endif
