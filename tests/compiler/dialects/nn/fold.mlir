// RUN: fsdpc-opt %s --canonicalize | FileCheck %s

// Operations with a neutral element fold, even if it is a broadcast constant.
// CHECK-LABEL: func.func @neutral
// CHECK-SAME: (%[[X:.*]]: tensor<2x3xf32>)
func.func @neutral(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
  %zero = nn.constant dense<0.0> : tensor<f32>
  %zeros = nn.broadcast %zero : tensor<f32> -> tensor<2x3xf32>
  %ones = nn.constant dense<1.0> : tensor<2x3xf32>
  %0 = nn.add %x, %zeros : tensor<2x3xf32>
  %1 = nn.sub %0, %zeros : tensor<2x3xf32>
  %2 = nn.mul %ones, %1 : tensor<2x3xf32>
  %3 = nn.div %2, %ones : tensor<2x3xf32>
  // A product with zero does not fold: infinity and NaN times zero are not
  // zero.
  // CHECK: %[[Z:.*]] = nn.mul %[[X]]
  %4 = nn.mul %x, %zeros : tensor<2x3xf32>
  // CHECK: return %[[X]], %[[Z]]
  return %3, %4 : tensor<2x3xf32>, tensor<2x3xf32>
}

// CHECK-LABEL: func.func @identities
// CHECK-SAME: (%[[X:.*]]: tensor<2x3xf32>)
func.func @identities(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = nn.cast %x : tensor<2x3xf32> -> tensor<2x3xf32>
  %1 = nn.broadcast %0 : tensor<2x3xf32> -> tensor<2x3xf32>
  %2 = nn.reshape %1 : tensor<2x3xf32> -> tensor<2x3xf32>
  %3 = nn.transpose %2 [0, 1] : tensor<2x3xf32> -> tensor<2x3xf32>
  %4 = nn.slice %3 [0, 0] by [1, 1] : tensor<2x3xf32> -> tensor<2x3xf32>
  %5 = nn.concat %4 {axis = 0 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK-NEXT: return %[[X]]
  return %5 : tensor<2x3xf32>
}

// A slice that reverses is not an identity. A cast through bf16 rounds and must
// stay.
// CHECK-LABEL: func.func @no_identities
func.func @no_identities(%x: tensor<2xf32>) -> tensor<2xf32> {
  // CHECK-NEXT: nn.slice
  %0 = nn.slice %x [1] by [-1] : tensor<2xf32> -> tensor<2xf32>
  // CHECK-NEXT: nn.cast
  %1 = nn.cast %0 : tensor<2xf32> -> tensor<2xbf16>
  // CHECK-NEXT: nn.cast
  %2 = nn.cast %1 : tensor<2xbf16> -> tensor<2xf32>
  return %2 : tensor<2xf32>
}

// Chains become one op, or none.
// CHECK-LABEL: func.func @chains
// CHECK-SAME: (%[[X:.*]]: tensor<2x3x4xf32>)
func.func @chains(%x: tensor<2x3x4xf32>) -> (tensor<24xf32>, tensor<2x3x4xf32>, tensor<4x3x2xf32>, tensor<2x3x4xf32>, tensor<5x2x3x4xf32>) {
  // CHECK-DAG: %[[R:.*]] = nn.reshape %[[X]] : tensor<2x3x4xf32> -> tensor<24xf32>
  %0 = nn.reshape %x : tensor<2x3x4xf32> -> tensor<6x4xf32>
  %1 = nn.reshape %0 : tensor<6x4xf32> -> tensor<24xf32>
  %2 = nn.reshape %1 : tensor<24xf32> -> tensor<2x3x4xf32>
  // CHECK-DAG: %[[T:.*]] = nn.transpose %[[X]] [2, 1, 0]
  %3 = nn.transpose %x [1, 2, 0] : tensor<2x3x4xf32> -> tensor<3x4x2xf32>
  %4 = nn.transpose %3 [1, 0, 2] : tensor<3x4x2xf32> -> tensor<4x3x2xf32>
  %5 = nn.transpose %4 [2, 1, 0] : tensor<4x3x2xf32> -> tensor<2x3x4xf32>
  // CHECK-DAG: %[[B:.*]] = nn.broadcast %[[X]] : tensor<2x3x4xf32> -> tensor<5x2x3x4xf32>
  %6 = nn.broadcast %x : tensor<2x3x4xf32> -> tensor<1x2x3x4xf32>
  %7 = nn.broadcast %6 : tensor<1x2x3x4xf32> -> tensor<5x2x3x4xf32>
  // CHECK: return %[[R]], %[[X]], %[[T]], %[[X]], %[[B]]
  return %1, %2, %4, %5, %7 : tensor<24xf32>, tensor<2x3x4xf32>, tensor<4x3x2xf32>, tensor<2x3x4xf32>, tensor<5x2x3x4xf32>
}

// Transposes of the last two axes become flags of the product; a second
// transpose clears the flag.
// CHECK-LABEL: func.func @matmul
// CHECK-SAME: (%[[A:.*]]: tensor<2x4x3xf32>, %[[B:.*]]: tensor<4x5xf32>)
func.func @matmul(%a: tensor<2x4x3xf32>, %b: tensor<4x5xf32>) -> tensor<2x3x5xf32> {
  %0 = nn.transpose %a [0, 2, 1] : tensor<2x4x3xf32> -> tensor<2x3x4xf32>
  %1 = nn.transpose %b [1, 0] : tensor<4x5xf32> -> tensor<5x4xf32>
  // CHECK-NEXT: nn.matmul %[[A]], %[[B]] {transpose_a} : tensor<2x4x3xf32>, tensor<4x5xf32> -> tensor<2x3x5xf32>
  %2 = nn.matmul %0, %1 {transpose_b} : tensor<2x3x4xf32>, tensor<5x4xf32> -> tensor<2x3x5xf32>
  return %2 : tensor<2x3x5xf32>
}

// A transpose that moves a batch axis stays.
// CHECK-LABEL: func.func @matmul_of_moved_batch
func.func @matmul_of_moved_batch(%a: tensor<3x2x4xf32>, %b: tensor<4x5xf32>) -> tensor<2x3x5xf32> {
  // CHECK-NEXT: nn.transpose
  %0 = nn.transpose %a [1, 0, 2] : tensor<3x2x4xf32> -> tensor<2x3x4xf32>
  // CHECK-NEXT: nn.matmul
  %1 = nn.matmul %0, %b : tensor<2x3x4xf32>, tensor<4x5xf32> -> tensor<2x3x5xf32>
  return %1 : tensor<2x3x5xf32>
}
