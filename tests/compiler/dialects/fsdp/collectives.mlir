// RUN: fsdpc-opt %s | fsdpc-opt | FileCheck %s

fsdp.parameter @w : tensor<4x8xf32> trainable unit @u
fsdp.parameter @f : tensor<8xf32> unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 32 : f32 states 2 {
  members = [#fsdp.member<@w[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
fsdp.layout @u.frozen of @u elements 8 : f32 states 0 {
  members = [#fsdp.member<@f[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
fsdp.parameter @s : tensor<8xf32> unit @u
// CHECK: fsdp.layout @u.secondary of @u elements 8 : f32 states 0 secondary {
fsdp.layout @u.secondary of @u elements 8 : f32 states 0 secondary {
  members = [#fsdp.member<@s[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}

// Before collectives are materialised: flat buffers without a place.
// CHECK-LABEL: func.func @flat
func.func @flat(%dw: tensor<4x8xf32>) {
  // CHECK: %[[F:.*]] = fsdp.flat @u.flat : tensor<32xf32>
  %f = fsdp.flat @u.flat : tensor<32xf32>
  // CHECK: fsdp.view %[[F]][@w at 0] : tensor<32xf32> -> tensor<4x8xf32>
  %w = fsdp.view %f[@w at 0] : tensor<32xf32> -> tensor<4x8xf32>
  // CHECK: %[[G:.*]] = fsdp.pack @u.flat(%{{.*}}) : (tensor<4x8xf32>) -> tensor<32xf32>
  %g = fsdp.pack @u.flat(%dw) : (tensor<4x8xf32>) -> tensor<32xf32>
  // CHECK: fsdp.reduce @u.flat, %[[G]] : tensor<32xf32>
  fsdp.reduce @u.flat, %g : tensor<32xf32>
  return
}

// Collectives in program order: one op may move several layouts.
// CHECK-LABEL: func.func @synchronous
func.func @synchronous(%g: tensor<32xf32>) {
  // CHECK: fsdp.enter @u backward
  fsdp.enter @u backward
  // CHECK: %[[A:.*]]:2 = fsdp.all_gather [@u.flat, @u.frozen] : tensor<32xf32>, tensor<8xf32>
  %a:2 = fsdp.all_gather [@u.flat, @u.frozen] : tensor<32xf32>, tensor<8xf32>
  // CHECK: fsdp.view %[[A]]#1[@f at 0]
  %v = fsdp.view %a#1[@f at 0] : tensor<8xf32> -> tensor<8xf32>
  // CHECK: fsdp.free %[[A]]#0 : tensor<32xf32>
  fsdp.free %a#0 : tensor<32xf32>
  fsdp.free %a#1 : tensor<8xf32>
  // CHECK: fsdp.reduce_scatter [@u.flat], %{{.*}} : tensor<32xf32>
  fsdp.reduce_scatter [@u.flat], %g : tensor<32xf32>
  // CHECK: fsdp.accumulate @u.flat, %{{.*}} : tensor<32xf32>
  fsdp.accumulate @u.flat, %g : tensor<32xf32>
  // CHECK: fsdp.replicated @u.frozen : tensor<8xf32>
  %h = fsdp.replicated @u.frozen : tensor<8xf32>
  // CHECK: fsdp.exit @u
  fsdp.exit @u
  return
}

// Secondary shards are kept by one gather and read by another, whole or split.
// CHECK-LABEL: func.func @secondary
func.func @secondary() {
  // CHECK: fsdp.all_gather [@u.secondary] keep_secondary : tensor<8xf32>
  %a = fsdp.all_gather [@u.secondary] keep_secondary : tensor<8xf32>
  // CHECK: fsdp.all_gather [@u.secondary] from_secondary : tensor<8xf32>
  %b = fsdp.all_gather [@u.secondary] from_secondary : tensor<8xf32>
  // CHECK: fsdp.all_gather_start [@u.secondary] keep_secondary
  %s = fsdp.all_gather_start [@u.secondary] keep_secondary
  // CHECK: fsdp.all_gather_start [@u.secondary] from_secondary
  %t = fsdp.all_gather_start [@u.secondary] from_secondary
  return
}

// Scheduled collectives: a start and its wait, tied by a token.
// CHECK-LABEL: func.func @scheduled
func.func @scheduled(%g: tensor<32xf32>) {
  // CHECK: %[[T:.*]] = fsdp.all_gather_start [@u.flat]
  %t = fsdp.all_gather_start [@u.flat]
  // CHECK: %[[R:.*]] = fsdp.reduce_scatter_start [@u.flat], %{{.*}} : tensor<32xf32>
  %r = fsdp.reduce_scatter_start [@u.flat], %g : tensor<32xf32>
  // CHECK: fsdp.all_gather_wait %[[T]] : tensor<32xf32>
  %a = fsdp.all_gather_wait %t : tensor<32xf32>
  // CHECK: fsdp.reduce_scatter_wait %[[R]]
  fsdp.reduce_scatter_wait %r
  fsdp.free %a : tensor<32xf32>
  return
}

// The update: norm, clipping factor, and one scalar program per layout.
// CHECK-LABEL: func.func @update
func.func @update() {
  // CHECK: fsdp.reduce_gradients [@u.flat]
  fsdp.reduce_gradients [@u.flat]
  // CHECK: %[[S:.*]] = fsdp.sum_squares [@u.flat] : tensor<1x16xf64>
  %s = fsdp.sum_squares [@u.flat] : tensor<1x16xf64>
  // CHECK: %[[R:.*]] = fsdp.all_reduce %[[S]] : tensor<1x16xf64>
  %r = fsdp.all_reduce %s : tensor<1x16xf64>
  // CHECK: %[[C:.*]] = fsdp.clip_scale [@u.flat], %[[R]] {max_norm = 1.000000e+00 : f64} : tensor<1x16xf64> -> tensor<f32>
  %c = fsdp.clip_scale [@u.flat], %r {max_norm = 1.0 : f64} : tensor<1x16xf64> -> tensor<f32>
  // CHECK: fsdp.gather_gradients [@u.flat]
  fsdp.gather_gradients [@u.flat]
  // CHECK: fsdp.optimizer @u.flat, %[[C]] : tensor<f32> {
  // CHECK: fsdp.yield %{{.*}}, %{{.*}}, %{{.*}} : f32, f32, f32
  fsdp.optimizer @u.flat, %c : tensor<f32> {
  ^bb0(%p: f32, %g: f32, %m: f32, %v: f32, %lr: f64, %step: f64, %decay: f64):
    fsdp.yield %p, %m, %v : f32, f32, f32
  }
  // Sums over whole parameters, and an optimizer that takes its layout's.
  // CHECK: %[[N:.*]] = fsdp.member_sums [@u.flat], %[[C]] : tensor<f32> -> tensor<1x16xf64> {
  // CHECK: fsdp.yield %{{.*}} : f64
  %n = fsdp.member_sums [@u.flat], %c : tensor<f32> -> tensor<1x16xf64> {
  ^bb0(%p: f32, %g: f32, %m: f32, %v: f32, %lr: f64, %step: f64, %decay: f64):
    %wide = arith.extf %p : f32 to f64
    fsdp.yield %wide : f64
  }
  // CHECK: fsdp.optimizer @u.flat, %[[C]] sums %[[N]][0] : tensor<f32>, tensor<1x16xf64> {
  fsdp.optimizer @u.flat, %c sums %n[0] : tensor<f32>, tensor<1x16xf64> {
  ^bb0(%p: f32, %g: f32, %m: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
    fsdp.yield %p, %m, %v : f32, f32, f32
  }
  // CHECK: fsdp.gather_parameters [@u.flat]
  fsdp.gather_parameters [@u.flat]
  return
}
