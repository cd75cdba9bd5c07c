// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes of the phase `shard`: after it, parameters are members of flat layouts in
// the type that the model computes in, and @update exists. verify-shard checks that.
// Optimizers and mixed precision follow torch.optim and PyTorch FSDP.
#ifndef FSDPC_PASSES_SHARD
#define FSDPC_PASSES_SHARD

include "mlir/Pass/PassBase.td"

def ShardParameters : Pass<"shard-parameters", "::mlir::ModuleOp"> {
  let summary = "Lays each unit's parameters out flat";
  let description = [{
    A unit @u gets the layout @u.flat of its trainable and @u.frozen of its frozen
    parameters. Parameters of another strategy than their unit's, or of a --group with
    another optimizer or other hyperparameters (beside rate and decay), have layouts of their own,
    such as @u.flat.zero2: those of fewer elements than `persist` in a unit that is gathered,
    whose strategy is the one that keeps the compute copy whole and is its equal otherwise
    (zero2 for zero3), and those that `ignored` matches, which are not sharded (ddp). Parameters
    that `fsdp.keep_f32` marks have one of their own too, as @u.flat.f32. Members follow each other in order of first
    use, at multiples of 16 elements. Each has a factor of the learning rate (1, or what
    --group and --layer-decay make of it) and a weight decay (that of its group, else 0
    where --no-decay matches). A trainable parameter that no gradient reaches joins the frozen
    ones, with a remark: torch.optim skips it too. `optimizer` says what the members' optimizer
    keeps and takes, as its row in `Optimizers.cpp` or the user's program has it.

    A unit has the strategy of the first `strategy-of` whose glob matches its name, else
    that of `strategy`. It stands on the unit's layouts where it differs from `strategy`,
    and can be edited there together with `whole`, what every rank keeps in full. A strategy
    is a row of `StrategyTable.cpp`:

    | strategy | keeps whole | cuts over | reduces at the end of a microbatch |
    |---|---|---|---|
    | zero3 | | all ranks | |
    | hybrid | | a group | |
    | zero2 | compute | all ranks | |
    | hybrid_zero2 | compute | a group | |
    | oss | compute | owners | |
    | zero1 | compute | all ranks | yes |
    | hybrid_zero1 | compute | a group | yes |
    | ddp | master, compute, state | all ranks | yes |

    A frozen layout has no state. Whole states have whole gradients, too, unless
    `max-accumulate = 1`: then nothing is added to a gradient, so each rank keeps the sum of its
    part, and the update gathers the others' parts layout by layout. `reduce = step` adds gradient
    to every trainable layout. With `max-accumulate = 1` and `max-ranks = 1`
    layouts whose state is neither whole nor owned are `fsdp.unsummed`: their gradients
    stay in the type in which they are computed, unless `reduce-dtype` would round them or the
    optimizer takes sums over whole parameters, rows and columns, or updates of matrices.

    With `layout-size = N` the members of such a layout are cut, in their order, into
    layouts of at most N elements, @u.flat, @u.flat.part1 and so on; a larger parameter has
    one of its own. Each is packed and reduced as soon as its own gradients exist, so that
    fewer of them lie in memory at a time. Under oss each trainable parameter has a layout
    of its own: one rank owns it, which the program decides when it knows how many ranks
    there are (`runtime/abi/owners.h`).

    With `layout = parameter` each parameter has a layout of its own, @u.flat, @u.flat.part1 and
    so on, and is cut over ranks by itself, as FSDP2 cuts its dim-0 shards. Those of a unit are
    packed at one place, so that fuse-small-collectives gathers and reduces them together.

    Each `reduce-hook` becomes ops on the gradient of a member, in the order given, in
    front of the pack. They see this rank's gradient of one microbatch, a loss scale
    included:

    | hook | its ops |
    |---|---|
    | `cast=T` | round to a 16-bit type and back |
    | `clip-value=X` | bound each element |
    | `predivide=X` | multiply by 1/X; the update multiplies the mean by X |
    | `average=before` | multiply by `fsdp.microbatch_weight`; the update does not divide by V (`after`, the default, has no ops) |
    | `zero-nonfinite` | select 0 where an element is not finite, and `fsdp.report_zeroed` |
    | `quantize=i8,block=N` | round each N elements to multiples of the largest one's size over 127; the type on the wire stays |
    | a compression, as `top-k=X%` | none: layouts have a `compression`, as `top_k 4`, and the reduction keeps what it does not send |
    | `FILE.mlir:@FUNCTION` | those of the function, which has constants and elementwise `nn` ops on tensor<1xf32>, with the gradient's shape |

    Their attribute `fsdp.hook` is the hook's number. outline-kernels fuses them with what
    computes the gradient.

    With `gather-dtype` all layouts but those of ddp and of `fsdp.keep_f32` have its type as
    `wire`. With it, and with a `reduce-dtype` of 8 or 4 bits, members stand at multiples of 256
    elements, so that a block on the wire has elements of one parameter.

    Loads become views of the flat buffer. The gradients of a layout become one
    `fsdp.pack`, right after the last of them, whose operands the planner places inside
    the buffer. An operand that cannot lie there (an argument, a constant, a weight, a
    value of another member, or a value that is read after the pack) is copied by
    `nn.copy`.

    Before:
    ```mlir
    %w = fsdp.load @h.0.w : tensor<8x8xf32>
    …
    fsdp.gradient @h.0.w, %dw : tensor<8x8xf32>
    ```
    After:
    ```mlir
    fsdp.layout @h.0.flat of @h.0 trainable elements 64 : f32 states 2 {
      members = [#fsdp.member<@h.0.w[0, 64] rate 1.0 : f64 decay 0.01 : f64>],
      optimizer = #fsdp.optimizer<states = ["exp_avg", "exp_avg_sq"]>, whole = []}
    …
    %f = fsdp.flat @h.0.flat : tensor<64xf32>
    %w = fsdp.view %f[@h.0.w at 0] : tensor<64xf32> -> tensor<8x8xf32>
    …
    %g = fsdp.pack @h.0.flat(%dw) : (tensor<8x8xf32>) -> tensor<64xf32>
    fsdp.reduce @h.0.flat, %g : tensor<64xf32>
    ```
  }];
  let statistics = [Statistic<"layouts", "layouts", "layouts made">,
                    Statistic<"copies", "copies", "gradients copied">];
  let dependentDialects = ["::fsdpc::fsdp::FSDPDialect", "::fsdpc::nn::NNDialect",
                           // of the user's optimizer
                           "::mlir::arith::ArithDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::math::MathDialect"];
}

