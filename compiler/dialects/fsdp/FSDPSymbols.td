// Symbols (parameters, buffers, units, layouts) and the ops through which
// functions reach them. Parameters are symbols and never SSA values, because
// their memory outlives a step and is shared by @microbatch and @update.
#ifndef FSDPC_FSDP_SYMBOLS
#define FSDPC_FSDP_SYMBOLS

include "compiler/dialects/fsdp/FSDPBase.td"

defvar UsesSymbols = DeclareOpInterfaceMethods<SymbolUserOpInterface>;

def FSDP_ParameterOp : FSDP_Op<"parameter", [Symbol, UsesSymbols]> {
  let summary = "A parameter of the model";
  let description = [{
    Declares a parameter: its fully qualified name (the symbol), its shape, and where
    its initial value comes from. Masters are f32 whatever the model computes in, if there
    are any (`fsdp.layout`).

    `aliases` are the other names of a tied weight. The initial value is `source`
    (bytes of a file), else `rule` (an initialisation rule), else `value` (embedded);
    without any of them the program must be given `--init`. `unit` owns the
    parameter, from the phase `units` on. A parameter without `trainable` is frozen:
    it has no gradient and no optimizer state.

    **Constraints**
    - The symbol is unique in its module.
    - `type` is a tensor of static shape.
    - `unit`, where present, names an `fsdp.unit`.

    Example:
    ```mlir
    fsdp.parameter @h.0.weight : tensor<8x4xf32> trainable unit @h.0 {aliases = ["lm_head.weight"],
      source = #fsdp.source<file = "gpt.onnx.data", offset = 128, length = 128, dtype = "float32", hash = "8fd5a3b1c2e49607">}
    fsdp.parameter @h.0.scale : tensor<8xf32> unit @h.0 {rule = "ones"}
    fsdp.parameter @h.0.bias : tensor<16xf32> trainable unit @h.0 {rule = "zeros"}
    fsdp.parameter @h.1.weight : tensor<8x4xf32> trainable unit @h.1 {rule = "zeros"}
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
  let summary = "State of the model that no gradient reaches";
  let description = [{
    Declares a tensor that training changes without an optimizer, such as the running
    statistics of BatchNorm. Every rank keeps all of it, with an initial value as of
    `fsdp.parameter`. `counts` marks a `num_batches_tracked`, which grows by the number
    of microbatches of a step, times `calls` where a forward calls its module more than once. `state` marks a factor of `fsdp.update_factors`, which
    begins at zero and is in checkpoints, but not in the model's files.

    **Constraints**
    - The symbol is unique in its module.
    - `type` is a tensor of static shape.
    - `calls`, where present, is at least 2, and the buffer `counts`.

    Example:
    ```mlir
    fsdp.buffer @bn.running_mean : tensor<4xf32> {rule = "zeros"}
    fsdp.buffer @bn.num_batches_tracked : tensor<i64> counts {rule = "zeros"}
    fsdp.buffer @h.0.weight.row_var : tensor<8x1xf32> state {rule = "zeros"}
    fsdp.buffer @h.0.weight.col_var : tensor<1x4xf32> state {rule = "zeros"}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<NN_Tensor>:$type,
                       UnitAttr:$counts, OptionalAttr<StrArrayAttr>:$aliases,
                       OptionalAttr<FSDP_Source>:$source,
                       OptionalAttr<StrAttr>:$rule,
                       OptionalAttr<ElementsAttr>:$value, UnitAttr:$state,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntMinValue<2>]>>:$calls);
  let assemblyFormat = "$sym_name `:` $type (`counts` $counts^)? (`state` $state^)? attr-dict";
  let hasVerifier = 1; // calls only with counts
}

