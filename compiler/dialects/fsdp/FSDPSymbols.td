// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Symbols: parameters, buffers, units and layouts. Parameters are symbols and
// never SSA values, because their memory outlives a step and is shared by
// @microbatch and @update. FSDPModel.td has the ops through which functions reach
// them.
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

    A `stored` parameter is a constant of the model that ranks share, such as the codes
    and scales of a quantised weight. It keeps its type, whatever the model computes in:
    it has no master, and lies in a layout of bytes.

    **Constraints**
    - The symbol is unique in its module.
    - `type` is a tensor of static shape.
    - A `stored` parameter is not `trainable`, and has no `rule`.
    - `unit`, where present, names an `fsdp.unit`.

    Example:
    ```mlir
    fsdp.parameter @h.0.weight : tensor<8x4xf32> trainable unit @h.0 {aliases = ["lm_head.weight"],
      source = #fsdp.source<file = "gpt.onnx.data", offset = 128, length = 128, dtype = "float32", hash = "8fd5a3b1c2e49607">}
    fsdp.parameter @h.0.scale : tensor<8xf32> unit @h.0 {rule = "ones"}
    fsdp.parameter @h.0.bias : tensor<16xf32> trainable unit @h.0 {rule = "zeros"}
    fsdp.parameter @h.1.weight : tensor<8x4xf32> trainable unit @h.1 {rule = "zeros"}
    fsdp.parameter @h.1.codes : tensor<8x4xi8> stored unit @h.1 {
      source = #fsdp.source<file = "gpt.onnx.data", offset = 256, length = 32, dtype = "i8", hash = "3c1e0f5a97d24b68">}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<NN_Tensor>:$type,
                       UnitAttr:$trainable, UnitAttr:$stored,
                       OptionalAttr<FlatSymbolRefAttr>:$unit,
                       OptionalAttr<StrArrayAttr>:$aliases,
                       OptionalAttr<FSDP_Source>:$source,
                       OptionalAttr<StrAttr>:$rule,
                       OptionalAttr<ElementsAttr>:$value);
  let assemblyFormat = [{
    $sym_name `:` $type (`trainable` $trainable^)? (`stored` $stored^)? (`unit` $unit^)? attr-dict
  }];
  let hasVerifier = 1; // what is stored is neither trained nor computed by a rule
}

def FSDP_BufferOp : FSDP_Op<"buffer", [Symbol]> {
  let summary = "State of the model that no gradient reaches";
  let description = [{
    Declares a tensor that training changes without an optimizer, such as the running
    statistics of BatchNorm. Every rank keeps all of it, with an initial value as of
    `fsdp.parameter`. `counts` marks a `num_batches_tracked`, which grows by the number
    of microbatches of a step, times `calls` where a forward calls its module more than
    once. `state` marks a factor of `fsdp.update_factors`, which begins at zero and is in
    checkpoints, but not in the model's files.

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
    class and the path of that module, as the exporter wrote them.

    **Constraints**
    - The symbol is unique in its module.

    Example:
    ```mlir
    fsdp.unit @h.0 {fsdp.recomputed = {of = 14 : i64, ops = 4 : i64, us = 812 : i64}, module_class = "gpt.Block", scope = "h.0"}
    fsdp.unit @h.1 {module_class = "gpt.Block", scope = "h.1"}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$module_class,
                       OptionalAttr<StrAttr>:$scope);
  let assemblyFormat = "$sym_name attr-dict";
}