def MixedPrecision : Pass<"mixed-precision", "::mlir::ModuleOp"> {
  let summary = "Computes in --param-dtype, with statistics and losses in f32";
  let description = [{
    With `param-dtype = bf16` (or `f16`) the flat buffers become bf16, and so do products with
    weights, rows looked up in them, and what is computed from these; masters stay f32. With
    `--master=none` the layouts in bf16 get `no_master`: their shards are bf16 as well. These
    stay f32:

    - statistics and losses, and the primitives that only lead to the loss (the squares
      and means of a squared error);
    - with `param-dtype = graph`: what is f32 in the model's file (`nn.type`). The next two rules
      apply only to ops whose type the file does not give;
    - what depends on inputs, positions and constants alone (timesteps, rotary angles, masks),
      until it meets a product with a weight or a value in bf16. With `cast-inputs` float
      inputs count as values in bf16;
    - arithmetic of parameters (`1 + w`, `exp(A_log)`), and what reads its results, up to the
      next product: a norm with such a scale is f32 as well;
    - buffers, additive masks of attention and class weights of cross-entropy;
    - comparisons with numbers that `nn.uniform` draws;
    - the ops and layouts of modules that `keep-f32` names (`fsdp.keep_f32`): their
      operands are cast, and what other modules read of their results is cast back.

    `nn.cast` stands wherever the two meet, separately in the forward and in the backward,
    so that no cast is kept between them. Constants, and what only moves them or chooses
    between them, are converted in place. A finite number beyond ±1e30 stays finite: the lowest
    f32 of a mask becomes the lowest bf16. A mask that is computed from such a number, as
    (1 - kept) · lowest, is limited to the finite numbers of bf16 before it is cast.
    Gradients are packed in bf16 and summed over ranks in f32. `fsdp.f32_islands` on the module
    counts the ops of the forward that stay f32 on inputs and on parameters.

    Before:
    ```mlir
    %f = fsdp.flat @u.flat : tensor<64xf32>
    %w = fsdp.view %f[@w at 0] : tensor<64xf32> -> tensor<8x8xf32>
    %y = nn.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    ```
    After:
    ```mlir
    %f = fsdp.flat @u.flat : tensor<64xbf16>
    %w = fsdp.view %f[@w at 0] : tensor<64xbf16> -> tensor<8x8xbf16>
    %c = nn.cast %x : tensor<4x8xf32> -> tensor<4x8xbf16>
    %y = nn.matmul %c, %w : tensor<4x8xbf16>, tensor<8x8xbf16> -> tensor<4x8xbf16>
    ```
  }];
  let statistics = [Statistic<"casts", "casts", "casts inserted">];
  let dependentDialects = ["::fsdpc::nn::NNDialect"];
}

