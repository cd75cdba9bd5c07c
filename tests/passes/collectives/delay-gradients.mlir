// RUN: fsdpc-opt %s --delay-gradients --split-input-file | FileCheck %s

fsdp.parameter @w : tensor<8x8xf32> trainable unit @a
fsdp.parameter @b : tensor<8xf32> trainable unit @a
fsdp.unit @a
fsdp.unit @c
fsdp.layout @a.flat of @a trainable elements 72 : f32 states 0 {
  members = [#fsdp.member<@w[0, 64] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@b[64, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}

func.func @microbatch(%x: tensor<8x8xf32>) {
  %f = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<72xf32>
  %w = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<72xf32> -> tensor<8x8xf32>

  // The bias's gradient moves below the last reader of the weight, to the
  // product that reads %dy last, and its reshape down to the pack.
  // CHECK: %[[DY:.*]] = nn.neg
  // CHECK-NEXT: nn.matmul %[[DY]], %{{.*}} {fsdp.backward
  // CHECK-NEXT: %[[DB:.*]] = nn.reduce sum %[[DY]]
  // CHECK-NEXT: %[[DW:.*]] = nn.matmul %{{.*}}, %[[DY]]
  // CHECK-NEXT: %[[B:.*]] = nn.reshape %[[DB]]
  // CHECK-NEXT: fsdp.pack @a.flat(%[[DW]], %[[B]])
  %dy = nn.neg %x {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
  %db = nn.reduce sum %dy [0] {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32> -> tensor<1x8xf32>
  %b = nn.reshape %db {fsdp.backward, fsdp.unit = @a} : tensor<1x8xf32> -> tensor<8xf32>
  %dx = nn.matmul %dy, %w {fsdp.backward, fsdp.unit = @a, transpose_b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %dw = nn.matmul %x, %dy {fsdp.backward, fsdp.unit = @a, transpose_a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %g = fsdp.pack @a.flat(%dw, %b) {fsdp.backward, fsdp.unit = @a} : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<72xf32>
  fsdp.reduce @a.flat, %g {fsdp.backward, fsdp.unit = @a} : tensor<72xf32>
  return
}

// -----

fsdp.parameter @w : tensor<8x8xf32> trainable unit @a
fsdp.parameter @b : tensor<8xf32> trainable unit @a
fsdp.unit @a
fsdp.unit @c
fsdp.layout @a.flat of @a trainable elements 72 : f32 states 0 {
  members = [#fsdp.member<@w[0, 64] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@b[64, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}

func.func @microbatch(%x: tensor<8x8xf32>) {
  // A gradient stays where it is the last reader of an operand, and where the
  // last reader is of another unit. A sum that others read is no gradient.
  // CHECK: %[[DB:.*]] = nn.reduce sum
  // CHECK-NEXT: %[[DW:.*]] = nn.mul
  // CHECK-NEXT: nn.mul %[[DW]], %[[DW]]
  // CHECK-NEXT: nn.neg %{{.*}} {fsdp.backward, fsdp.unit = @c}
  // CHECK-NEXT: nn.reshape %[[DB]]
  // CHECK-NEXT: fsdp.pack
  %dy = nn.neg %x {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
  %dz = nn.neg %dy {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
  %db = nn.reduce sum %dz [0] {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32> -> tensor<1x8xf32>
  %b = nn.reshape %db {fsdp.backward, fsdp.unit = @a} : tensor<1x8xf32> -> tensor<8xf32>
  %dw = nn.mul %dy, %dy {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
  %read = nn.mul %dw, %dw {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
  %other = nn.neg %dy {fsdp.backward, fsdp.unit = @c} : tensor<8x8xf32>
  %g = fsdp.pack @a.flat(%dw, %b) {fsdp.backward, fsdp.unit = @a} : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<72xf32>
  fsdp.reduce @a.flat, %g {fsdp.backward, fsdp.unit = @a} : tensor<72xf32>
  return
}