def FSDP_LayoutOp : FSDP_Op<"layout", [Symbol, UsesSymbols]> {
  let summary = "A flat buffer of a unit's parameters, cut into equal shards";
  let description = [{
    Says how the parameters of a unit lie one after the other in one buffer. A unit
    has a layout for its trainable parameters, one for its frozen ones, and one for those
    that are `stored`. Offsets
    and `elements` count elements, not bytes; `elements` is the end of the last
    member. At run time the buffer is padded so that all ranks have equal shards.

    `compute` is the element type that the model computes in. With ui8 the layout is one
    of bytes: its members are `stored` and keep their types, it has no master, and what
    counts elements counts bytes. `states` is the number
    of f32 tensors that the optimizer keeps per element; with `average`, the last of
    them is the running average of the parameters (`--ema`). A layout with `no_master` keeps its
    parameters in the compute type alone (`--master=none`): the optimizer reads them there and
    rounds the new ones stochastically. The parts of a rank's share that `offloaded` lists ("state",
    "gradient" or "parameter") lie in a file and not in memory, or for a GPU in pinned memory and not in its own: the ops of @update go through them
    piece by piece, gathers read parameters from there, and reductions add to the gradient there.
    The list may be edited in a dump. `strategy` is the layout's
    strategy where it is not that of the option `strategy`. `group` is the number of the
    `--group`, from 1, whose optimizer and hyperparameters update the members, where
    these are not those of the options. `whole` lists what every rank keeps in full
    under the strategy (of what there is), any of "compute", "gradient", "master" and "state"; the rest is
    sharded. A layout that is `secondary` has a second shard per rank, over a group of
    ranks and in the compute type, from which gathers may read within a microbatch
    (`fsdp.all_gather`). With `wire` every gather of the parameters sends blocks of 256
    elements of that type, each with an f32 scale, and converts them to `compute` when
    they have arrived (ZeRO++'s qwZ: Wang et al., ZeRO++, 2023); members then begin at
    multiples of 256. With a `compression` each rank sends less than its gradients in a reduction,
    and keeps the rest for the next one (`--reduce-hook`; Stich et al., Sparsified SGD with
    Memory, 2018). A word and a number say how, as `top_k` and the elements that a rank sends: the
    kinds are those of runtime/abi/compressions.h.
    Rates and decays of the members can be edited in a dump. `optimizer` says what the
    optimizer keeps and takes: the memory plan, the runtime and checkpoints ask it, and
    none of them knows an optimizer's name. Without it the states have no names, and nothing is taken of
    whole parameters.

    **Constraints**
    - The symbol is unique in its module, and `unit` names an `fsdp.unit`.
    - `compute` is f32, bf16 or f16, or ui8 if all members are `stored`.
    - There is at least one member. Each starts at a multiple of 16 elements (64 bytes in a
      layout of bytes), is not empty, and begins no earlier than the one before it ends.
    - `elements` is the end of the last member.
    - Each member names an `fsdp.parameter` with that number of elements (of bytes in a
      layout of bytes), trainable if and only if the layout is.
    - A frozen layout has no states, no `average`, no `group` and no `optimizer`.
    - `optimizer`, where present, names all states but that of `average`.
    - With `average`, or an `offloaded` state, there is at least one state.
    - `offloaded` lists no "gradient" of a frozen layout, none that `whole` lists, and no
      "parameter" if `whole` lists "master".
    - With `no_master`, `compute` is bf16.
    - `strategy`, where present, is one of the option's names.
    - `whole` lists only the four kinds above, and not "compute" if the layout is
      `secondary`.
    - `wire`, where present, is i8 or f8E4M3FN, and `whole` does not list "master".
    - The amount of a `compression` is one that its kind allows for so many elements, and the
      layout is trainable.
    - A layout of bytes is frozen, and has no `wire`.

    Example:
    ```mlir
    fsdp.layout @h.0.flat of @h.0 trainable elements 32 : bf16 states 2 {
      members = [#fsdp.member<@h.0.weight[0, 32] rate 1.0 : f64 decay 0.01 : f64>],
      optimizer = #fsdp.optimizer<states = ["exp_avg", "exp_avg_sq"], sums = 2>, whole = ["compute"]}
    fsdp.layout @h.0.flat.group1 of @h.0 group 1 trainable elements 16 : bf16 states 1 average offloaded ["state", "gradient"] {
      members = [#fsdp.member<@h.0.bias[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
    fsdp.layout @h.0.frozen of @h.0 strategy "zero2" elements 8 : f32 states 0 {
      members = [#fsdp.member<@h.0.scale[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
    fsdp.layout @h.1.half of @h.1 trainable elements 32 : bf16 no_master states 2 {
      members = [#fsdp.member<@h.1.weight[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
    fsdp.layout @h.1.frozen.bytes of @h.1 elements 32 : ui8 states 0 {
      members = [#fsdp.member<@h.1.codes[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
    fsdp.layout @h.1.flat of @h.1 trainable elements 32 : f32 wire i8 top_k 4 states 2 secondary {
      members = [#fsdp.member<@h.1.weight[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefAttr:$unit,
                       OptionalAttr<StrAttr>:$strategy,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntMinValue<1>]>>:$group,
                       UnitAttr:$trainable, I64Attr:$elements, TypeAttr:$compute,
                       OptionalAttr<TypeAttr>:$wire, OptionalAttr<FSDP_Compression>:$compression,
                       UnitAttr:$no_master,
                       I64Attr:$states, UnitAttr:$average,
                       OptionalAttr<StrArrayAttr>:$offloaded,
                       UnitAttr:$secondary,
                       FSDP_Members:$members,
                       OptionalAttr<FSDP_Optimizer>:$optimizer,
                       StrArrayAttr:$whole);
  let assemblyFormat = [{
    $sym_name `of` $unit (`strategy` $strategy^)? (`group` $group^)?
    (`trainable` $trainable^)? `elements` $elements `:` $compute
    (`wire` $wire^)? (custom<Compression>($compression)^)? (`no_master` $no_master^)? `states` $states
    (`average` $average^)? (`offloaded` $offloaded^)? (`secondary` $secondary^)? attr-dict
  }];
  let hasVerifier = 1; // members aligned, disjoint, ordered, within elements
  let extraClassDeclaration = [{
    /// Returns true for a layout of bytes, whose members are `stored`.
    bool holdsBytes() { return getCompute().isUnsignedInteger(8); }
  }];
}

def FSDP_LossWeightOp : FSDP_Op<"loss_weight", [Symbol, IsolatedFromAbove]> {
  let summary = "The weight of a microbatch in a mean over targets";
  let description = [{
    Says how the weight of a microbatch (the number of its targets, or the sum of their
    class weights) follows from the model's inputs. The region takes the inputs that
    `inputs` names and yields the weight. A program of several buckets has a region per
    bucket. The runtime computes the weights of all microbatches of a step, in f64, and
    adds them up in the order of microbatches, before the step's first microbatch
    (`fsdp.loss_factor`).

    The divisor of the mean is the weight, but no less than `at_least` (a model that
    writes `mask.sum().clamp(min=1)`), plus `plus`. A step's divisor follows from the
    step's weight in the same way. With `per_microbatch`, both numbers are those of a
    mean (`mask.mean().clamp(min=1e-6)`), and a step of V microbatches has V times them.

    **Constraints**
    - Each region has one block, with a tensor argument per name of `inputs`.
    - Its ops have no memory effects and no regions.
    - It yields one scalar: a tensor of numbers without dimensions.
    - `at_least` and `plus` are finite and not negative. `per_microbatch` has one of them.

    Example:
    ```mlir
    fsdp.loss_weight @loss_weight ["labels"] {
    ^bb0(%labels: tensor<2x12xi64>):
      %c = nn.constant dense<-100> : tensor<2x12xi64>
      %counts = nn.cmp ne %labels, %c : tensor<2x12xi64> -> tensor<2x12xi1>
      %ones = nn.cast %counts : tensor<2x12xi1> -> tensor<2x12xf32>
      %sum = nn.reduce sum %ones [0, 1] : tensor<2x12xf32> -> tensor<1x1xf32>
      %weight = nn.reshape %sum : tensor<1x1xf32> -> tensor<f32>
      fsdp.yield %weight : tensor<f32>
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrArrayAttr:$inputs,
                       OptionalAttr<F64Attr>:$at_least, OptionalAttr<F64Attr>:$plus,
                       UnitAttr:$per_microbatch);
  let regions = (region VariadicRegion<SizedRegion<1>>:$counts);
  let assemblyFormat = [{
    $sym_name $inputs (`at_least` $at_least^)? (`plus` $plus^)? (`per_microbatch` $per_microbatch^)?
    attr-dict-with-keyword $counts
  }];
  let hasVerifier = 1;
}

#endif
