// The rt dialect: one op for each function of the runtime's C ABI
// (runtime/include/fsdpc.h), nothing else.
#ifndef FSDPC_RT_OPS
#define FSDPC_RT_OPS

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def RT_Dialect : Dialect {
  let name = "rt";
  let cppNamespace = "::fsdpc::rt";
  let summary = "Calls of the runtime, in the order in which they are enqueued";
  let description = [{
    `@microbatch` and `@update` are straight lines of calls. Each works on one
    stream: `compute`, `gather` or `reduce`; events order streams. Pointers say
    which bytes they reach, so that `verify-rt` can prove the absence of races.
    Kernels are the private functions marked `nn.kernel`.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

class RT_Op<string mnemonic, list<Trait> traits = []> : Op<RT_Dialect, mnemonic, traits>;

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

// ---- symbols ----

def RT_InputOp : RT_Op<"input", [Symbol]> {
  let summary = "an input of the program, one microbatch of it";
  let description = [{ Values outside [0, `bound`) but `ignored` are refused. }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$type,
                       OptionalAttr<I64Attr>:$bound, OptionalAttr<I64Attr>:$ignored);
  let assemblyFormat = "$sym_name `:` $type attr-dict";
}

def RT_ConstantOp : RT_Op<"constant", [Symbol]> {
  let summary = "constant data of the program";
  let arguments = (ins SymbolNameAttr:$sym_name, ElementsAttr:$value);
  let assemblyFormat = "$sym_name attr-dict $value";
}

// ---- addresses and events ----

def RT_PointerOp : RT_Op<"pointer", [Pure]> {
  let summary = "fsdpc_pointer: `bytes` bytes at `offset` in a space";
  let description = [{
    `symbol` names the input, constant, buffer or layout.

    ```mlir
    %0 = rt.pointer arena + 4096 bytes 81920
    %1 = rt.pointer whole @h.0.flat + 0 bytes 3548928
    ```
  }];
  let arguments = (ins RT_Space:$space, OptionalAttr<FlatSymbolRefAttr>:$symbol,
                       I64Attr:$offset, I64Attr:$bytes);
  let results = (outs RT_Pointer:$result);
  let assemblyFormat = "$space ($symbol^)? `+` $offset `bytes` $bytes attr-dict";
}

def RT_EventRecordOp : RT_Op<"event_record"> {
  let summary = "fsdpc_event_record: what the stream got so far precedes the event";
  let arguments = (ins RT_Stream:$stream, I32Attr:$event);
  let assemblyFormat = "$stream $event attr-dict";
}

def RT_EventWaitOp : RT_Op<"event_wait"> {
  let summary = "fsdpc_event_wait: what the stream gets from here on follows the event";
  let arguments = (ins RT_Stream:$stream, I32Attr:$event);
  let assemblyFormat = "$stream $event attr-dict";
}

// ---- compute ----

def RT_LaunchOp : RT_Op<"launch", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "fsdpc_launch: an outlined kernel over its outer range";
  let description = [{
    Buffers are the kernel's operands, then its results. The kernel's attributes
    `nn.extent` and `nn.grain` give the range and its least piece.
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<RT_Pointer>:$buffers);
  let assemblyFormat = "$kernel `(` $buffers `)` attr-dict";
}

def RT_MatmulPlan : AttrDef<RT_Dialect, "MatmulPlan"> {
  let mnemonic = "matmul";
  let summary = "C[b] = A[b] · B[b] (+ C[b], or + a row); strides in elements, batch stride 0 broadcasts";
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

def RT_MatmulOp : RT_Op<"matmul"> {
  let summary = "fsdpc_matmul";
  let arguments = (ins RT_MatmulPlan:$plan, RT_Pointer:$a, RT_Pointer:$b,
                       Optional<RT_Pointer>:$bias, RT_Pointer:$c);
  let assemblyFormat = "$plan $a `,` $b (`bias` $bias^)? `->` $c attr-dict";
}

def RT_ConvolutionPlan : AttrDef<RT_Dialect, "ConvolutionPlan"> {
  let mnemonic = "convolution";
  let summary = "NCHW by OIHW; kind forward, input or weight";
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

def RT_ConvolutionOp : RT_Op<"convolution"> {
  let summary = "fsdpc_convolution: forward (x, w, y), input (dy, w, dx), weight (x, dy, dw)";
  let arguments = (ins RT_ConvolutionPlan:$plan, RT_Pointer:$x, RT_Pointer:$w, RT_Pointer:$y);
  let assemblyFormat = "$plan $x `,` $w `->` $y attr-dict";
}

def RT_PoolingPlan : AttrDef<RT_Dialect, "PoolingPlan"> {
  let mnemonic = "pooling";
  let summary = "kind max, average, max_grad or average_grad";
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

def RT_PoolingOp : RT_Op<"pooling"> {
  let summary = "fsdpc_pooling; the workspace holds indices of maxima";
  let description = [{ Forward kinds write the destination and the workspace, gradients read it. }];
  let arguments = (ins RT_PoolingPlan:$plan, RT_Pointer:$source, RT_Pointer:$destination,
                       Optional<RT_Pointer>:$workspace);
  let assemblyFormat = "$plan $source `->` $destination (`workspace` $workspace^)? attr-dict";
}

def RT_AttentionPlan : AttrDef<RT_Dialect, "AttentionPlan"> {
  let mnemonic = "attention";
  let summary = "blocks of queries; strides in elements of batch, head, row (mask: and key)";
  let description = [{
    query is batch, heads, queries, width; key is batch, groups, keys, width.
    `output` is the result of the forward and an operand of the backward, whose
    own strides are those of `grad` and of the three cotangents.
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

def RT_AttentionOp : RT_Op<"attention", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "fsdpc_attention; `rows` is the kernel between the products, the host's alone";
  let arguments = (ins RT_AttentionPlan:$plan, OptionalAttr<FlatSymbolRefAttr>:$rows, RT_Pointer:$query,
                       RT_Pointer:$key, RT_Pointer:$value, Optional<RT_Pointer>:$mask,
                       RT_Pointer:$output, RT_Pointer:$lse);
  let assemblyFormat = [{
    $plan ($rows^)? `(` $query `,` $key `,` $value (`mask` $mask^)? `)` `->` $output `,` $lse attr-dict
  }];
}

def RT_AttentionGradOp : RT_Op<"attention_grad", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "fsdpc_attention_grad; `rows` is the kernel between the products, the host's alone";
  let arguments = (ins RT_AttentionPlan:$plan, OptionalAttr<FlatSymbolRefAttr>:$rows, RT_Pointer:$grad,
                       RT_Pointer:$query, RT_Pointer:$key, RT_Pointer:$value,
                       RT_Pointer:$output, RT_Pointer:$lse, Optional<RT_Pointer>:$mask,
                       RT_Pointer:$dquery, RT_Pointer:$dkey, RT_Pointer:$dvalue);
  let assemblyFormat = [{
    $plan ($rows^)? `(` $grad `,` $query `,` $key `,` $value `,` $output `,` $lse
    (`mask` $mask^)? `)` `->` $dquery `,` $dkey `,` $dvalue attr-dict
  }];
}

def RT_PoisonOp : RT_Op<"poison"> {
  let summary = "fsdpc_poison: the memory's value has ended (--poison)";
  let arguments = (ins RT_Pointer:$memory, I64Attr:$bytes);
  let assemblyFormat = "$memory `bytes` $bytes attr-dict";
}

def RT_ReportLossOp : RT_Op<"report_loss"> {
  let summary = "fsdpc_report_loss";
  let arguments = (ins RT_Pointer:$loss, Optional<RT_Pointer>:$valid);
  let assemblyFormat = "$loss (`valid` $valid^)? attr-dict";
}

// ---- collectives ----

def RT_AllGatherOp : RT_Op<"all_gather"> {
  let summary = "fsdpc_all_gather, on stream gather";
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts, Variadic<RT_Pointer>:$destinations);
  let assemblyFormat = "$layouts `->` $destinations attr-dict";
}

def RT_ReduceScatterOp : RT_Op<"reduce_scatter"> {
  let summary = "fsdpc_reduce_scatter, on stream reduce";
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts, Variadic<RT_Pointer>:$gradients);
  let assemblyFormat = "$layouts `,` $gradients attr-dict";
}

def RT_AccumulateOp : RT_Op<"accumulate"> {
  let summary = "fsdpc_accumulate, on stream compute";
  let arguments = (ins FlatSymbolRefAttr:$layout, RT_Pointer:$gradient);
  let assemblyFormat = "$layout `,` $gradient attr-dict";
}

class RT_OnLayouts<string mnemonic, string what> : RT_Op<mnemonic> {
  let summary = what;
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts);
  let assemblyFormat = "$layouts attr-dict";
}
def RT_ReduceGradientsOp : RT_OnLayouts<"reduce_gradients", "fsdpc_reduce_gradients, on stream reduce">;
def RT_GatherGradientsOp : RT_OnLayouts<"gather_gradients", "fsdpc_gather_gradients, on stream gather">;

def RT_UpdateStatisticsOp : RT_Op<"update_statistics"> {
  let summary = "fsdpc_update_statistics, on stream reduce";
  let arguments = (ins FlatSymbolRefAttr:$buffer, RT_Pointer:$statistic, F64Attr:$momentum);
  let assemblyFormat = "$buffer `,` $statistic `momentum` $momentum attr-dict";
}

// ---- update ----

def RT_SumSquaresOp : RT_Op<"sum_squares"> {
  let summary = "fsdpc_sum_squares";
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts, RT_Pointer:$sums);
  let assemblyFormat = "$layouts `->` $sums attr-dict";
}

def RT_AllReduceOp : RT_Op<"all_reduce"> {
  let summary = "fsdpc_all_reduce, on stream reduce";
  let arguments = (ins RT_Pointer:$values, I64Attr:$count);
  let assemblyFormat = "$values `count` $count attr-dict";
}

def RT_ClipOp : RT_Op<"clip"> {
  let summary = "fsdpc_clip";
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts, RT_Pointer:$sums, F64Attr:$max_norm,
                       RT_Pointer:$scale);
  let assemblyFormat = "$layouts `,` $sums `max_norm` $max_norm `->` $scale attr-dict";
}

def RT_OptimizerOp : RT_Op<"optimizer", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "fsdpc_optimizer: an outlined optimizer over this rank's part of a layout";
  let arguments = (ins FlatSymbolRefAttr:$kernel, FlatSymbolRefAttr:$layout, RT_Pointer:$scale);
  let assemblyFormat = "$kernel `(` $layout `,` $scale `)` attr-dict";
}

#endif
