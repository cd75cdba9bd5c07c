// The rt dialect: one op per function of the runtime's C ABI
// (runtime/include/fsdpc.h) and nothing else. It is the only place that states a
// call: tools/gen-abi.py writes the C declarations and the forwarding to the device
// from it. Shapes and strides of library calls are plans, attributes that the
// manifest lists once each; operands are addresses.
#ifndef FSDPC_RT_OPS
#define FSDPC_RT_OPS

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
  // Library ops of nn become calls: see calls/.
  let dependentDialects = ["::fsdpc::nn::NNDialect"];
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
    I32EnumAttrCase<"whole", 4>, I32EnumAttrCase<"random", 5>]> {
  let cppNamespace = "::fsdpc::rt";
}

def RT_Stream : I32EnumAttr<"Stream", "stream, FSDPC_STREAM_* of the ABI", [
    I32EnumAttrCase<"compute", 0>, I32EnumAttrCase<"gather", 1>,
    I32EnumAttrCase<"reduce", 2>]> {
  let cppNamespace = "::fsdpc::rt";
}

// ---- calls ----

// How an argument of an op is passed to the op's C function: the parameters that
// declare it, from which tools/gen-abi.py writes the C declarations, and the
// function of CallArguments that passes it. In both `$name` is the argument's name;
// `$Name` is the same with a capital.
class RT_Passed<string parameters, string passing> {
  string cParameters = parameters;
  string pass = passing;
}

// Addresses, by what the call does with the bytes that they reach. The address of
// an absent pointer is null.
class RT_Address<Constraint pointers, list<OpVariableDecorator> effects, string type>
    : Arg<pointers, "", effects>, RT_Passed<type # " *$name", "address(get$Name())">;
class RT_Read<Constraint pointers = RT_Pointer> : RT_Address<pointers, [MemRead], "const void">;
class RT_Written<Constraint pointers = RT_Pointer> : RT_Address<pointers, [MemWrite], "void">;
class RT_Updated<Constraint pointers = RT_Pointer>
    : RT_Address<pointers, [MemRead, MemWrite], "void">;

// Arrays of addresses, one per layout of the call.
class RT_Addresses<list<OpVariableDecorator> effects>
    : Arg<Variadic<RT_Pointer>, "", effects>,
      RT_Passed<"void *const *$name", "addresses(get$Name())">;
def RT_ReadEach : RT_Addresses<[MemRead]>;
def RT_WrittenEach : RT_Addresses<[MemWrite]>;
// An array of addresses and its length. The op says itself which it reads.
def RT_Buffers : Arg<Variadic<RT_Pointer>>,
                 RT_Passed<"void *const *$name, int32_t count",
                           "countedAddresses(get$Name())">;

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

