// RUN: fsdpc-opt %s --shard-parameters --split-input-file --verify-diagnostics | FileCheck %s

// A unit has one layout of its trainable and one of its frozen parameters, in
// order of first use, at multiples of 16 elements. --no-decay clears the decay.
// CHECK: fsdp.layout @u.flat of @u trainable elements 40 : f32 states 2
// CHECK-SAME: #fsdp.member<@b[0, 8] rate 1.000000e+00 : f64 decay 0.000000e+00 : f64>
// CHECK-SAME: #fsdp.member<@w[16, 24] rate 1.000000e+00 : f64 decay 1.000000e-02 : f64>
// CHECK-SAME: whole = []
// CHECK: fsdp.layout @u.frozen of @u elements 8 : f32 states 0
module attributes {fsdp.options = {"no-decay" = ["^b$"]}} {
  fsdp.parameter @w : tensor<3x8xf32> trainable unit @u
  fsdp.parameter @b : tensor<8xf32> trainable unit @u
  fsdp.parameter @f : tensor<8xf32> unit @u
  fsdp.unit @u
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<8xf32>, %g: tensor<3x8xf32>) {
    // CHECK: %[[F:.*]] = fsdp.flat @u.flat {fsdp.unit = @u} : tensor<40xf32>
    // CHECK-NEXT: fsdp.view %[[F]][@b at 0] {fsdp.unit = @u} : tensor<40xf32> -> tensor<8xf32>
    %b = fsdp.load @b {fsdp.unit = @u} : tensor<8xf32>
    // CHECK: fsdp.view %{{.*}}[@w at 16]
    %w = fsdp.load @w {fsdp.unit = @u} : tensor<3x8xf32>
    // CHECK: fsdp.flat @u.frozen
    %f = fsdp.load @f {fsdp.unit = @u} : tensor<8xf32>
    // The pack follows the last gradient, with its values in the layout's
    // order.
    // CHECK: %[[DB:.*]] = nn.mul
    %db = nn.mul %x, %f {fsdp.unit = @u} : tensor<8xf32>
    fsdp.gradient @b, %db {fsdp.unit = @u} : tensor<8xf32>
    // CHECK: %[[DW:.*]] = nn.neg
    %dw = nn.neg %g {fsdp.unit = @u} : tensor<3x8xf32>
    // CHECK-NEXT: %[[P:.*]] = fsdp.pack @u.flat(%[[DB]], %[[DW]]) {fsdp.backward, fsdp.unit = @u} : (tensor<8xf32>, tensor<3x8xf32>) -> tensor<40xf32>
    // CHECK-NEXT: fsdp.reduce @u.flat, %[[P]] {fsdp.backward, fsdp.unit = @u} : tensor<40xf32>
    fsdp.gradient @w, %dw {fsdp.unit = @u} : tensor<3x8xf32>
    return
  }
}

// -----

// Values that cannot be computed inside the pack are copied: an argument, also
// behind a reshape; the second use of a value, and the third from the second; a
// value that is read after the pack.
module {
  fsdp.parameter @a : tensor<8xf32> trainable unit @u
  fsdp.parameter @b : tensor<8xf32> trainable unit @u
  fsdp.parameter @c : tensor<8xf32> trainable unit @u
  fsdp.parameter @d : tensor<8xf32> trainable unit @u
  fsdp.parameter @e : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  // CHECK-LABEL: func.func @microbatch
  // CHECK-SAME: %[[X:.*]]: tensor<2x4xf32>
  func.func @microbatch(%x: tensor<2x4xf32>) {
    %a = fsdp.load @a : tensor<8xf32>
    %b = fsdp.load @b : tensor<8xf32>
    %c = fsdp.load @c : tensor<8xf32>
    %d = fsdp.load @d : tensor<8xf32>
    %e = fsdp.load @e : tensor<8xf32>
    // CHECK: %[[R:.*]] = nn.reshape %[[X]]
    %r = nn.reshape %x : tensor<2x4xf32> -> tensor<8xf32>
    // CHECK: %[[S:.*]] = nn.add
    %s = nn.add %a, %b : tensor<8xf32>
    // CHECK: %[[T:.*]] = nn.mul
    %t = nn.mul %a, %b : tensor<8xf32>
    // CHECK: %[[C0:.*]] = nn.copy %[[R]]
    // CHECK: %[[C1:.*]] = nn.copy %[[S]]
    // CHECK: %[[C2:.*]] = nn.copy %[[C1]]
    // CHECK: %[[C3:.*]] = nn.copy %[[T]]
    // CHECK: fsdp.pack @u.flat(%[[C0]], %[[S]], %[[C1]], %[[C2]], %[[C3]])
    fsdp.gradient @a, %r : tensor<8xf32>
    fsdp.gradient @b, %s : tensor<8xf32>
    fsdp.gradient @c, %s : tensor<8xf32>
    fsdp.gradient @d, %s : tensor<8xf32>
    fsdp.gradient @e, %t : tensor<8xf32>
    %u = nn.neg %t : tensor<8xf32>
    return
  }
}