def BuildUpdate : Pass<"build-update", "::mlir::ModuleOp"> {
  let summary = "Writes @update: norm, clipping and one optimizer program per layout";
  let description = [{
    The region of `fsdp.optimizer` is torch.optim's single-tensor algorithm for one
    element: f32 arithmetic in the same order, and scalars in f64 until they meet an
    element, as Python's floats do. Betas, epsilon and the like are constants in the
    region, named by their locations as the states are; rates and decays are in the
    layout. All of them can be edited in a dump. States are zero before the first step;
    what starts with another value is selected where the step is 1. With
    `--clip-grad-value` the region begins by clamping the gradient, which the scale has
    averaged and whose norm it has clipped. With `--ema` it ends with one more state, the
    average of the new parameter: in the first step the parameter itself, then decay times
    the average plus the rest times the parameter. A parameter that is trained from a later
    step on counts its steps from there, and has an average already, unless it is zero. A layout with a `group` has the optimizer
    and hyperparameters of that `--group`.

    Of a layout with `no_master` the region takes a random word too, and rounds the new
    parameter with it. The average of `--ema` is that of the rounded parameter, in f32:
    ```mlir
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %word: i32):
      …
      %p2 = nn.round_stochastic %p1, %word : f32, i32
      fsdp.yield %p2 : f32
    ```

    Some programs take sums over whole parameters. For each that takes any, one
    `fsdp.member_sums` of the layouts with this program follows clip_scale, with one
    `fsdp.all_reduce` of its results; its layouts with `no_master` have both of their own, whose
    region takes the parameter in bf16. The region of each optimizer takes the sums of its
    member as f64. Values that follow from them alone are computed once per member. An update
    that is summed is computed in both regions, rather than kept.
    ```mlir
    %n = fsdp.member_sums [@a.flat, @b.flat], %c : tensor<f32> -> tensor<6xf64> {
    ^bb0(%p: f32, %g: f32, %m: f32, %v: f32, %lr: f64, %step: f64, %decay: f64):
      …
      fsdp.yield %p2, %u2 : f64, f64
    }
    %t = fsdp.all_reduce %n : tensor<6xf64>
    fsdp.optimizer @b.flat, %c sums %t[4] : tensor<f32>, tensor<6xf64> {
    ```

    A factored optimizer keeps one number per row and one per column instead of one per
    element. The ranks add up the squares along rows and columns. `fsdp.update_factors`
    updates the averages and returns factors; the regions take the product of an
    element's two factors as its average of squares:
    ```mlir
    fsdp.buffer @w.row_var : tensor<8x1xf32> state {rule = "zeros"}
    %s = fsdp.factor_sums [@a.flat], %c {clip_value = 0.0 : f64} : tensor<f32> -> tensor<12xf64>
    %r = fsdp.all_reduce %s : tensor<12xf64>
    %f = fsdp.update_factors [@a.flat], %r {eps = 1.1920928955078125e-07 : f64, power = -8.0e-01 : f64} : tensor<12xf64>
    fsdp.optimizer @a.flat, %c sums %t[0] factors %f[0] : tensor<f32>, tensor<3xf64>, tensor<12xf64> {
    ```

    An orthogonal optimizer updates whole matrices. For each layout with its program this rank's part of the
    momentum's updates goes to the matrices' owners, which orthogonalise them, and comes
    back; the region takes the element's update:
    ```mlir
    %p = fsdp.momentum_updates @a.flat, %c {clip_value = 0.0 : f64, momentum = 0.95 : f64, nesterov} : tensor<f32> -> tensor<64xf32>
    %w = fsdp.collect_matrices @a.flat, %p : tensor<64xf32>
    %o = fsdp.orthogonalize @a.flat, %w {a = 3.4445 : f64, b = -4.775 : f64, c = 2.0315 : f64, eps = 1.0e-7 : f64, steps = 5 : i32, adjust = "original"} : tensor<64xf32> -> tensor<320xf32>
    %u = fsdp.spread_matrices @a.flat, %o : tensor<320xf32>
    fsdp.optimizer @a.flat, %c updates %u : tensor<320xf32> : tensor<f32> {
    ```

    With `--optimizer=FILE.mlir` the program is the file's one function. It has the
    arguments and results of the region, and each state has a name. Its ops are scalar
    ones of arith and math, which are copied into each region:
    ```mlir
    func.func @sign_descent(%p: f32, %g: f32, %mean: f32 {fsdp.state = "mean"},
                            %lr: f64, %step: f64, %decay: f64) -> (f32, f32) {
      …
      return %p1, %mean1 : f32, f32
    }
    ```

    Before: the module has no @update. After:
    ```mlir
    func.func @update() {
      %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
      %r = fsdp.all_reduce %s : tensor<2x16xf64>
      %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 1.0 : f64} : tensor<2x16xf64> -> tensor<f32>
      fsdp.optimizer @a.flat, %c : tensor<f32> {
      ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
        …
        fsdp.yield %p1 : f32
      }
      …
    ```
  }];
  let dependentDialects = ["::fsdpc::fsdp::FSDPDialect", "::fsdpc::nn::NNDialect",
                           "::mlir::arith::ArithDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::math::MathDialect"];
}

