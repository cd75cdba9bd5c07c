// Symbols: parameters, buffers, units, layouts; and how functions reach them
// before sharding.
#ifndef FSDPC_FSDP_SYMBOLS
#define FSDPC_FSDP_SYMBOLS

include "compiler/dialects/fsdp/FSDPBase.td"

defvar UsesSymbols = DeclareOpInterfaceMethods<SymbolUserOpInterface>;

def FSDP_ParameterOp : FSDP_Op<"parameter", [Symbol, UsesSymbols]> {
  let summary = "a parameter of the model: FQN, f32 shape, where its value comes from";
  let description = [{
    The symbol's name is the FQN. `aliases` are other FQNs of a tied weight.
    `source` (bytes of a file), else `rule` (an initialisation rule), else
    `value` (embedded) gives the initial value; none of them means that --init
    must. `unit` owns it (from the phase `units` on).

    ```mlir
    fsdp.parameter @"h.0.attn.weight" : tensor<1152x384xf32> trainable unit @h.0
      {source = #fsdp.source<…>, aliases = ["lm_head.weight"]}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<NN_Tensor>:$type,
                       UnitAttr:$trainable,
                       OptionalAttr<FlatSymbolRefAttr>:$unit,
                       OptionalAttr<StrArrayAttr>:$aliases,
                       OptionalAttr<FSDP_Source>:$source,
                       OptionalAttr<StrAttr>:$rule,
                       OptionalAttr<ElementsAttr>:$value);
  let assemblyFormat = [{
    $sym_name `:` $type (`trainable` $trainable^)? (`unit` $unit^)? attr-dict
  }];
}

def FSDP_BufferOp : FSDP_Op<"buffer", [Symbol]> {
  let summary = "state of the model that no gradient reaches, whole on every rank";
  let description = [{
    BatchNorm's running statistics. `counts` marks num_batches_tracked, which
    grows by the number of microbatches of a step.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<NN_Tensor>:$type,
                       UnitAttr:$counts, OptionalAttr<StrArrayAttr>:$aliases,
                       OptionalAttr<FSDP_Source>:$source,
                       OptionalAttr<StrAttr>:$rule,
                       OptionalAttr<ElementsAttr>:$value);
  let assemblyFormat = "$sym_name `:` $type (`counts` $counts^)? attr-dict";
}

def FSDP_UnitOp : FSDP_Op<"unit", [Symbol]> {
  let summary = "a unit: what is gathered, freed and reduced together";
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$module_class,
                       OptionalAttr<StrAttr>:$scope);
  let assemblyFormat = "$sym_name attr-dict";
}

def FSDP_LoadOp : FSDP_Op<"load", [Pure, UsesSymbols]> {
  let summary = "the value of a parameter or buffer (until `shard-parameters`)";
  let description = [{ Parameters do not change within a microbatch, hence Pure. }];
  let arguments = (ins FlatSymbolRefAttr:$symbol);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$symbol attr-dict `:` type($result)";
}

def FSDP_GradientOp : FSDP_Op<"gradient", [MemoryEffects<[MemWrite<FSDP_GradientMemory>]>,
    UsesSymbols]> {
  let summary = "this microbatch's gradient of a parameter (until `shard-parameters`)";
  let description = [{ Once a trainable parameter. }];
  let arguments = (ins FlatSymbolRefAttr:$parameter, NN_FloatTensor:$value);
  let assemblyFormat = "$parameter `,` $value attr-dict `:` type($value)";
}

def FSDP_UpdateStatisticsOp : FSDP_Op<"update_statistics",
    [MemoryEffects<[MemWrite<FSDP_BufferMemory>]>,
     UsesSymbols]> {
  let summary = "gathers a batch statistic of all ranks and applies them in rank order";
  let description = [{
    buffer = (1 - momentum) · buffer + momentum · statistic, for rank 0, 1, …: what
    one process gets that sees the microbatches one after the other.
  }];
  let arguments = (ins FlatSymbolRefAttr:$buffer, NN_StatTensor:$statistic,
                       F64Attr:$momentum);
  let assemblyFormat = "$buffer `,` $statistic attr-dict `:` type($statistic)";
}

def FSDP_RandomOp : FSDP_Op<"random", [Pure]> {
  let summary = "seed low, seed high, microbatch and step: what dropout is keyed by";
  let results = (outs StaticShapeTensorOf<[I32]>:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def FSDP_ReportLossOp : FSDP_Op<"report_loss", [MemoryEffects<[MemWrite]>]> {
  let summary = "this microbatch's loss, and the weight of its valid targets where known";
  let arguments = (ins NN_StatTensor:$loss, Optional<NN_StatTensor>:$valid);
  let assemblyFormat = "$loss (`valid` $valid^)? attr-dict `:` type($loss) (`,` type($valid)^)?";
}

def FSDP_LayoutOp : FSDP_Op<"layout", [Symbol, UsesSymbols]> {
  let summary = "a flat buffer of a unit's parameters, cut in equal shards";
  let description = [{
    Members stand at aligned offsets, in elements; `elements` is the end of the
    last. Trainable and frozen parameters of a unit have a layout each. `whole`
    lists what every rank keeps entire: any of "compute", "gradient", "master",
    "state"; the rest is sharded. `states` counts the optimizer's f32 tensors.

    ```mlir
    fsdp.layout @h.0.flat of @h.0 trainable elements 1774464 : bf16 states 2 {
      members = [#fsdp.member<@"h.0.ln_1.weight"[0, 384] rate 1.0 decay 0.0>, …], whole = []}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefAttr:$unit,
                       UnitAttr:$trainable, I64Attr:$elements, TypeAttr:$compute,
                       I64Attr:$states, FSDP_Members:$members, StrArrayAttr:$whole);
  let assemblyFormat = [{
    $sym_name `of` $unit (`trainable` $trainable^)? `elements` $elements `:`
    $compute `states` $states attr-dict
  }];
  let hasVerifier = 1; // members aligned, disjoint, ordered, within elements
}

#endif
