// RUN: fsdpc-opt %s --build-update --split-input-file --verify-diagnostics | FileCheck %s

// The norm over all trainable layouts, then one optimizer per layout. AdamW
// decays the parameter, and its scalars are f64 until they are used with an
// element.
module attributes {fsdp.options = {"clip-grad-norm" = 1.0 : f64}} {
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.parameter @f : tensor<8xf32> unit @u
  fsdp.unit @u
  fsdp.layout @u.flat of @u trainable elements 8 : f32 states 2 {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.01 : f64>], whole = []}
  fsdp.layout @u.frozen of @u elements 8 : f32 states 0 {
    members = [#fsdp.member<@f[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}
// CHECK-LABEL: func.func @update
// CHECK: %[[S:.*]] = fsdp.sum_squares [@u.flat] : tensor<1x16xf64>
// CHECK: %[[R:.*]] = fsdp.all_reduce %[[S]] : tensor<1x16xf64>
// CHECK: %[[C:.*]] = fsdp.clip_scale [@u.flat], %[[R]] {max_norm = 1.000000e+00 : f64}
// CHECK: fsdp.optimizer @u.flat, %[[C]] : tensor<f32> {
// CHECK: ^bb0(%[[P:.*]]: f32, %[[G:.*]]: f32, %[[M:.*]]: f32, %[[V:.*]]: f32, %[[LR:.*]]: f64, %[[STEP:.*]]: f64, %[[DECAY:.*]]: f64):
// CHECK: %[[ONE:.*]] = arith.constant 1.000000e+00 : f64
// CHECK: %[[B1:.*]] = arith.constant 9.000000e-01 : f64
// CHECK: %[[B2:.*]] = arith.constant 0.998{{9+}} : f64
// CHECK: %[[EPS:.*]] = arith.constant 1.000000e-08 : f64
// CHECK: %[[LD:.*]] = arith.mulf %[[LR]], %[[DECAY]] : f64
// CHECK: %[[SHRINK:.*]] = arith.subf %[[ONE]], %[[LD]] : f64
// CHECK: %[[SHRINK32:.*]] = arith.truncf %[[SHRINK]] : f64 to f32
// CHECK: %[[P1:.*]] = arith.mulf %[[P]], %[[SHRINK32]] : f32
// CHECK: %[[D:.*]] = arith.subf %[[G]], %[[M]] : f32
// CHECK: math.powf %[[B1]], %[[STEP]] : f64
// CHECK: math.powf %[[B2]], %[[STEP]] : f64
// CHECK: fsdp.yield %{{.*}}, %{{.*}}, %{{.*}} : f32, f32, f32
// CHECK-NOT: fsdp.optimizer

// -----

// SGD adds the weight decay to the gradient. Nesterov's momentum looks ahead.
module attributes {fsdp.options = {optimizer = "sgd", momentum = 0.5 : f64, nesterov = true}} {
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  fsdp.layout @u.flat of @u trainable elements 8 : f32 states 1 {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.01 : f64>], whole = []}
}
// CHECK-LABEL: func.func @update
// CHECK: ^bb0(%[[P:.*]]: f32, %[[G:.*]]: f32, %[[B:.*]]: f32, %[[LR:.*]]: f64, %{{.*}}: f64, %[[DECAY:.*]]: f64):
// CHECK: %[[DECAY32:.*]] = arith.truncf %[[DECAY]]
// CHECK: %[[DP:.*]] = arith.mulf %[[DECAY32]], %[[P]]
// CHECK: %[[G1:.*]] = arith.addf %[[G]], %[[DP]]
// CHECK: %[[M:.*]] = arith.constant 5.000000e-01 : f64
// CHECK: %[[M32:.*]] = arith.truncf %[[M]]
// CHECK: %[[BM:.*]] = arith.mulf %[[B]], %[[M32]]
// CHECK: %[[B1:.*]] = arith.addf %[[BM]], %[[G1]]
// CHECK: %[[MB:.*]] = arith.mulf %[[M32]], %[[B1]]
// CHECK: %[[G2:.*]] = arith.addf %[[G1]], %[[MB]]
// CHECK: %[[RATE:.*]] = arith.negf %[[LR]]
// CHECK: %[[RATE32:.*]] = arith.truncf %[[RATE]]
// CHECK: %[[CHANGE:.*]] = arith.mulf %[[RATE32]], %[[G2]]
// CHECK: %[[P1:.*]] = arith.addf %[[P]], %[[CHANGE]]
// CHECK: fsdp.yield %[[P1]], %[[B1]] : f32, f32

// -----

// AMSGrad keeps the maximum in a third state. maximize negates the gradient.
module attributes {fsdp.options = {optimizer = "adam", amsgrad = true, maximize = true}} {
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  fsdp.layout @u.flat of @u trainable elements 8 : f32 states 3 {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}
// CHECK-LABEL: func.func @update
// CHECK: ^bb0(%{{.*}}: f32, %[[G:.*]]: f32, %{{.*}}: f32, %{{.*}}: f32, %[[MAX:.*]]: f32, %{{.*}}: f64
// CHECK: arith.negf %[[G]] : f32
// CHECK: %[[MAX1:.*]] = arith.maximumf %[[MAX]], %{{.*}} : f32
// CHECK: fsdp.yield %{{.*}}, %{{.*}}, %{{.*}}, %[[MAX1]]

// -----

// The first buffer is the gradient itself, which dampening leaves alone. States
// are named.
module attributes {fsdp.options = {optimizer = "sgd", momentum = 0.5 : f64, dampening = 0.25 : f64}} {
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  fsdp.layout @u.flat of @u trainable elements 8 : f32 states 1 {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}
// CHECK-LABEL: func.func @update
// CHECK: ^bb0(%{{.*}}: f32, %{{.*}}: f32, %[[B:.*]]: f32, %{{.*}}: f64, %[[STEP:.*]]: f64, %{{.*}}: f64):
// CHECK: %[[ONE:.*]] = arith.constant 1.000000e+00 : f64
// CHECK: %[[D:.*]] = arith.constant 2.500000e-01 : f64
// CHECK: %[[REST:.*]] = arith.subf %[[ONE]], %[[D]] : f64
// CHECK: %[[FIRST:.*]] = arith.cmpf oeq, %[[STEP]], %[[ONE]] : f64
// CHECK: %[[WEIGHT:.*]] = arith.select %[[FIRST]], %[[ONE]], %[[REST]] : f64
// CHECK: %[[WEIGHT32:.*]] = arith.truncf %[[WEIGHT]]
// CHECK: arith.mulf %[[WEIGHT32]], %{{.*}} : f32

// -----

// A state that does not start at zero is replaced in the first step.
module attributes {fsdp.options = {optimizer = "adagrad", "initial-accumulator-value" = 0.5 : f64}} {
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  fsdp.layout @u.flat of @u trainable elements 8 : f32 states 1 {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}
// CHECK-LABEL: func.func @update
// CHECK: ^bb0(%{{.*}}: f32, %{{.*}}: f32, %[[SUM:.*]]: f32, %{{.*}}: f64, %[[STEP:.*]]: f64, %{{.*}}: f64):
// CHECK: %[[ONE:.*]] = arith.constant 1.000000e+00 : f64
// CHECK: %[[INITIAL:.*]] = arith.constant 5.000000e-01 : f64
// CHECK: %[[INITIAL32:.*]] = arith.truncf %[[INITIAL]]
// CHECK: %[[FIRST:.*]] = arith.cmpf oeq, %[[STEP]], %[[ONE]] : f64
// CHECK: arith.select %[[FIRST]], %[[INITIAL32]], %[[SUM]] : f32

// -----

// Elements are clipped before maximize turns the gradient round. Rprop has no
// weight decay, and two states.
module attributes {fsdp.options = {optimizer = "rprop", "clip-grad-value" = 0.5 : f64, maximize = true}} {
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  fsdp.layout @u.flat of @u trainable elements 8 : f32 states 2 {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}
// CHECK-LABEL: func.func @update
// CHECK: ^bb0(%{{.*}}: f32, %[[G:.*]]: f32, %{{.*}}: f32, %{{.*}}: f32, %{{.*}}: f64, %{{.*}}: f64, %{{.*}}: f64):
// CHECK: %[[LIMIT:.*]] = arith.truncf %{{.*}} : f64 to f32
// CHECK: %[[LEAST:.*]] = arith.negf %[[LIMIT]]
// CHECK: %[[LOW:.*]] = arith.maximumf %[[G]], %[[LEAST]]
// CHECK: %[[HIGH:.*]] = arith.minimumf %[[LOW]], %[[LIMIT]]
// CHECK: arith.negf %[[HIGH]]
// CHECK: fsdp.yield %{{.*}}, %{{.*}}, %{{.*}} : f32, f32, f32

// -----

// Each layout has the program of its group: @a that of adamw with betas of its
// own, @b that of sgd with momentum.
module attributes {fsdp.options = {group = ["a: betas=0.5,0.75", "b: optimizer=sgd momentum=0.25"]}} {
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.parameter @a : tensor<8xf32> trainable unit @u
  fsdp.parameter @b : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  fsdp.layout @u.flat of @u trainable elements 8 : f32 states 2 {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @u.flat.group1 of @u group 1 trainable elements 8 : f32 states 2 {
    members = [#fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @u.flat.group2 of @u group 2 trainable elements 8 : f32 states 1 {
    members = [#fsdp.member<@b[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}
// CHECK-LABEL: func.func @update
// CHECK: fsdp.sum_squares [@u.flat, @u.flat.group1, @u.flat.group2]
// CHECK: fsdp.optimizer @u.flat,
// CHECK: arith.constant 9.000000e-01 : f64
// CHECK: fsdp.optimizer @u.flat.group1,
// CHECK: arith.constant 5.000000e-01 : f64
// CHECK: arith.constant 7.500000e-01 : f64
// CHECK: fsdp.yield %{{.*}}, %{{.*}}, %{{.*}} : f32, f32, f32
// CHECK: fsdp.optimizer @u.flat.group2,
// CHECK: arith.constant 2.500000e-01 : f64
// CHECK: fsdp.yield %{{.*}}, %{{.*}} : f32, f32

// -----

// --ema adds a state: the new parameter in the first step, then a weighted sum
// with it. torch's lerp starts from the nearer end. A parameter whose first step
// is not the run's has an average already.
module attributes {fsdp.options = {optimizer = "sgd", ema = 0.75 : f64}} {
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  fsdp.layout @u.flat of @u trainable elements 8 : f32 states 1 average {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}
// CHECK-LABEL: func.func @update
// CHECK: ^bb0(%[[P:.*]]: f32, %{{.*}}: f32, %[[EMA:.*]]: f32, %{{.*}}: f64, %[[STEP:.*]]: f64, %{{.*}}: f64):
// CHECK: %[[NEW:.*]] = arith.addf %[[P]], %{{.*}} : f32
// CHECK: %[[ONE:.*]] = arith.constant 1.000000e+00 : f64
// CHECK: %[[DECAY:.*]] = arith.constant 7.500000e-01 : f64
// CHECK: %[[CHANGE:.*]] = arith.subf %[[NEW]], %[[EMA]] : f32
// CHECK: %[[REST:.*]] = arith.subf %[[ONE]], %[[DECAY]] : f64
// CHECK: %[[REST32:.*]] = arith.truncf %[[REST]]
// CHECK: %[[PART:.*]] = arith.mulf %[[REST32]], %[[CHANGE]]
// CHECK: %[[SUM:.*]] = arith.addf %[[EMA]], %[[PART]]
// CHECK: %[[FIRST:.*]] = arith.cmpf oeq, %[[STEP]], %[[ONE]] : f64
// CHECK: %[[NONE:.*]] = arith.cmpf oeq, %[[EMA]], %{{.*}} : f32
// CHECK: %[[BEGUN:.*]] = arith.select %[[NONE]], %[[NEW]], %[[SUM]] : f32
// CHECK: %[[AVERAGE:.*]] = arith.select %[[FIRST]], %[[BEGUN]], %[[SUM]] : f32
// CHECK: fsdp.yield %[[NEW]], %[[AVERAGE]] : f32, f32

// -----

module attributes {fsdp.options = {group = ["w: optimizer=sgd"]}} {
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  // expected-error@+1 {{has group 2, but there are 1 of --group}}
  fsdp.layout @u.flat of @u group 2 trainable elements 8 : f32 states 0 {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}

// -----

// LAMB takes two sums of squares per parameter, of the parameter and of its
// update. All layouts share one all-reduce. The ratio is computed once per
// parameter, in f64.
module attributes {fsdp.options = {optimizer = "lamb"}} {
  fsdp.parameter @v : tensor<8xf32> trainable unit @u
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.parameter @x : tensor<8xf32> trainable unit @t
  fsdp.unit @u
  fsdp.unit @t
  fsdp.layout @u.flat of @u trainable elements 24 : f32 states 2 {
    members = [#fsdp.member<@v[0, 8] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@w[16, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @t.flat of @t trainable elements 8 : f32 states 2 {
    members = [#fsdp.member<@x[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}
// CHECK-LABEL: func.func @update
// CHECK: %[[C:.*]] = fsdp.clip_scale
// CHECK: %[[S:.*]] = fsdp.member_sums [@u.flat, @t.flat], %[[C]] : tensor<f32> -> tensor<6x16xf64> {
// CHECK: ^bb0(%[[P:.*]]: f32, %{{.*}}: f32, %{{.*}}: f32, %{{.*}}: f32, %{{.*}}: f64, %{{.*}}: f64, %{{.*}}: f64):
// CHECK: %[[P64:.*]] = arith.extf %[[P]] : f32 to f64
// CHECK: %[[P2:.*]] = arith.mulf %[[P64]], %[[P64]] : f64
// CHECK: %[[U2:.*]] = arith.mulf %[[U:.*]], %[[U]] : f64
// CHECK: fsdp.yield %[[P2]], %[[U2]] : f64, f64
// CHECK: %[[R:.*]] = fsdp.all_reduce %[[S]] : tensor<6x16xf64>
// CHECK: fsdp.optimizer @u.flat, %[[C]] sums %[[R]][0] : tensor<f32>, tensor<6x16xf64> {
// CHECK: ^bb0({{.*}}, %[[LR:.*]]: f64, %{{.*}}: f64, %{{.*}}: f64, %[[SUM_P:.*]]: f64, %[[SUM_U:.*]]: f64):
// CHECK: %[[NORM_P:.*]] = math.sqrt %[[SUM_P]] : f64
// CHECK: %[[NORM_U:.*]] = math.sqrt %[[SUM_U]] : f64
// CHECK: %[[RATIO:.*]] = arith.divf %[[NORM_P]], %[[NORM_U]] : f64
// CHECK: arith.cmpf oeq, %[[NORM_P]]
// CHECK: arith.select {{.*}}, %[[RATIO]] : f64
// CHECK: %[[FINAL:.*]] = arith.select {{.*}} : f64
// CHECK: arith.mulf %[[LR]], %[[FINAL]] : f64
// CHECK: fsdp.yield %{{.*}}, %{{.*}}, %{{.*}} : f32, f32, f32
// CHECK: fsdp.optimizer @t.flat, %[[C]] sums %[[R]][4] : tensor<f32>, tensor<6x16xf64> {

// -----

// LARS takes the norms of the parameter and of its gradient, which is clipped
// before. Without momentum it has no state.
module attributes {fsdp.options = {optimizer = "lars", "clip-grad-value" = 0.5 : f64, momentum = 0.0 : f64}} {
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}
// CHECK-LABEL: func.func @update
// CHECK: fsdp.member_sums [@u.flat], %{{.*}} : tensor<f32> -> tensor<2x16xf64> {
// CHECK: %[[CLIPPED:.*]] = arith.minimumf
// CHECK: arith.extf %[[CLIPPED]] : f32 to f64
// CHECK: fsdp.optimizer @u.flat, %{{.*}} sums %{{.*}}[0] : tensor<f32>, tensor<2x16xf64> {
// CHECK: ^bb0(%{{.*}}: f32, %{{.*}}: f32, %{{.*}}: f64, %{{.*}}: f64, %[[DECAY:.*]]: f64, %[[SUM_P:.*]]: f64, %[[SUM_G:.*]]: f64):
// CHECK: %[[NORM_P:.*]] = math.sqrt %[[SUM_P]] : f64
// CHECK: %[[NORM_G:.*]] = math.sqrt %[[SUM_G]] : f64
// CHECK: %[[DECAYED:.*]] = arith.mulf %[[DECAY]], %[[NORM_P]] : f64
// CHECK: arith.addf %[[NORM_G]], %[[DECAYED]] : f64
// CHECK: fsdp.yield %{{.*}} : f32

// -----

// expected-error@+1 {{no parameter is trained: none has a gradient}}
module {
}