// An op that is one call of the C function `fsdpc_MNEMONIC`, which returns nothing.
// The function's parameters are the rank and then, in their order, the op's
// arguments, each of which says how it is passed.
class RT_Call<string mnemonic, list<Trait> traits = []>
    : RT_Op<mnemonic, !listconcat([AbiCallOpInterface, CommandOpInterface], traits)> {
  // Set for a function whose work needs more of the rank than its device.
  bit usesRank = 0;

  string callDeclarations = [{
    /// Returns the name of the C function.
    static ::llvm::StringRef getFunction() { return "fsdpc_}] # mnemonic # [{"; }
    /// Passes the function's arguments, in its order, without the rank.
    void passArguments(::fsdpc::rt::CallArguments &call);
  }];
  let extraClassDeclaration = callDeclarations;
  let extraClassDefinition = [{
    void $cppClass::passArguments(::fsdpc::rt::CallArguments &call) {
      }] # !interleave(!foreach(i, !range(!size(arguments)),
             !subst("$name", !getdagname(arguments, i),
             !subst("$Name", !toupper(!substr(!getdagname(arguments, i), 0, 1))
                             # !substr(!getdagname(arguments, i), 1),
             !if(!initialized(!getdagarg<RT_Passed>(arguments, i)),
                 "call." # !getdagarg<RT_Passed>(arguments, i).pass # ";", "?")))), "\n      ") # [{
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

// ---- symbols ----

def RT_InputOp : RT_Op<"input", [Symbol]> {
  let summary = "An input of the program";
  let description = [{
    Declares an input of the model: its name, and the type of one microbatch of it.
    Data files and `--data` bind to this name. `bound` is the number of rows of the
    table that the input indexes; the runtime refuses an integer outside
    [0, `bound`), except the value `ignored` (a target that does not count).

    **Constraints**
    - The symbol is unique in its module.
    - `type` is the tensor type of the argument that the input was
      (`convert-to-rt` writes it).

    Example:
    ```mlir
    rt.input @tokens : tensor<4x256xi64> {bound = 50257 : i64}
    rt.input @targets : tensor<4x256xi64> {bound = 50257 : i64, ignored = -100 : i64}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$type,
                       OptionalAttr<I64Attr>:$bound, OptionalAttr<I64Attr>:$ignored);
  let assemblyFormat = "$sym_name `:` $type attr-dict";
}

def RT_ConstantOp : RT_Op<"constant", [Symbol]> {
  let summary = "A constant tensor of the program";
  let description = [{
    Declares bytes that are compiled into the program. All constants form one
    read-only block, in which each starts at a multiple of 64 bytes; equal constants
    share one symbol.

    **Constraints**
    - The symbol is unique in its module.

    Example:
    ```mlir
    rt.constant @constant dense<[1.0, 0.5]> : tensor<2xf32>
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, ElementsAttr:$value);
  let assemblyFormat = "$sym_name attr-dict $value";
}

// ---- addresses and events ----

def RT_PointerOp : RT_Op<"pointer", [Pure]> {
  let summary = "The address of bytes in one of the rank's memory spaces";
  let description = [{
    Calls `fsdpc_pointer`. The result is the address of byte `offset` of a space, and
    `bytes` says how many bytes from there its users may touch: `verify-rt` reads
    both, the runtime only the offset.

    | space | `symbol` | memory |
    |---|---|---|
    | `arena` | none | the planned arena |
    | `input` | `rt.input` | one microbatch of an input |
    | `constant` | `rt.constant` | the program's constants |
    | `buffer` | `fsdp.buffer` | running statistics of the model |
    | `whole` | `fsdp.layout` | a layout's parameters in the compute type, where every rank keeps all of them |
    | `random` | none | four i32: seed low, seed high, microbatch, step |

    **Constraints**
    - The space's symbol is as the table says.
    - A pointer into the arena stays within its bytes (`verify-rt`).

    Example:
    ```mlir
    %activation = rt.pointer arena + 4096 bytes 81920
    %parameters = rt.pointer whole @h.0.flat + 0 bytes 3548928
    ```
  }];
  let arguments = (ins RT_Space:$space, OptionalAttr<FlatSymbolRefAttr>:$symbol,
                       I64Attr:$offset, I64Attr:$bytes);
  let results = (outs RT_Pointer:$result);
  let assemblyFormat = "$space ($symbol^)? `+` $offset `bytes` $bytes attr-dict";
}

def RT_EventRecordOp : RT_Event<"event_record",
    [MemoryEffects<[MemWrite<RT_EventState>]>]> {
  let summary = "Records an event on a stream";
  let description = [{
    Calls `fsdpc_event_record`. Makes `event` stand for all work that `stream` was
    given so far. Recording an event again replaces what it stood for.

    **Constraints**
    - Events are numbered from 0, without gaps after `elide-events`.

    Example:
    ```mlir
    rt.event_record compute 0
    rt.event_wait gather 0
    ```
  }];
}

def RT_EventWaitOp : RT_Event<"event_wait",
    [MemoryEffects<[MemRead<RT_EventState>, MemWrite<RT_EventState>]>]> {
  let summary = "Makes a stream wait for an event";
  let description = [{
    Calls `fsdpc_event_wait`. Whatever `stream` is given from here on starts after
    what the last record of `event` stands for. The calling thread does not wait.

    **Constraints**
    - The event is recorded earlier in the same function (`verify-rt`).

    Example:
    ```mlir
    rt.event_record gather 1
    rt.event_wait compute 1
    ```
  }];
}

// ---- compute ----

def RT_LaunchOp : RT_Command<"launch", "compute",
    [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
     DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Runs an outlined kernel";
  let description = [{
    Calls `fsdpc_launch` on stream `compute`. The kernel is a function whose body is
    `nn` ops; code generation compiles it to one loop nest. `buffers` are its
    operands, which it reads, then its results, which it writes. On the host the
    runtime cuts the kernel's outer range into pieces of at least its grain and gives
    them to the rank's threads; on a GPU the kernel is a grid of blocks of threads.

    **Constraints**
    - `kernel` names a function marked `nn.kernel`.
    - There is one buffer per operand and per result of the kernel.

    Example:
    ```mlir
    func.func private @gelu_8x48(%x: tensor<8x48xf32>) -> tensor<8x48xf32> attributes {nn.kernel} {
      %y = nn.gelu erf %x : tensor<8x48xf32>
      return %y : tensor<8x48xf32>
    }
    %x = rt.pointer arena + 0 bytes 1536
    %y = rt.pointer arena + 1536 bytes 1536
    rt.launch @gelu_8x48(%x, %y)
    ```
  }];
  let arguments = (ins RT_Kernel<>:$kernel, RT_Buffers:$buffers);
  let assemblyFormat = "$kernel `(` $buffers `)` attr-dict";
}

def RT_MatmulPlan : AttrDef<RT_Dialect, "MatmulPlan",
    [DeclareAttrInterfaceMethods<PlanAttrInterface>]> {
  let mnemonic = "matmul";
  let summary = "shape, strides and types of a batched matrix product";
  let description = [{
    Says what `rt.matmul` computes: C[i] = A[i] · B[i] for each index i of `batch`,
    with A m×k, B k×n and C m×n, all row-major. `transposeA` and `transposeB` say
    that the matrix is stored k×m or n×k. `strideA`, `strideB` and `strideC` are
    the distances between matrices in elements, one per batch dimension; 0 repeats
    one matrix. `accumulate` adds the product to what C holds, `bias` adds one row
    of n elements to each row. `library` names the library on GPUs and is absent on
    the host.
  }];
  let parameters = (ins "::mlir::DenseI64ArrayAttr":$batch,
      "::mlir::DenseI64ArrayAttr":$strideA, "::mlir::DenseI64ArrayAttr":$strideB,
      "::mlir::DenseI64ArrayAttr":$strideC, "int64_t":$m, "int64_t":$n, "int64_t":$k,
      "bool":$transposeA, "bool":$transposeB, "::mlir::Type":$a, "::mlir::Type":$b,
      "::mlir::Type":$c, "bool":$accumulate, DefaultValuedParameter<"bool", "false">:$bias,
      OptionalParameter<"::mlir::StringAttr">:$library);
  let assemblyFormat = [{
    `<` $m `x` $n `x` $k `,` $a `,` $b `->` $c `batch` $batch `strides` $strideA `,` $strideB `,`
    $strideC `transposed` $transposeA `,` $transposeB `accumulate` $accumulate
    (`bias` $bias^)? (`library` $library^)? `>`
  }];
}

def RT_MatmulOp : RT_Command<"matmul", "compute"> {
  let summary = "Multiplies matrices";
  let description = [{
    Calls `fsdpc_matmul` on stream `compute`. Reads `a`, `b` and `bias`, writes `c`;
    where the plan accumulates, it reads `c` too. Sums are f32.

    **Constraints**
    - `bias` is present where the plan has `bias true`, and only there.
    - A plan does not both accumulate and have a bias.

    Example:
    ```mlir
    %x = rt.pointer input @x + 0 bytes 8192
    %w = rt.pointer arena + 0 bytes 2048
    %y = rt.pointer arena + 2048 bytes 4096
    rt.matmul <64 x 16 x 32, f32, f32 -> f32 batch [] strides [], [], [] transposed false, true accumulate false> %x, %w -> %y
    ```
  }];
  let arguments = (ins RT_PlanIndex<RT_MatmulPlan>:$plan, RT_Read<>:$a, RT_Read<>:$b,
                       RT_Read<Optional<RT_Pointer>>:$bias, RT_Updated<>:$c);
  let assemblyFormat = "$plan $a `,` $b (`bias` $bias^)? `->` $c attr-dict";
}

def RT_ConvolutionPlan : AttrDef<RT_Dialect, "ConvolutionPlan",
    [DeclareAttrInterfaceMethods<PlanAttrInterface>]> {
  let mnemonic = "convolution";
  let summary = "shape and kind of a 2-D convolution";
  let description = [{
    `kind` is "forward", "input" (the input's cotangent) or "weight" (the filter's).
    `input` is N, C, H, W, `filter` is O, C / groups, H, W and `output` N, O, H, W,
    those of the forward whatever the kind. `pads` are top, left, bottom, right.
    `library` names the library on GPUs and is absent on the host.
  }];
  let parameters = (ins StringRefParameter<>:$kind, "::mlir::Type":$element,
      "::mlir::DenseI64ArrayAttr":$input, "::mlir::DenseI64ArrayAttr":$filter,
      "::mlir::DenseI64ArrayAttr":$output, "::mlir::DenseI64ArrayAttr":$strides,
      "::mlir::DenseI64ArrayAttr":$pads, "::mlir::DenseI64ArrayAttr":$dilations,
      "int64_t":$groups, OptionalParameter<"::mlir::StringAttr">:$library);
  let assemblyFormat = [{
    `<` $kind `,` $element `,` $input `,` $filter `->` $output `strides`
    $strides `pads` $pads `dilations` $dilations `groups` $groups
    (`library` $library^)? `>`
  }];
}

def RT_ConvolutionOp : RT_Command<"convolution", "compute"> {
  let summary = "Convolves images, or computes a cotangent of that";
  let description = [{
    Calls `fsdpc_convolution` on stream `compute`. Reads `x` and `w`, writes `y`:

    | kind of the plan | `x` | `w` | `y` |
    |---|---|---|---|
    | "forward" | input | filter | output |
    | "input" | output's cotangent | filter | input's cotangent |
    | "weight" | input | output's cotangent | filter's cotangent |

    **Constraints**
    - The plan's shapes obey the constraints of `nn.conv2d`.

    Example:
    ```mlir
    %x = rt.pointer input @images + 0 bytes 2048
    %w = rt.pointer arena + 0 bytes 432
    %y = rt.pointer arena + 448 bytes 768
    rt.convolution <"forward", f32, [2, 4, 8, 8], [6, 2, 3, 3] -> [2, 6, 4, 4] strides [2, 2] pads [1, 1, 1, 1] dilations [1, 1] groups 2> %x, %w -> %y
    ```
  }];
  let arguments = (ins RT_PlanIndex<RT_ConvolutionPlan>:$plan, RT_Read<>:$x, RT_Read<>:$w, RT_Written<>:$y);
  let assemblyFormat = "$plan $x `,` $w `->` $y attr-dict";
}

def RT_PoolingPlan : AttrDef<RT_Dialect, "PoolingPlan",
    [DeclareAttrInterfaceMethods<PlanAttrInterface>]> {
  let mnemonic = "pooling";
  let summary = "shape and kind of a 2-D pooling";
  let description = [{
    `kind` is "max", "average", "max_grad" or "average_grad". `input` and `output`
    are N, C, H, W of the forward whatever the kind; `pads` are top, left, bottom,
    right. With `count_padding true` an average divides by the window's size, else
    by the number of its elements within the image. `library` names the library on
    GPUs and is absent on the host.
  }];
  let parameters = (ins StringRefParameter<>:$kind, "::mlir::Type":$element,
      "::mlir::DenseI64ArrayAttr":$input, "::mlir::DenseI64ArrayAttr":$output,
      "::mlir::DenseI64ArrayAttr":$kernel, "::mlir::DenseI64ArrayAttr":$strides,
      "::mlir::DenseI64ArrayAttr":$pads, "bool":$countPadding,
      OptionalParameter<"::mlir::StringAttr">:$library);
  let assemblyFormat = [{
    `<` $kind `,` $element `,` $input `->` $output `kernel` $kernel
    `strides` $strides `pads` $pads `count_padding` $countPadding
    (`library` $library^)? `>`
  }];
}

def RT_PoolingOp : RT_Command<"pooling", "compute"> {
  let summary = "Pools images, or computes the cotangent of that";
  let description = [{
    Calls `fsdpc_pooling` on stream `compute`. `source` is read and `destination`
    written. Kind "max" also writes `workspace`, an i32 per output element: the
    position of the maximum within its window. Kind "max_grad" reads it.

    **Constraints**
    - The kinds "max" and "max_grad" have a workspace, the others none.
    - The plan's shapes obey the constraints of `nn.max_pool2d`.

    Example:
    ```mlir
    %x = rt.pointer arena + 0 bytes 2048
    %y = rt.pointer arena + 2048 bytes 512
    %index = rt.pointer arena + 2560 bytes 512
    rt.pooling <"max", f32, [2, 4, 8, 8] -> [2, 4, 4, 4] kernel [3, 3] strides [2, 2] pads [1, 1, 1, 1] count_padding false> %x -> %y workspace %index
    ```
  }];
  let arguments = (ins RT_PlanIndex<RT_PoolingPlan>:$plan, RT_Read<>:$source, RT_Written<>:$destination,
                       RT_Updated<Optional<RT_Pointer>>:$workspace);
  let assemblyFormat = "$plan $source `->` $destination (`workspace` $workspace^)? attr-dict";
}

def RT_AttentionPlan : AttrDef<RT_Dialect, "AttentionPlan",
    [DeclareAttrInterfaceMethods<PlanAttrInterface, ["countExps"]>]> {
  let mnemonic = "attention";
  let summary = "shape, strides and mask of attention";
  let description = [{
    `query` is batch, heads, queries, width; `key` is batch, groups, keys, width,
    where heads are a multiple of groups; `valueWidth` is the width of a value.
    Strides are in elements, per batch, head and row; elements of a row are dense.
    The mask's have a fourth entry, per key, and are 0 where the mask broadcasts.
    `causal` hides key s from query t where s > t + keys - queries.

    `output` is the result of the forward and an operand of the backward. The
    strides after `grad` are the backward's alone: of the output's cotangent, then
    of the cotangents of query, key and value. `library` names the library on GPUs
    and is absent on the host.
  }];
  let parameters = (ins "::mlir::Type":$element,
      "::mlir::DenseI64ArrayAttr":$query, "::mlir::DenseI64ArrayAttr":$key,
      "int64_t":$valueWidth, "::mlir::FloatAttr":$scale, "bool":$causal,
      "::mlir::DenseI64ArrayAttr":$strideQuery, "::mlir::DenseI64ArrayAttr":$strideKey,
      "::mlir::DenseI64ArrayAttr":$strideValue, "::mlir::DenseI64ArrayAttr":$strideOutput,
      OptionalParameter<"::mlir::Type">:$mask,
      OptionalParameter<"::mlir::DenseI64ArrayAttr">:$strideMask,
      OptionalParameter<"::mlir::DenseI64ArrayAttr">:$strideGrad,
      OptionalParameter<"::mlir::DenseI64ArrayAttr">:$strideDQuery,
      OptionalParameter<"::mlir::DenseI64ArrayAttr">:$strideDKey,
      OptionalParameter<"::mlir::DenseI64ArrayAttr">:$strideDValue,
      OptionalParameter<"::mlir::StringAttr">:$library);
  let assemblyFormat = [{
    `<` $element `,` $query `,` $key `,` $valueWidth `scale` $scale `causal` $causal
    `strides` $strideQuery `,` $strideKey `,` $strideValue `->` $strideOutput
    (`mask` $mask^ $strideMask)?
    (`grad` $strideGrad^ `->` $strideDQuery `,` $strideDKey `,` $strideDValue)?
    (`library` $library^)? `>`
  }];
}

def RT_AttentionOp : RT_Command<"attention", "compute", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Computes attention";
  let description = [{
    Calls `fsdpc_attention` on stream `compute`. Writes
    softmax(q · kᵀ · scale + mask) · v to `output`, and the log-sum-exp of each row of
    scores (f32, dense) to `lse`. `rows` is the kernel between the two products. The
    host runs it once per block of scores; on GPUs there is none, since the library
    has its own. Its buffers are:

    - scores (f32): q · kᵀ of the block; overwritten
    - weights: softmax weights in the plan's type; the same memory as the scores if
      that type is f32
    - lse: one value per row of the block
    - mask: at the block's first row and key, or null
    - int64[4]: [0] keys in the block; [1] row stride of scores and weights, a
      multiple of 16; [2] keys that the first row sees (causal: each later row sees
      one more); [3] row stride of the mask

    The kernel writes 0 as the weight of every key that a row does not see.

    **Constraints**
    - `rows`, where present, names a function marked `nn.kernel`.
    - `mask` is present where the plan has a mask, and only there.

    Example:
    ```mlir
    func.func private @attention_rows(%q: tensor<2x2x4x8xf32>, %k: tensor<2x1x6x8xf32>, %v: tensor<2x1x6x8xf32>)
        -> (tensor<2x2x4x8xf32>, tensor<2x2x4xf32>) attributes {nn.kernel, nn.rows} {
      %o, %lse = nn.attention %q, %k, %v {scale = 0.5 : f64}
        : tensor<2x2x4x8xf32>, tensor<2x1x6x8xf32>, tensor<2x1x6x8xf32> -> tensor<2x2x4x8xf32>, tensor<2x2x4xf32>
      return %o, %lse : tensor<2x2x4x8xf32>, tensor<2x2x4xf32>
    }
    %o = rt.pointer arena + 1280 bytes 512
    %lse = rt.pointer arena + 1792 bytes 64
    rt.attention <f32, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8]> @attention_rows(%q, %k, %v) -> %o, %lse
    ```
  }];
  let arguments = (ins RT_PlanIndex<RT_AttentionPlan>:$plan, RT_Kernel<OptionalAttr<FlatSymbolRefAttr>>:$rows, RT_Read<>:$query,
                       RT_Read<>:$key, RT_Read<>:$value, RT_Read<Optional<RT_Pointer>>:$mask,
                       RT_Written<>:$output, RT_Written<>:$lse);
  let assemblyFormat = [{
    $plan ($rows^)? `(` $query `,` $key `,` $value (`mask` $mask^)? `)` `->` $output `,` $lse attr-dict
  }];
}

def RT_AttentionGradOp : RT_Command<"attention_grad", "compute",
    [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Computes the cotangents of attention's query, key and value";
  let description = [{
    Calls `fsdpc_attention_grad` on stream `compute`. Reads `grad` (the output's
    cotangent), the operands of the forward and its results `output` and `lse`;
    writes `dquery`, `dkey` and `dvalue`. `rows` is as for `rt.attention`, with these
    buffers:

    - scores, weights, lse, mask: as for `rt.attention`, but lse is read
    - dweights (f32): grad · vᵀ of the block; overwritten
    - dscores: in the plan's type; the same memory as dweights if that type is f32
    - grad, output: at the block's first row
    - int64[6]: [0] to [3] as for `rt.attention`; [4] row stride of grad; [5] row
      stride of output

    **Constraints**
    - `rows`, where present, names a function marked `nn.kernel`.
    - `mask` is present where the plan has a mask, and only there.
    - The plan has the strides that follow `grad`.

    Example:
    ```mlir
    rt.attention_grad <f32, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal true strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8] grad [64, 32, 8] -> [64, 32, 8], [48, 0, 8], [48, 0, 8] library "cudnn">(%do, %q, %k, %v, %o, %lse) -> %dq, %dk, %dv
    ```
  }];
  let arguments = (ins RT_PlanIndex<RT_AttentionPlan>:$plan, RT_Kernel<OptionalAttr<FlatSymbolRefAttr>>:$rows, RT_Read<>:$grad,
                       RT_Read<>:$query, RT_Read<>:$key, RT_Read<>:$value,
                       RT_Read<>:$output, RT_Read<>:$lse, RT_Read<Optional<RT_Pointer>>:$mask,
                       RT_Written<>:$dquery, RT_Written<>:$dkey, RT_Written<>:$dvalue);
  let assemblyFormat = [{
    $plan ($rows^)? `(` $grad `,` $query `,` $key `,` $value `,` $output `,` $lse
    (`mask` $mask^)? `)` `->` $dquery `,` $dkey `,` $dvalue attr-dict
  }];
}

def RT_PoisonOp : RT_Command<"poison", "compute"> {
  let summary = "Fills memory whose value has ended with NaN";
  let description = [{
    Calls `fsdpc_poison` on stream `compute`. For the debug option `--poison`: every
    bit of the bytes becomes 1, which is NaN in every float type, so that a read of a
    dead value shows in the loss.

    **Constraints**
    - `bytes` does not exceed the pointer's bytes.

    Example:
    ```mlir
    %dead = rt.pointer arena + 0 bytes 1536
    rt.poison %dead bytes 1536
    ```
  }];
  let arguments = (ins RT_Written<>:$memory, RT_Int64:$bytes);
  let assemblyFormat = "$memory `bytes` $bytes attr-dict";
}

def RT_ReportLossOp : RT_Command<"report_loss", "compute", [MemoryEffects<[MemWrite<FSDP_StepReport>]>]> {
  let summary = "Reports the microbatch's loss";
  let description = [{
    Calls `fsdpc_report_loss` on stream `compute`. Reads `loss`, one f32, and
    `valid`, one f32: the loss's divisor (number or weight of the targets that
    count), 1 if there is none. Where the divisor is 0 the loss counts as 0 whatever
    it holds, and the runtime warns once per run. The program itself ensures that the
    gradient of such a microbatch is zero.

    **Constraints**
    - Each pointer reaches 4 bytes.

    Example:
    ```mlir
    %loss = rt.pointer arena + 0 bytes 4
    %valid = rt.pointer arena + 64 bytes 4
    rt.report_loss %loss valid %valid
    ```
  }];
  let usesRank = 1;
  let arguments = (ins RT_Read<>:$loss, RT_Read<Optional<RT_Pointer>>:$valid);
  let assemblyFormat = "$loss (`valid` $valid^)? attr-dict";
}

// ---- collectives ----

let usesRank = 1 in {

def RT_AllGatherOp : RT_Command<"all_gather", "gather",
    [MemoryEffects<[MemRead<FSDP_ParameterMemory>, MemWrite<RT_GatherWindow>]>, LayoutUserOpInterface]> {
  let summary = "Gathers layouts from the shards of all ranks";
  let description = [{
    Calls `fsdpc_all_gather` on stream `gather`. Writes, for each layout, the shards
    of all ranks in rank order to its destination, in the compute type. The length
    is padded to equal shards, so that the destination has room for up to 128 bytes
    per rank after its last element. A destination that is the layout's own memory
    (space `whole`) is gathered in place.

    **Constraints**
    - There is one destination per layout.
    - The padding for `--max-ranks` ranks stays within the arena (`verify-rt`).

    Example:
    ```mlir
    %flat = rt.pointer arena + 4096 bytes 9216
    rt.all_gather [@h.1.flat] -> %flat
    ```
  }];
  let arguments = (ins RT_LayoutIndices:$layouts, RT_WrittenEach:$destinations);
  let assemblyFormat = "$layouts `->` $destinations attr-dict";
}

def RT_ReduceScatterOp : RT_Command<"reduce_scatter", "reduce",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>,
                    MemWrite<FSDP_GradientMemory>,
                    MemWrite<RT_ReduceWindow>]>,
     LayoutUserOpInterface]> {
  let summary = "Sums gradients over all ranks into the gradient shards";
  let description = [{
    Calls `fsdpc_reduce_scatter` on stream `reduce`. Reads each flat gradient, in the
    compute type, casts it to the wire type, sums over ranks in rank order in f32,
    and writes this rank's part to the layout's gradient shard (first microbatch of a
    step) or adds it (later ones).

    **Constraints**
    - There is one gradient per layout.

    Example:
    ```mlir
    %grad = rt.pointer arena + 4096 bytes 9216
    rt.reduce_scatter [@h.1.flat], %grad
    ```
  }];
  let arguments = (ins RT_LayoutIndices:$layouts, RT_ReadEach:$gradients);
  let assemblyFormat = "$layouts `,` $gradients attr-dict";
}

def RT_AccumulateOp : RT_Command<"accumulate", "compute",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>, LayoutUserOpInterface]> {
  let summary = "Adds a gradient to a layout's full-size accumulator";
  let description = [{
    Calls `fsdpc_accumulate` on stream `compute`. Used with `--reduce=step`: writes
    (first microbatch of a step) or adds the flat gradient to the layout's f32
    accumulator, which every rank then keeps in full. No communication.

    **Constraints**
    - The layout keeps "gradient" on every rank.

    Example:
    ```mlir
    %grad = rt.pointer arena + 4096 bytes 9216
    rt.accumulate @h.1.flat, %grad
    ```
  }];
  let arguments = (ins RT_LayoutIndex:$layout, RT_Read<>:$gradient);
  let assemblyFormat = "$layout `,` $gradient attr-dict";
}

// An op that works on the memory of layouts alone.
class RT_OnLayouts<string mnemonic, string stream, list<Trait> traits>
    : RT_Command<mnemonic, stream, !listconcat(traits, [LayoutUserOpInterface])> {
  let arguments = (ins RT_LayoutIndices:$layouts);
  let assemblyFormat = "$layouts attr-dict";
}

def RT_ReduceGradientsOp : RT_OnLayouts<"reduce_gradients", "reduce",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>,
                    MemWrite<RT_ReduceWindow>]>]> {
  let summary = "Sums the accumulated gradients over all ranks";
  let description = [{
    Calls `fsdpc_reduce_gradients` on stream `reduce`. Used once per step with
    `--reduce=step`: sums the full-size f32 gradients that `rt.accumulate` left,
    over ranks in rank order, into this rank's part of each.

    **Constraints**
    - The layouts keep "gradient" on every rank.

    Example:
    ```mlir
    rt.reduce_gradients [@h.0.flat, @h.1.flat]
    ```
  }];
}