// -----

// A parameter without a gradient is frozen; torch.optim skips it too.
// CHECK: fsdp.parameter @w : tensor<8xf32> unit @u
// CHECK: fsdp.layout @u.frozen of @u elements 8
module {
  // expected-remark@+1 {{no gradient reaches parameter 'w'; treating it as frozen}}
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch() {
    %w = fsdp.load @w : tensor<8xf32>
    return
  }
}

// -----

// ddp keeps everything replicated.
// CHECK: fsdp.layout @u.flat {{.*}} states 1 {{.*}}whole = ["master", "compute", "gradient", "state"]
module attributes {fsdp.options = {strategy = "no_shard", optimizer = "sgd", momentum = 0.9 : f64}} {
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch() {
    %w = fsdp.load @w : tensor<8xf32>
    %g = nn.neg %w : tensor<8xf32>
    fsdp.gradient @w, %g : tensor<8xf32>
    return
  }
}

// -----

// zero2 keeps the parameters replicated, and --reduce=step also the gradients.
// CHECK: fsdp.layout @u.flat {{.*}} states 0 {{.*}}whole = ["compute", "gradient"]
module attributes {fsdp.options = {strategy = "zero2", reduce = "step", optimizer = "sgd"}} {
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch() {
    %w = fsdp.load @w : tensor<8xf32>
    %g = nn.neg %w : tensor<8xf32>
    fsdp.gradient @w, %g : tensor<8xf32>
    return
  }
}

// -----

// expected-error@+1 {{--no-decay 'norm' matches no parameter; available: 'w'}}
module attributes {fsdp.options = {"no-decay" = ["norm"]}} {
  fsdp.parameter @w : tensor<8xf32> unit @u
  fsdp.unit @u
  func.func @microbatch() {
    return
  }
}

// -----

// The first group that matches gives rate (as a factor) and decay; what it leaves
// out is as without it, so --no-decay clears the decay of @ab. Frozen parameters
// belong to no group.
// CHECK: fsdp.layout @u.flat
// CHECK-SAME: <@a[0, 8] rate 1.000000e-01 : f64 decay 5.000000e-01 : f64>
// CHECK-SAME: <@ab[16, 8] rate 1.000000e-01 : f64 decay 0.000000e+00 : f64>
// CHECK-SAME: <@b[32, 8] rate 1.000000e+00 : f64 decay 2.500000e-01 : f64>
// CHECK: fsdp.layout @u.frozen
// CHECK-SAME: <@af[0, 8] rate 1.000000e+00 : f64 decay 0.000000e+00 : f64>
module attributes {fsdp.options = {lr = 1.0 : f64, "weight-decay" = 0.5 : f64, "no-decay" = ["b$"], group = ["a: lr=0.1", "b$: weight_decay=0.25"]}} {
  fsdp.parameter @a : tensor<8xf32> trainable unit @u
  fsdp.parameter @ab : tensor<8xf32> trainable unit @u
  fsdp.parameter @b : tensor<8xf32> trainable unit @u
  fsdp.parameter @af : tensor<8xf32> unit @u
  fsdp.unit @u
  func.func @microbatch(%g: tensor<8xf32>) {
    fsdp.gradient @a, %g : tensor<8xf32>
    fsdp.gradient @ab, %g : tensor<8xf32>
    fsdp.gradient @b, %g : tensor<8xf32>
    return
  }
}

// -----

