// RUN: fsdpc-opt %s --recognise-composites | FileCheck %s

// The loss takes over the product's weight and bias. Ops that move rows of
// logits (here shifted labels and flattened batches) move rows of the operand
// instead.
// CHECK-LABEL: func.func @shifted
// CHECK: %[[S:.*]] = nn.slice %arg0 [0, 0, 0] by [1, 1, 1] : tensor<2x5x4xf32> -> tensor<2x4x4xf32>
// CHECK: %[[X:.*]] = nn.reshape %[[S]] : tensor<2x4x4xf32> -> tensor<8x4xf32>
// CHECK: nn.linear_cross_entropy mean %[[X]], %arg1, %arg3 bias %arg2 {ignore_index = -100 : i64, transpose_weight}
// CHECK-NOT: nn.matmul
// CHECK-NOT: nn.cross_entropy
func.func @shifted(%x: tensor<2x5x4xf32>, %w: tensor<9x4xf32>, %b: tensor<9xf32>, %t: tensor<8xi64>) -> tensor<f32> {
  %p = nn.matmul %x, %w {transpose_b} : tensor<2x5x4xf32>, tensor<9x4xf32> -> tensor<2x5x9xf32>
  %bb = nn.broadcast %b : tensor<9xf32> -> tensor<2x5x9xf32>
  %y = nn.add %p, %bb : tensor<2x5x9xf32>
  %s = nn.slice %y [0, 0, 0] by [1, 1, 1] : tensor<2x5x9xf32> -> tensor<2x4x9xf32>
  %r = nn.reshape %s : tensor<2x4x9xf32> -> tensor<8x9xf32>
  %l, %e, %v = nn.cross_entropy mean %r, %t {ignore_index = -100 : i64} : tensor<8x9xf32>, tensor<8xi64> -> tensor<f32>, tensor<8xf32>, tensor<f32>
  return %l : tensor<f32>
}

// A bias of 1xC, which BART has, becomes the vector that the fused op takes.
// CHECK-LABEL: func.func @row_bias
// CHECK: %[[B:.*]] = nn.reshape %arg2 : tensor<1x9xf32> -> tensor<9xf32>
// CHECK: nn.linear_cross_entropy mean %{{.*}}, %arg1, %arg3 bias %[[B]]
// CHECK-NOT: nn.matmul
func.func @row_bias(%x: tensor<2x5x4xf32>, %w: tensor<9x4xf32>, %b: tensor<1x9xf32>, %t: tensor<10xi64>) -> tensor<f32> {
  %p = nn.matmul %x, %w {transpose_b} : tensor<2x5x4xf32>, tensor<9x4xf32> -> tensor<2x5x9xf32>
  %bb = nn.broadcast %b : tensor<1x9xf32> -> tensor<2x5x9xf32>
  %y = nn.add %p, %bb : tensor<2x5x9xf32>
  %r = nn.reshape %y : tensor<2x5x9xf32> -> tensor<10x9xf32>
  %l, %e, %v = nn.cross_entropy mean %r, %t : tensor<10x9xf32>, tensor<10xi64> -> tensor<f32>, tensor<10xf32>, tensor<f32>
  return %l : tensor<f32>
}

// A column of as many elements as there are classes is no bias of the classes.
// CHECK-LABEL: func.func @column
// CHECK: nn.matmul
// CHECK: nn.cross_entropy
func.func @column(%x: tensor<9x4xf32>, %w: tensor<9x4xf32>, %b: tensor<9xf32>, %t: tensor<9xi64>) -> tensor<f32> {
  %p = nn.matmul %x, %w {transpose_b} : tensor<9x4xf32>, tensor<9x4xf32> -> tensor<9x9xf32>
  %c = nn.reshape %b : tensor<9xf32> -> tensor<9x1xf32>
  %bb = nn.broadcast %c : tensor<9x1xf32> -> tensor<9x9xf32>
  %y = nn.add %p, %bb : tensor<9x9xf32>
  %l, %e, %v = nn.cross_entropy mean %y, %t : tensor<9x9xf32>, tensor<9xi64> -> tensor<f32>, tensor<9xf32>, tensor<f32>
  return %l : tensor<f32>
}

// Logits with another reader must be computed.
// CHECK-LABEL: func.func @read
// CHECK: nn.matmul
// CHECK: nn.cross_entropy
func.func @read(%x: tensor<8x4xf32>, %w: tensor<4x9xf32>, %t: tensor<8xi64>) -> (tensor<f32>, tensor<8x9xf32>) {
  %p = nn.matmul %x, %w : tensor<8x4xf32>, tensor<4x9xf32> -> tensor<8x9xf32>
  %l, %e, %v = nn.cross_entropy mean %p, %t : tensor<8x9xf32>, tensor<8xi64> -> tensor<f32>, tensor<8xf32>, tensor<f32>
  return %l, %p : tensor<f32>, tensor<8x9xf32>
}

// Logits may be a parameter or a constant.
// CHECK-LABEL: func.func @parameter
// CHECK-COUNT-2: nn.cross_entropy
func.func @parameter(%t: tensor<3xi64>) -> (tensor<f32>, tensor<f32>) {
  %p = fsdp.load @logits : tensor<3x5xf32>
  %l, %e, %v = nn.cross_entropy mean %p, %t : tensor<3x5xf32>, tensor<3xi64> -> tensor<f32>, tensor<3xf32>, tensor<f32>
  %c = nn.constant dense<1.0> : tensor<3x5xf32>
  %m, %f, %w = nn.cross_entropy mean %c, %t : tensor<3x5xf32>, tensor<3xi64> -> tensor<f32>, tensor<3xf32>, tensor<f32>
  return %l, %m : tensor<f32>, tensor<f32>
}
fsdp.parameter @logits : tensor<3x5xf32> trainable