def FSDP_UnitOp : FSDP_Op<"unit", [Symbol]> {
  let summary = "A set of parameters that are gathered, freed and reduced together";
  let description = [{
    Declares a unit, which `form-units` makes of a module of the model. Ops and
    parameters name the unit that they belong to. `module_class` and `scope` are the
    class and the path of that module, as the exporter wrote them. With
    `--recompute=auto`, the backward computes the whole unit again if it has `recompute`,
    which the compiler adds for `--memory-limit`.

    **Constraints**
    - The symbol is unique in its module.

    Example:
    ```mlir
    fsdp.unit @h.0 {module_class = "gpt.Block", recompute, scope = "h.0"}
    fsdp.unit @h.1 {module_class = "gpt.Block", scope = "h.1"}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$module_class,
                       OptionalAttr<StrAttr>:$scope, UnitAttr:$recompute);
  let assemblyFormat = "$sym_name attr-dict";
}

def FSDP_LoadOp : FSDP_Op<"load", [Pure, UsesSymbols, OutsideArena]> {
  let summary = "The value of a parameter or buffer";
  let description = [{
    Reads a parameter or buffer before sharding. `shard-parameters` replaces loads of
    parameters by views of flat buffers; loads of buffers stay. The op is Pure because
    a parameter does not change within a microbatch.

    **Constraints**
    - `symbol` names an `fsdp.parameter` or an `fsdp.buffer`.
    - The result has the symbol's type.

    Example:
    ```mlir
    %w = fsdp.load @h.0.weight : tensor<8x4xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$symbol);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$symbol attr-dict `:` type($result)";
}

def FSDP_GradientOp : FSDP_Op<"gradient", [MemoryEffects<[MemWrite<FSDP_GradientMemory>]>,
    UsesSymbols]> {
  let summary = "A parameter's gradient in this microbatch";
  let description = [{
    Hands over the gradient that `grad` computed for a parameter. There is one for
    each trainable parameter (`verify-grad`). `shard-parameters` replaces them by
    `fsdp.pack` and `fsdp.reduce`.

    **Constraints**
    - `parameter` names an `fsdp.parameter` that is trainable.
    - `value` has the parameter's shape.

    Example:
    ```mlir
    fsdp.gradient @h.0.weight, %dw : tensor<8x4xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$parameter, NN_FloatTensor:$value);
  let assemblyFormat = "$parameter `,` $value attr-dict `:` type($value)";
}

def FSDP_UpdateStatisticsOp : FSDP_Op<"update_statistics",
    [InF32, MemoryEffects<[MemWrite<FSDP_OtherRanks>]>, UsesSymbols]> {
  let summary = "Applies the batch statistics of the ranks to a buffer";
  let description = [{
    Gathers this microbatch's statistic of every rank and computes, for rank 0, 1, …,
    buffer = (1 - momentum) · buffer + momentum · statistic. One process that sees the
    microbatches one after the other gets the same. With `mode` the buffer takes one
    statistic: that of rank 0 ("broadcast"), the mean over ranks ("average"), or the
    rank's own, without communication ("local"). All ranks keep equal buffers but with
    "local", where they do if their statistics are equal.

    **Constraints**
    - `buffer` names an `fsdp.buffer`.
    - `statistic` has the buffer's type.
    - `mode`, where present, is a value of `--buffers`; "sequential" is the same as none.

    Example:
    ```mlir
    fsdp.update_statistics @bn.running_mean, %mean {momentum = 0.1 : f64} : tensor<4xf32>
    fsdp.update_statistics @bn.running_mean, %mean {mode = "average", momentum = 0.1 : f64} : tensor<4xf32>
    ```
  }];
  let arguments = (ins Arg<FlatSymbolRefAttr, "", [MemRead<FSDP_BufferMemory>,
                                                   MemWrite<FSDP_BufferMemory>]>:$buffer,
                       NN_StatTensor:$statistic,
                       F64Attr:$momentum, OptionalAttr<StrAttr>:$mode);
  let assemblyFormat = "$buffer `,` $statistic attr-dict `:` type($statistic)";
}

def FSDP_RandomOp : FSDP_Op<"random",
    [Pure, OutsideArena, FixedPerMicrobatch]> {
  let summary = "The numbers that random elements are keyed by";
  let description = [{
    Four i32: the seed's low and high word, the microbatch within the step, and the
    step. Every `nn.dropout` and `nn.uniform` reads them, so that a random element depends
    on nothing else than these, the op and the element.

    **Constraints**
    - The result is a tensor of i32; they want `tensor<4xi32>`.

    Example:
    ```mlir
    %random = fsdp.random : tensor<4xi32>
    ```
  }];
  let results = (outs StaticShapeTensorOf<[I32]>:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def FSDP_LossScaleOp : FSDP_Op<"loss_scale",
    [Pure, OutsideArena, FixedPerMicrobatch]> {
  let summary = "The factor of the loss's gradient in this step";
  let description = [{
    With `--loss-scale`, `grad` begins the backward with this number instead of 1, so
    that small gradients stay above the least number of f16 (Micikevicius et al., Mixed
    Precision Training, 2018). The runtime keeps the scale and changes it from step to
    step; `fsdp.clip_scale` divides by it.

    **Constraints**
    - The result is a scalar of f32.

    Example:
    ```mlir
    %scale = fsdp.loss_scale : tensor<f32>
    ```
  }];
  let results = (outs 0DTensorOf<[F32]>:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def FSDP_MicrobatchWeightOp : FSDP_Op<"microbatch_weight",
    [Pure, OutsideArena, FixedPerMicrobatch]> {
  let summary = "The weight of a microbatch in the mean gradient";
  let description = [{
    1/V, where V is the number of microbatches of a step over all ranks, which is known
    when the program starts. The hook `--reduce-hook=average=before` multiplies each
    gradient by it; `fsdp.clip_scale` then does not divide by V.

    **Constraints**
    - The result is a scalar of f32.

    Example:
    ```mlir
    %weight = fsdp.microbatch_weight : tensor<f32>
    ```
  }];
  let results = (outs 0DTensorOf<[F32]>:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def FSDP_ReportZeroedOp : FSDP_Op<"report_zeroed", [InF32, MemoryEffects<[MemWrite<FSDP_StepReport>]>]> {
  let summary = "Reports that a gradient had elements that were not finite";
  let description = [{
    The hook `--reduce-hook=zero-nonfinite` writes one of these per gradient. `zeroed` is
    1 if elements of the gradient were replaced by 0, else 0. The runtime sums the reports
    of a step over its microbatches and ranks; every rank gets the sum, and the log shows
    it as `zeroed`.

    **Constraints**
    - `zeroed` is a scalar of f32.

    Example:
    ```mlir
    fsdp.report_zeroed %zeroed : tensor<f32>
    ```
  }];
  let arguments = (ins 0DTensorOf<[F32]>:$zeroed);
  let assemblyFormat = "$zeroed attr-dict `:` type($zeroed)";
}

def FSDP_ReportLossOp : FSDP_Op<"report_loss", [MemoryEffects<[MemWrite<FSDP_StepReport>]>]> {
  let summary = "Reports the microbatch's loss";
  let description = [{
    Hands the loss to the runtime, which averages it over the step's microbatches and
    ranks for the log. `valid` is the loss's divisor (number or weight of the targets
    that count): where it is 0 the loss counts as 0, whatever it holds. `grad`
    differentiates the loss that this op reports.

    **Constraints**
    - `loss` and `valid` are tensors of f32 or f64.
    - A module has one such op (`verify-input`).

    Example:
    ```mlir
    fsdp.report_loss %loss valid %count : tensor<f32>, tensor<f32>
    ```
  }];
  let arguments = (ins NN_StatTensor:$loss, Optional<NN_StatTensor>:$valid);
  let assemblyFormat = "$loss (`valid` $valid^)? attr-dict `:` type($loss) (`,` type($valid)^)?";
}

def FSDP_ReportOutputOp : FSDP_Op<"report_output", [InF32, MemoryEffects<[MemWrite<FSDP_StepReport>]>]> {
  let summary = "Reports a further output of the model";
  let description = [{
    Hands a value to the runtime under the name that it has in the graph
    (`--keep-output`). A scalar is a metric, which the program logs (`--metric`); any
    other tensor is one microbatch of a prediction, which the program writes in
    evaluations (`--predict`). `build-evaluate` leaves the scalars in `@microbatch`, and
    all in `@evaluate`.

    **Constraints**
    - `name` is not empty.
    - `value` is of f32, i64, i32 or i1; a scalar is f32.
    - A function reports each name once, and `@evaluate` and `@microbatch` report a name
      with one type (`verify-input`).

    Example:
    ```mlir
    fsdp.report_output "accuracy" %accuracy : tensor<f32>
    fsdp.report_output "logits" %logits : tensor<4x10xf32>
    ```
  }];
  let arguments = (ins StrAttr:$name, StaticShapeTensorOf<[F32, I64, I32, I1]>:$value);
  let assemblyFormat = "$name $value attr-dict `:` type($value)";
  let extraClassDeclaration = [{
    /// Returns true if the value is a metric, and no prediction.
    bool isScalar() { return getValue().getType().getRank() == 0; }
  }];
  let hasVerifier = 1;
}

def FSDP_LayoutOp : FSDP_Op<"layout", [Symbol, UsesSymbols]> {
  let summary = "A flat buffer of a unit's parameters, cut into equal shards";
  let description = [{
    Says how the parameters of a unit lie one after the other in one buffer. A unit
    has a layout for its trainable parameters and one for its frozen ones. Offsets
    and `elements` count elements, not bytes; `elements` is the end of the last
    member. At run time the buffer is padded so that all ranks have equal shards.

    `compute` is the element type that the model computes in. `states` is the number
    of f32 tensors that the optimizer keeps per element; with `average`, the last of
    them is the running average of the parameters (`--ema`). A layout with `no_master` keeps its
    parameters in the compute type alone (`--master=none`): the optimizer reads them there and
    rounds the new ones stochastically. The states of a layout that
    is `offloaded` lie in a file, through which `fsdp.optimizer` goes piece by piece;
    nothing else may read them, and the mark may be edited in a dump. `strategy` is the layout's
    strategy where it is not that of the option `strategy`. `group` is the number of the
    `--group`, from 1, whose optimizer and hyperparameters update the members, where
    these are not those of the options. `whole` lists what every rank keeps in full
    under the strategy (of what there is), any of "compute", "gradient", "master" and "state"; the rest is
    sharded. A layout that is `secondary` has a second shard per rank, over a group of
    ranks and in the compute type, from which gathers may read within a microbatch
    (`fsdp.all_gather`). With `wire` every gather of the parameters sends blocks of 256
    elements of that type, each with an f32 scale, and converts them to `compute` when
    they have arrived (ZeRO++'s qwZ: Wang et al., ZeRO++, 2023); members then begin at
    multiples of 256. With `top_k` each rank sends that many elements of its gradients in a
    reduction, the largest ones of the gradient and of what it has not sent before, which it keeps
    (`--reduce-hook=top-k`; Stich et al., Sparsified SGD with Memory, 2018). With `power_sgd` it
    sends two factors of that rank in place of each matrix that is more than twice as large as they
    are, and keeps what they lack (`--reduce-hook=power-sgd`; Vogels et al., PowerSGD, 2019).
    Rates and decays of the members can be edited in a dump.

    **Constraints**
    - The symbol is unique in its module, and `unit` names an `fsdp.unit`.
    - `compute` is f32, bf16 or f16.
    - There is at least one member. Each starts at a multiple of 16 elements, is not
      empty, and begins no earlier than the one before it ends.
    - `elements` is the end of the last member.
    - Each member names an `fsdp.parameter` with that number of elements, trainable
      if and only if the layout is.
    - A frozen layout has no states, no `average` and no `group`.
    - With `average` or `offloaded` there is at least one state.
    - With `no_master`, `compute` is bf16.
    - No `fsdp.member_sums` or `fsdp.momentum_updates` is of an `offloaded` layout, and no
      `fsdp.member_sums` of one with `no_master`.
    - `strategy`, where present, is one of the option's names.
    - `whole` lists only the four kinds above, and not "compute" if the layout is
      `secondary`.
    - `wire`, where present, is i8 or f8E4M3FN, and `whole` does not list "master".
    - `top_k`, where present, is from 1 to `elements`, which are at most 2^32.
    - `power_sgd`, where present, is from 1 to 65536, and there is no `top_k`.
    - A layout with `top_k` or `power_sgd` is trainable.

    Example:
    ```mlir
    fsdp.layout @h.0.flat of @h.0 trainable elements 32 : bf16 states 2 {
      members = [#fsdp.member<@h.0.weight[0, 32] rate 1.0 : f64 decay 0.01 : f64>], whole = ["compute"]}
    fsdp.layout @h.0.flat.group1 of @h.0 group 1 trainable elements 16 : bf16 states 1 average offloaded {
      members = [#fsdp.member<@h.0.bias[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
    fsdp.layout @h.0.frozen of @h.0 strategy "zero2" elements 8 : f32 states 0 {
      members = [#fsdp.member<@h.0.scale[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
    fsdp.layout @h.1.half of @h.1 trainable elements 32 : bf16 no_master states 2 {
      members = [#fsdp.member<@h.1.weight[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
    fsdp.layout @h.1.rest of @h.1 trainable elements 32 : f32 power_sgd 1 states 2 {
      members = [#fsdp.member<@h.1.weight[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
    fsdp.layout @h.1.flat of @h.1 trainable elements 32 : f32 wire i8 top_k 4 states 2 secondary {
      members = [#fsdp.member<@h.1.weight[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefAttr:$unit,
                       OptionalAttr<StrAttr>:$strategy,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntMinValue<1>]>>:$group,
                       UnitAttr:$trainable, I64Attr:$elements, TypeAttr:$compute,
                       OptionalAttr<TypeAttr>:$wire, OptionalAttr<I64Attr>:$top_k,
                       OptionalAttr<I64Attr>:$power_sgd,
                       UnitAttr:$no_master,
                       I64Attr:$states, UnitAttr:$average, UnitAttr:$offloaded,
                       UnitAttr:$secondary,
                       FSDP_Members:$members,
                       StrArrayAttr:$whole);
  let assemblyFormat = [{
    $sym_name `of` $unit (`strategy` $strategy^)? (`group` $group^)?
    (`trainable` $trainable^)? `elements` $elements `:` $compute
    (`wire` $wire^)? (`top_k` $top_k^)? (`power_sgd` $power_sgd^)? (`no_master` $no_master^)? `states` $states
    (`average` $average^)? (`offloaded` $offloaded^)? (`secondary` $secondary^)? attr-dict
  }];
  let hasVerifier = 1; // members aligned, disjoint, ordered, within elements
}

#endif