// Members of another optimizer, or of other hyperparameters than rate and decay,
// have a layout of their own: one for the two groups of sgd, which differ only in
// rate and decay. What a group does not give is as without it (the rate of @d), or
// the default of another optimizer (sgd's rate of 0.001 is a tenth of --lr).
// CHECK: fsdp.layout @u.flat of @u trainable elements 8 : f32 states 3 average {
// CHECK-SAME: <@a[0, 8] rate 1.000000e+00 : f64 decay 5.000000e-01 : f64>
// CHECK: fsdp.layout @u.flat.group1 of @u group 1 trainable elements 24 : f32 states 2 average {
// CHECK-SAME: <@b[0, 8] rate 1.000000e-01 : f64 decay 0.000000e+00 : f64>
// CHECK-SAME: <@c[16, 8] rate 2.000000e+00 : f64 decay 2.500000e-01 : f64>
// CHECK: fsdp.layout @u.flat.group3 of @u group 3 trainable elements 8 : f32 states 4 average {
// CHECK-SAME: <@d[0, 8] rate 1.000000e+00 : f64 decay 5.000000e-01 : f64>
// CHECK: fsdp.pack @u.flat(
// CHECK: fsdp.pack @u.flat.group1(
// CHECK: fsdp.pack @u.flat.group3(
module attributes {fsdp.options = {lr = 0.01 : f64, "weight-decay" = 0.5 : f64, ema = 0.5 : f64, group = [
    "b: optimizer=sgd momentum=0.9", "c: optimizer=sgd weight_decay=0.25 momentum=0.9 lr=0.02", "d: amsgrad=true", "a: eps=1e-08"]}} {
  fsdp.parameter @a : tensor<8xf32> trainable unit @u
  fsdp.parameter @b : tensor<8xf32> trainable unit @u
  fsdp.parameter @c : tensor<8xf32> trainable unit @u
  fsdp.parameter @d : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch(%g: tensor<8xf32>) {
    fsdp.gradient @a, %g : tensor<8xf32>
    fsdp.gradient @b, %g : tensor<8xf32>
    fsdp.gradient @c, %g : tensor<8xf32>
    fsdp.gradient @d, %g : tensor<8xf32>
    return
  }
}

// -----

// A layout says what its optimizer keeps and takes, the average aside: the plans, the
// runtime and checkpoints know no names of optimizers.
// CHECK: fsdp.layout @u.flat of @u trainable elements 8 : f32 states 3 average {
// CHECK-SAME: optimizer = #fsdp.optimizer<states = ["exp_avg", "exp_avg_sq"], sums = 2>
// CHECK: fsdp.layout @u.flat.group1 {{.*}} states 1 average {
// CHECK-SAME: optimizer = #fsdp.optimizer<states = [], sums = 3, factored = true>
// CHECK: fsdp.layout @u.flat.group2 {{.*}} states 2 average {
// CHECK-SAME: optimizer = #fsdp.optimizer<states = ["momentum_buffer"], orthogonal = true>
// CHECK: fsdp.layout @u.flat.group3 {{.*}} states 3 average {
// CHECK-SAME: optimizer = #fsdp.optimizer<states = ["square_avg", "grad_avg"]>
// CHECK: fsdp.layout @u.frozen of @u elements 8 : f32 states 0 {
// CHECK-NOT: #fsdp.optimizer
// CHECK-SAME: whole
module attributes {fsdp.options = {optimizer = "lamb", ema = 0.5 : f64, frozen = ["e"], group = [
    "b: optimizer=adafactor", "c: optimizer=muon", "d: optimizer=rmsprop centered=true"]}} {
  fsdp.parameter @a : tensor<8xf32> trainable unit @u
  fsdp.parameter @b : tensor<8xf32> trainable unit @u
  fsdp.parameter @c : tensor<2x4xf32> trainable unit @u
  fsdp.parameter @d : tensor<8xf32> trainable unit @u
  fsdp.parameter @e : tensor<8xf32> unit @u
  fsdp.unit @u
  func.func @microbatch(%g: tensor<8xf32>, %h: tensor<2x4xf32>) {
    fsdp.gradient @a, %g : tensor<8xf32>
    fsdp.gradient @b, %g : tensor<8xf32>
    fsdp.gradient @c, %h : tensor<2x4xf32>
    fsdp.gradient @d, %g : tensor<8xf32>
    return
  }
}

// -----