def RT_GatherGradientsOp : RT_OnLayouts<"gather_gradients", "gather",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>,
                    MemWrite<RT_GatherWindow>]>]> {
  let summary = "Gathers the reduced gradients of all ranks in place";
  let description = [{
    Calls `fsdpc_gather_gradients` on stream `gather`. Used by the strategy `ddp`:
    after it every rank holds the whole f32 gradient of each layout.

    **Constraints**
    - The layouts keep "gradient" on every rank.

    Example:
    ```mlir
    rt.gather_gradients [@h.0.flat, @h.1.flat]
    ```
  }];
}

def RT_UpdateStatisticsOp : RT_Command<"update_statistics", "reduce",
    [MemoryEffects<[MemWrite<RT_ReduceWindow>,
                    MemRead<RT_StatisticsMemory>,
                    MemWrite<RT_StatisticsMemory>]>]> {
  let summary = "Applies the batch statistics of all ranks to a buffer";
  let description = [{
    Calls `fsdpc_update_statistics` on stream `reduce`. Gathers every rank's
    statistic (f32, the buffer's length), then computes, for the ranks in order,
    buffer = (1 - momentum) · buffer + momentum · statistic.

    **Constraints**
    - `buffer` names an `fsdp.buffer` of the statistic's length.

    Example:
    ```mlir
    %mean = rt.pointer arena + 0 bytes 64
    rt.update_statistics @bn.running_mean, %mean momentum 1.000000e-01
    ```
  }];
  let arguments = (ins RT_BufferIndex:$buffer, RT_Read<>:$statistic, RT_Float64:$momentum);
  let assemblyFormat = "$buffer `,` $statistic `momentum` $momentum attr-dict";
}

// ---- update ----

def RT_SumSquaresOp : RT_Command<"sum_squares", "compute",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>]>, LayoutUserOpInterface]> {
  let summary = "Sums the squares of this rank's gradients";
  let description = [{
    Calls `fsdpc_sum_squares` on stream `compute`. Writes one f64 per layout: the sum
    of squares over this rank's part of its gradient, padding not counted.

    **Constraints**
    - `sums` reaches 8 bytes per layout.

    Example:
    ```mlir
    %sums = rt.pointer arena + 0 bytes 16
    rt.sum_squares [@h.0.flat, @h.1.flat] -> %sums
    ```
  }];
  let arguments = (ins RT_LayoutIndices:$layouts, RT_Written<>:$sums);
  let assemblyFormat = "$layouts `->` $sums attr-dict";
}

