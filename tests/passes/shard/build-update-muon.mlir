// Muon: the updates of whole matrices, in front of the optimizer that takes them.
// RUN: fsdpc-opt %s --build-update --split-input-file --verify-diagnostics | FileCheck %s

// Each layout has updates of its own, one after the other. Behind those of 24 and 8
// elements the orthogonalised ones have four times the larger as room.
module attributes {fsdp.options = {optimizer = "muon", "ns-coefficients" = "3,-4,2", "muon-dtype" = "bf16", "clip-grad-value" = 0.25 : f64}} {
  fsdp.parameter @v : tensor<4x6xf32> trainable unit @u
  fsdp.parameter @w : tensor<8x1xf32> trainable unit @u
  fsdp.parameter @x : tensor<2x2xf32> trainable unit @t
  fsdp.unit @u
  fsdp.unit @t
  fsdp.layout @u.flat of @u trainable elements 40 : f32 states 1 {
    members = [#fsdp.member<@v[0, 24] rate 1.0 : f64 decay 0.1 : f64>, #fsdp.member<@w[32, 8] rate 1.0 : f64 decay 0.1 : f64>], whole = []}
  fsdp.layout @t.flat of @t trainable elements 4 : f32 states 1 {
    members = [#fsdp.member<@x[0, 4] rate 1.0 : f64 decay 0.1 : f64>], whole = []}
}
// CHECK-LABEL: func.func @update
// CHECK: %[[C:.*]] = fsdp.clip_scale
// CHECK: %[[P:.*]] = fsdp.momentum_updates @u.flat, %[[C]] {clip_value = 2.500000e-01 : f64, momentum = 0.94999999999999996 : f64, nesterov} : tensor<f32> -> tensor<32xf32>
// CHECK: %[[W:.*]] = fsdp.collect_matrices @u.flat, %[[P]] : tensor<32xf32>
// CHECK: %[[O:.*]] = fsdp.orthogonalize @u.flat, %[[W]] {a = 3.000000e+00 : f64, adjust = "original", b = -4.000000e+00 : f64, bf16, c = 2.000000e+00 : f64, eps = 9.9999999999999995E-8 : f64, steps = 5 : i32} : tensor<32xf32> -> tensor<128xf32>
// CHECK: %[[U:.*]] = fsdp.spread_matrices @u.flat, %[[O]] : tensor<128xf32>
// CHECK: fsdp.optimizer @u.flat, %[[C]] updates %[[U]] : tensor<128xf32> : tensor<f32> {
// CHECK: ^bb0(%{{.*}}: f32, %{{.*}}: f32, %[[X:.*]]: f32, %{{.*}}: f32, %{{.*}}: f64, %{{.*}}: f64, %{{.*}}: f64):
// CHECK: arith.mulf %{{.*}}, %[[X]] : f32
// CHECK: fsdp.momentum_updates @t.flat

// -----

// The group of an optimizer for matrices has matrices alone.
module attributes {fsdp.options = {optimizer = "muon"}} {
  // expected-error@+1 {{'v' has 1 dimensions, but muon updates matrices; give it another optimizer, as with '--group=v: optimizer=adamw'}}
  fsdp.parameter @v : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  fsdp.layout @u.flat of @u trainable elements 8 : f32 states 1 {
    members = [#fsdp.member<@v[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}