// A group whose parameters all belong to groups before it has no effect.
// expected-error@+1 {{--group 'a.' has no effect: every trainable parameter that it matches is matched by an earlier one, such as 'a', and the first counts; put it first}}
module attributes {fsdp.options = {group = ["a: lr=0.1", "a.: lr=1"]}} {
  fsdp.parameter @a : tensor<8xf32> trainable unit @u
  fsdp.parameter @ab : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch(%g: tensor<8xf32>) {
    fsdp.gradient @a, %g : tensor<8xf32>
    fsdp.gradient @ab, %g : tensor<8xf32>
    return
  }
}

// -----

// A group matches trainable parameters only.
// expected-error@+1 {{--group 'f' matches no trainable parameter; available: 'a'}}
module attributes {fsdp.options = {group = ["f: lr=0.1"]}} {
  fsdp.parameter @a : tensor<8xf32> trainable unit @u
  fsdp.parameter @f : tensor<8xf32> unit @u
  fsdp.unit @u
  func.func @microbatch(%g: tensor<8xf32>) {
    fsdp.gradient @a, %g : tensor<8xf32>
    return
  }
}

// -----

// --layer-decay: the layers are the modules' units in order of first use. What the
// root reads before the first, between two, and behind the last has the layer
// 0, that of the unit before it, and the last.
// CHECK: fsdp.layout @root.flat
// CHECK-SAME: <@first[0, 8] rate 1.250000e-01 : f64
// CHECK-SAME: <@middle[16, 8] rate 2.500000e-01 : f64
// CHECK-SAME: <@last[32, 8] rate 1.000000e+00 : f64
// CHECK: fsdp.layout @m.0.flat {{.*}}<@a[0, 8] rate 2.500000e-01 : f64
// CHECK: fsdp.layout @m.1.flat {{.*}}<@b[0, 8] rate 5.000000e-01 : f64
module attributes {fsdp.options = {"layer-decay" = 0.5 : f64}} {
  fsdp.parameter @first : tensor<8xf32> trainable unit @root
  fsdp.parameter @middle : tensor<8xf32> trainable unit @root
  fsdp.parameter @last : tensor<8xf32> trainable unit @root
  fsdp.parameter @a : tensor<8xf32> trainable unit @m.0
  fsdp.parameter @b : tensor<8xf32> trainable unit @m.1
  fsdp.unit @root
  fsdp.unit @m.0 {module_class = "M", scope = "m.0"}
  fsdp.unit @m.1 {module_class = "M", scope = "m.1"}
  func.func @microbatch(%g: tensor<8xf32>) {
    %0 = fsdp.load @first : tensor<8xf32>
    %1 = fsdp.load @a : tensor<8xf32>
    %2 = fsdp.load @middle : tensor<8xf32>
    %3 = fsdp.load @b : tensor<8xf32>
    %4 = fsdp.load @last : tensor<8xf32>
    fsdp.gradient @first, %g : tensor<8xf32>
    fsdp.gradient @middle, %g : tensor<8xf32>
    fsdp.gradient @last, %g : tensor<8xf32>
    fsdp.gradient @a, %g : tensor<8xf32>
    fsdp.gradient @b, %g : tensor<8xf32>
    return
  }
}

// -----

// Without a unit that is a module, there are no layers to decay.
// expected-error@+1 {{--layer-decay has no effect: no unit is a module of the model; choose units with --unit-class or --unit-scope}}
module attributes {fsdp.options = {"layer-decay" = 0.5 : f64}} {
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch(%g: tensor<8xf32>) {
    fsdp.gradient @w, %g : tensor<8xf32>
    return
  }
}

// -----

// Two units have the same gradient, and the second unit's comes first: its copy
// stands before that of the first unit, so it reads the gradient itself.
// CHECK: %[[G:.*]] = nn.constant
// CHECK: nn.copy %[[G]]
// CHECK: fsdp.pack @b.flat
// CHECK: nn.copy %[[G]]
// CHECK: fsdp.pack @a.flat
module {
  fsdp.parameter @wa : tensor<8xf32> trainable unit @a
  fsdp.parameter @wb : tensor<8xf32> trainable unit @b
  fsdp.unit @a
  fsdp.unit @b
  func.func @microbatch() {
    %0 = fsdp.load @wa : tensor<8xf32>
    %1 = fsdp.load @wb : tensor<8xf32>
    %g = nn.constant dense<0.0> : tensor<8xf32>
    fsdp.gradient @wb, %g : tensor<8xf32>
    fsdp.gradient @wa, %g : tensor<8xf32>
    return
  }
}
