// Adafactor: factors of all of its layouts, in front of the sums that take them.
// RUN: fsdpc-opt %s --build-update --split-input-file --verify-diagnostics | FileCheck %s

// Rows come first, then columns; a vector has columns only. Both matrices of the
// kernel have rows and columns of their own. Squares of small matrices travel, not
// digits of sums, so the sums are as many as the elements. The buffers have torch's shapes.
module attributes {fsdp.options = {optimizer = "adafactor", "beta2-decay" = -0.5 : f64, "clip-grad-value" = 0.25 : f64}} {
  fsdp.parameter @k : tensor<2x3x4xf32> trainable unit @u
  fsdp.parameter @v : tensor<8xf32> trainable unit @u
  fsdp.parameter @w : tensor<4x2xf32> trainable unit @t
  fsdp.unit @u
  fsdp.unit @t
  fsdp.layout @u.flat of @u trainable elements 40 : f32 states 0 {
    members = [#fsdp.member<@k[0, 24] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@v[32, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @t.flat of @t trainable elements 8 : f32 states 0 {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}
// CHECK-DAG: fsdp.buffer @k.row_var : tensor<2x3x1xf32> state {rule = "zeros"}
// CHECK-DAG: fsdp.buffer @k.col_var : tensor<2x1x4xf32> state {rule = "zeros"}
// CHECK-DAG: fsdp.buffer @v.variance : tensor<8xf32> state {rule = "zeros"}
// CHECK-DAG: fsdp.buffer @w.row_var : tensor<4x1xf32> state {rule = "zeros"}
// CHECK-DAG: fsdp.buffer @w.col_var : tensor<1x2xf32> state {rule = "zeros"}
// CHECK-LABEL: func.func @update
// CHECK: %[[C:.*]] = fsdp.clip_scale
// CHECK: %[[S:.*]] = fsdp.factor_sums [@u.flat, @t.flat], %[[C]] {clip_value = 2.500000e-01 : f64} : tensor<f32> -> tensor<40xf64>
// CHECK: %[[R:.*]] = fsdp.all_reduce %[[S]] : tensor<40xf64>
// CHECK: %[[F:.*]] = fsdp.update_factors [@u.flat, @t.flat], %[[R]] {eps = {{.*}} : f64, power = -5.000000e-01 : f64} : tensor<40xf64> -> tensor<28xf64>
// CHECK: %[[N:.*]] = fsdp.member_sums [@u.flat, @t.flat], %[[C]] factors %[[F]] : tensor<f32>, tensor<28xf64> -> tensor<9x16xf64> {
// CHECK: ^bb0(%{{.*}}: f32, %{{.*}}: f32, %[[V:.*]]: f32, %{{.*}}: f64, %{{.*}}: f64, %{{.*}}: f64):
// CHECK: arith.maximumf %[[V]], %{{.*}} : f32
// CHECK: %[[T:.*]] = fsdp.all_reduce %[[N]] : tensor<9x16xf64>
// CHECK: fsdp.optimizer @u.flat, %[[C]] sums %[[T]][0] factors %[[F]][0] : tensor<f32>, tensor<9x16xf64>, tensor<28xf64> {
// CHECK: ^bb0({{.*}}, %[[LR:.*]]: f64, %[[STEP:.*]]: f64, %{{.*}}: f64, %{{.*}}: f64, %{{.*}}: f64, %[[COUNT:.*]]: f64):
// CHECK: math.sqrt %[[STEP]] : f64
// CHECK: math.sqrt %[[COUNT]] : f64
// CHECK: fsdp.optimizer @t.flat, %[[C]] sums %[[T]][6] factors %[[F]][22] : tensor<f32>, tensor<9x16xf64>, tensor<28xf64> {

// -----

// The state's names are the parameters', so a tensor of the model may be in the way.
module attributes {fsdp.options = {optimizer = "adafactor"}} {
  // expected-error@+1 {{needs a buffer 'v.variance' for the optimizer's state, but the model has a tensor of that name; rename the latter}}
  fsdp.parameter @v : tensor<8xf32> trainable unit @u
  fsdp.buffer @v.variance : tensor<8xf32> {rule = "zeros"}
  fsdp.unit @u
  fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {
    members = [#fsdp.member<@v[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}
