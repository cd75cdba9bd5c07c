// RUN: fsdpc-opt %s --grad --verify-grad | FileCheck %s

// Gradients that the model hands over are not computed again. What only they
// need follows the forward as its backward; an op that reads a weight is in the
// weight's unit, with a load of its own, and the ops after it stay there. A
// gradient is handed over as soon as it is there.
fsdp.unit @a
fsdp.unit @b
fsdp.parameter @w : tensor<4x4xf32> trainable unit @a
fsdp.parameter @v : tensor<4x4xf32> trainable unit @b
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%x: tensor<2x4xf32> {fsdp.input = "x"}) {
  %w = fsdp.load @w {fsdp.unit = @a} : tensor<4x4xf32>
  %y = nn.matmul %x, %w {fsdp.unit = @a} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
  %dv = nn.matmul %y, %x {transpose_a, fsdp.unit = @a} : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<4x4xf32>
  %v = fsdp.load @v {fsdp.unit = @b} : tensor<4x4xf32>
  %z = nn.matmul %y, %v {fsdp.unit = @b} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
  %s = nn.reduce sum %z [0, 1] {fsdp.unit = @b} : tensor<2x4xf32> -> tensor<1x1xf32>
  %l = nn.reshape %s {fsdp.unit = @b} : tensor<1x1xf32> -> tensor<f32>
  %dy = nn.matmul %x, %v {transpose_b, fsdp.unit = @b} : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
  %dw = nn.matmul %x, %dy {transpose_a, fsdp.unit = @b} : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<4x4xf32>
  // CHECK: fsdp.report_loss
  // CHECK-NEXT: %[[DV:.*]] = nn.matmul %{{.*}}, %arg0 {fsdp.backward, fsdp.unit = @b, transpose_a}
  // CHECK-NEXT: fsdp.gradient @v, %[[DV]] {fsdp.backward, fsdp.unit = @b}
  // CHECK-NEXT: %[[V:.*]] = fsdp.load @v {fsdp.backward, fsdp.unit = @b}
  // CHECK-NEXT: %[[DY:.*]] = nn.matmul %arg0, %[[V]] {fsdp.backward, fsdp.unit = @b, transpose_b}
  // CHECK-NEXT: %[[DW:.*]] = nn.matmul %arg0, %[[DY]] {fsdp.backward, fsdp.unit = @b, transpose_a}
  // CHECK-NEXT: fsdp.gradient @w, %[[DW]] {fsdp.backward, fsdp.unit = @a}
  // CHECK-NEXT: return
  fsdp.report_loss %l {fsdp.unit = @b} : tensor<f32>
  fsdp.gradient @w, %dw {fsdp.unit = @b} : tensor<4x4xf32>
  fsdp.gradient @v, %dv {fsdp.unit = @b} : tensor<4x4xf32>
  return
}