def RT_AllReduceOp : RT_Command<"all_reduce", "reduce", [MemoryEffects<[MemWrite<RT_ReduceWindow>]>]> {
  let summary = "Sums numbers over all ranks in place";
  let description = [{
    Calls `fsdpc_all_reduce` on stream `reduce`. Reads and writes `count` f64; the sum
    is in rank order, so that all ranks hold the same bits.

    **Constraints**
    - `values` reaches 8 · `count` bytes.

    Example:
    ```mlir
    %sums = rt.pointer arena + 0 bytes 16
    rt.all_reduce %sums count 2
    ```
  }];
  let arguments = (ins RT_Int32:$count, RT_Updated<>:$values);
  let assemblyFormat = "$values `count` $count attr-dict";
}

def RT_ClipOp : RT_Command<"clip", "compute", [MemoryEffects<[MemWrite<FSDP_StepReport>]>]> {
  let summary = "Computes the factor that scales and clips the gradients";
  let description = [{
    Calls `fsdpc_clip` on stream `compute`. With V the number of microbatches of a
    step over all ranks, norm = sqrt(Σ sums) / V is reported, and `scale` (one f32)
    becomes min(1, max_norm / (norm + 1e-6)) / V, or 1 / V where max_norm is 0. A sum
    that is not finite stops the run and names the first unit that has one.

    **Constraints**
    - `sums` reaches 8 bytes per layout, `scale` 4 bytes.

    Example:
    ```mlir
    %sums = rt.pointer arena + 0 bytes 16
    %scale = rt.pointer arena + 64 bytes 4
    rt.clip [@h.0.flat, @h.1.flat], %sums max_norm 1.000000e+00 -> %scale
    ```
  }];
  let arguments = (ins RT_LayoutIndices:$layouts, RT_Read<>:$sums, RT_Float64:$max_norm,
                       RT_Written<>:$scale);
  let assemblyFormat = "$layouts `,` $sums `max_norm` $max_norm `->` $scale attr-dict";
}