def OffloadShards : Pass<"offload-shards", "::mlir::ModuleOp"> {
  let summary = "Chooses what --offload keeps of each layout in a file, or pinned for a GPU";
  let description = [{
    With `offload = optimizer` the states of layouts that have any are `offloaded`; with
    `parameters` each rank's parameters, trainable or frozen; with `gradients` its f32 gradient.
    A layout has only what is a rank's own part in memory of its own:

    | offloaded | of layouts |
    |---|---|
    | state | with states |
    | parameter | whose master is not `whole`, and is not a part of a `whole` compute copy: of those that are gathered all, of those whose compute copy alone is whole the ones with masters beside a 16-bit copy, of ddp none |
    | gradient | whose gradient and state are not `whole`, and that are reduced by ranges of shards: not of owners, nor with a `reduce-dtype` of 8 or 4 bits |

    Each of the options must have an effect on one layout.

    Before:
    ```mlir
    fsdp.layout @u.flat of @u trainable elements 64 : f32 states 2 {…}
    ```
    After, with `offload = optimizer,parameters`:
    ```mlir
    fsdp.layout @u.flat of @u trainable elements 64 : f32 states 2 offloaded ["state", "parameter"] {…}
    ```
  }];
  let statistics = [Statistic<"layouts", "layouts", "layouts offloaded">];
}

