// Hand-edited schedules that satisfy the rules.
// RUN: fsdpc-opt %s --verify-schedule --split-input-file | FileCheck %s

// Started late, the second gather (50 µs by the model) is completely exposed.
// Times in an edited dump are recomputed.
// CHECK-LABEL: module
// CHECK-SAME: fsdp.schedule_hash = "[[HASH:[0-9a-f]+]]"
// CHECK: fsdp.free
// CHECK: fsdp.all_gather_start [@b.flat] {fsdp.bytes = 64 : i64, fsdp.cost_us = 5.001
// CHECK: fsdp.all_gather_wait {{.*}} {fsdp.exposed_us = 5.001
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %s = fsdp.all_gather_start [@a.flat]
    %f = fsdp.all_gather_wait %s : tensor<16xf32>
    %v = fsdp.view %f[@v at 0] : tensor<16xf32> -> tensor<4x4xf32>
    %y = nn.matmul %x, %v {fsdp.cost_us = 30.0 : f64} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.free %f : tensor<16xf32>
    %t = fsdp.all_gather_start [@b.flat] {fsdp.cost_us = 7.0 : f64}
    %g = fsdp.all_gather_wait %t : tensor<16xf32>
    %w = fsdp.view %g[@w at 0] : tensor<16xf32> -> tensor<4x4xf32>
    %z = nn.matmul %y, %w : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.free %g : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// The same start moved before the compute of unit a. On one core that takes
// 69 µs and not 30 beside the gather, and half of these are the gather's. The
// order of starts is the same, and so is its hash.
// CHECK-LABEL: module
// CHECK-SAME: fsdp.schedule_hash = "[[HASH]]"
// CHECK: fsdp.all_gather_start [@a.flat]
// CHECK: fsdp.all_gather_wait
// CHECK-NEXT: fsdp.all_gather_start [@b.flat]
// CHECK: fsdp.free
// CHECK: fsdp.all_gather_wait {{.*}} {fsdp.exposed_us = 1.55
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %s = fsdp.all_gather_start [@a.flat]
    %f = fsdp.all_gather_wait %s : tensor<16xf32>
    %t = fsdp.all_gather_start [@b.flat] {fsdp.cost_us = 7.0 : f64}
    %v = fsdp.view %f[@v at 0] : tensor<16xf32> -> tensor<4x4xf32>
    %y = nn.matmul %x, %v {fsdp.cost_us = 30.0 : f64} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.free %f : tensor<16xf32>
    %g = fsdp.all_gather_wait %t : tensor<16xf32>
    %w = fsdp.view %g[@w at 0] : tensor<16xf32> -> tensor<4x4xf32>
    %z = nn.matmul %y, %w : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.free %g : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// Moved before the start of the other gather, it delays that one, and ranks
// that run the other program would disagree.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.schedule_hash = "[[HASH]]"
// CHECK: fsdp.all_gather_start [@b.flat]
// CHECK-NEXT: fsdp.all_gather_start [@a.flat]
// CHECK-NEXT: fsdp.all_gather_wait {{.*}} {fsdp.exposed_us = 1.000
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %t = fsdp.all_gather_start [@b.flat] {fsdp.cost_us = 7.0 : f64}
    %s = fsdp.all_gather_start [@a.flat]
    %f = fsdp.all_gather_wait %s : tensor<16xf32>
    %v = fsdp.view %f[@v at 0] : tensor<16xf32> -> tensor<4x4xf32>
    %y = nn.matmul %x, %v {fsdp.cost_us = 30.0 : f64} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.free %f : tensor<16xf32>
    %g = fsdp.all_gather_wait %t : tensor<16xf32>
    %w = fsdp.view %g[@w at 0] : tensor<16xf32> -> tensor<4x4xf32>
    %z = nn.matmul %y, %w : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.free %g : tensor<16xf32>
    return
  }
  func.func @update() { return }
}