def RT_OptimizerOp : RT_Command<"optimizer", "compute",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>,
                    MemRead<FSDP_ParameterMemory>,
                    MemWrite<FSDP_ParameterMemory>,
                    MemRead<FSDP_OptimizerMemory>,
                    MemWrite<FSDP_OptimizerMemory>]>,
     LayoutUserOpInterface,
     DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Updates this rank's part of a layout";
  let description = [{
    Calls `fsdpc_optimizer` on stream `compute`. Runs an outlined optimizer over the
    elements of this rank's part of the layout (all of it where the state is not
    sharded), with each member's learning rate and weight decay. It reads the
    gradient and `scale` (one f32), and updates the master weights, the states and,
    where the layout has one, the copy in the compute type.

    The kernel's buffers are indexed by element of that part: master, gradient,
    state 0 … state n-1, and the copy in the compute type if there is one. Then
    follow `scale` and

    - on the host double[4]: lr · the member's rate; step, from 1; the member's weight
      decay; unused. The kernel runs once per member and range.
    - on a GPU int64[3] per segment: from, to (elements of the part), member; and
      double[4] per member. One launch, with one block per segment.

    **Constraints**
    - `kernel` names a function marked `nn.kernel`.

    Example:
    ```mlir
    func.func private @sgd(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64) -> f32 attributes {nn.kernel, nn.optimizer} {
      %rate = arith.truncf %lr : f64 to f32
      %change = arith.mulf %rate, %g : f32
      %new = arith.subf %p, %change : f32
      return %new : f32
    }
    %scale = rt.pointer arena + 64 bytes 4
    rt.optimizer @sgd(@h.0.flat, %scale)
    ```
  }];
  let arguments = (ins RT_Kernel<>:$kernel, RT_LayoutIndex:$layout, RT_Read<>:$scale);
  let assemblyFormat = "$kernel `(` $layout `,` $scale `)` attr-dict";
}

} // usesRank

#endif