def VerifyShard : Pass<"verify-shard", "::mlir::ModuleOp"> {
  let summary = "Checks what holds after the phase `shard`";
  let description = [{
    Refuses a module that breaks one of these rules, and changes nothing. Rates and
    decays of members, the clipping norm and the optimizers' programs can be edited.

    | rule | broken where |
    |---|---|
    | `member-once` | a parameter is not a member of exactly one layout |
    | `layout` | a member is of another unit than its layout, a unit has two layouts of trainable or two of frozen parameters under one strategy and of one group (without `layout-size`, `layout = parameter` and owners; with `layout-size`, a layout of several members is larger), one with an owner or with `layout = parameter` does not have one member, or a member does not begin at the first aligned place after the one before it |
    | `group` | a member is updated by another optimizer than its layout: that of another --group, or of the options |
    | `average` | a trainable layout does not keep an average with --ema, or keeps one without |
    | `offload` | what is offloaded of a layout is not a rank's own part (offload-shards) |
    | `compute` | a layout's compute type is not `param-dtype`, or f32 if its members have `fsdp.keep_f32` |
    | `master` | a layout lacks `no_master` with `--master=none` and a compute type of bf16, or has it otherwise |
    | `replication` | a layout's `whole` is not what its strategy and `reduce` keep on every rank |
    | `wire` | a layout's `wire` is not `gather-dtype`; or there is one where masters are whole, or with `fsdp.keep_f32`; or layouts of owners are in a program that sends blocks, or ones that are cut over groups in one that reduces in blocks |
    | `compression` | a layout's `compression` is not what the hook of this name makes of its elements and shapes; or there is one on a layout that is not cut over all ranks |
    | `unsummed` | a layout is `fsdp.unsummed` where several ranks or microbatches add to its gradient, or is not where one does, as shard-parameters decides |
    | `unit` | an op of @microbatch has no unit that exists |
    | `weight` | a parameter is read other than by a view of its layout's flat buffer, or a flat buffer or view is of another unit than its reader |
    | `hook` | a gradient does not pass each `--reduce-hook` once, in order, before its pack |
    | `gradient` | a trainable layout does not have one `fsdp.reduce`, of its `fsdp.pack`, both of the backward of its unit |
    | `precision` | the f32 and 16-bit float operands of an op, or its results, differ in type; statistics, masks and what else an op keeps in its type are exempt |
    | `stage` | another op touches the memory of layouts: collectives come later |
    | `norm` | @update does not have one sum_squares of all trainable layouts, one all_reduce of it, and one clip_scale of that |
    | `scale` | the backward begins with `fsdp.loss_scale`, but `--loss-scale` is none |
    | `optimizer` | a trainable layout does not have one optimizer, scaled by clip_scale, or that takes what the layout does not say |
    | `sums` | the sums that an optimizer takes are not those of its layout's members, of gradients scaled by clip_scale and added up over the ranks once, or no optimizer takes them |
    | `factors` | the factors that an optimizer takes are not those of its layout's members, updated once from sums of all ranks |
    | `updates` | the updates that an optimizer takes are not those of its layout's momentum, collected, orthogonalised and spread once each |

    The verifier of `fsdp.layout` checks the rest of a layout: members are aligned,
    disjoint, and all trainable or all frozen; its last member ends it. In the dumps of the
    phase `kernels` all rules but `precision` are checked again: kernels convert types.

    Refused, since nothing hands over the gradient of @h.0.flat (`gradient`):
    ```mlir
    %g = fsdp.pack @h.0.flat(%dw) {fsdp.backward, fsdp.unit = @h.0} : …
    return
    ```
  }];
  let options = [
    Option<"outlined", "outlined", "bool", "false",
           "ops may be kernels and calls, as in dumps of the phase kernels">];
}

#endif
