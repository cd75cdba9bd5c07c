// RUN: fsdpc-opt %s | fsdpc-opt | FileCheck %s
// RUN: fsdpc-opt %s --mlir-print-op-generic | fsdpc-opt | FileCheck %s

// CHECK-LABEL: func.func @movement
func.func @movement(%x: tensor<2x3xf32>) {
  // CHECK: nn.constant dense<1.000000e+00> : tensor<2x3xf32>
  %0 = nn.constant dense<1.0> : tensor<2x3xf32>
  // CHECK: nn.iota {axis = 1 : i64} : tensor<2x3xi64>
  %1 = nn.iota {axis = 1 : i64} : tensor<2x3xi64>
  // CHECK: nn.broadcast %{{.*}} : tensor<2x3xf32> -> tensor<4x2x3xf32>
  %2 = nn.broadcast %x : tensor<2x3xf32> -> tensor<4x2x3xf32>
  // CHECK: nn.reshape %{{.*}} : tensor<2x3xf32> -> tensor<6xf32>
  %3 = nn.reshape %x : tensor<2x3xf32> -> tensor<6xf32>
  // CHECK: nn.transpose %{{.*}} [1, 0] : tensor<2x3xf32> -> tensor<3x2xf32>
  %4 = nn.transpose %x [1, 0] : tensor<2x3xf32> -> tensor<3x2xf32>
  // CHECK: nn.slice %{{.*}} [0, 2] by [1, -1] : tensor<2x3xf32> -> tensor<2x2xf32>
  %5 = nn.slice %x [0, 2] by [1, -1] : tensor<2x3xf32> -> tensor<2x2xf32>
  // CHECK: nn.pad %{{.*}} [1, 1] by [1, 2] : tensor<2x3xf32> -> tensor<4x6xf32>
  %6 = nn.pad %x [1, 1] by [1, 2] : tensor<2x3xf32> -> tensor<4x6xf32>
  // CHECK: nn.concat %{{.*}}, %{{.*}} {axis = 1 : i64} : (tensor<2x3xf32>, tensor<2x2xf32>) -> tensor<2x5xf32>
  %7 = nn.concat %x, %5 {axis = 1 : i64} : (tensor<2x3xf32>, tensor<2x2xf32>) -> tensor<2x5xf32>
  return
}

// CHECK-LABEL: func.func @choice
func.func @choice(%x: tensor<2x3xf32>, %index: tensor<2x1xi64>, %table: tensor<9x4xf32>, %ids: tensor<2x5xi32>) {
  // CHECK: nn.reduce max %{{.*}} [0, 1] : tensor<2x3xf32> -> tensor<1x1xf32>
  %0 = nn.reduce max %x [0, 1] : tensor<2x3xf32> -> tensor<1x1xf32>
  // CHECK: nn.take_along_axis %{{.*}}, %{{.*}} : tensor<2x3xf32>, tensor<2x1xi64> -> tensor<2x1xf32>
  %1 = nn.take_along_axis %x, %index : tensor<2x3xf32>, tensor<2x1xi64> -> tensor<2x1xf32>
  // CHECK: nn.embedding %{{.*}}, %{{.*}} {padding_index = 0 : i64} : tensor<9x4xf32>, tensor<2x5xi32> -> tensor<2x5x4xf32>
  %2 = nn.embedding %table, %ids {padding_index = 0 : i64} : tensor<9x4xf32>, tensor<2x5xi32> -> tensor<2x5x4xf32>
  // CHECK: nn.embedding_grad %{{.*}}, %{{.*}} : tensor<2x5x4xf32>, tensor<2x5xi32> -> tensor<9x4xf32>
  %3 = nn.embedding_grad %2, %ids : tensor<2x5x4xf32>, tensor<2x5xi32> -> tensor<9x4xf32>
  // CHECK: nn.reduce prod %{{.*}} [1] : tensor<2x3xf32> -> tensor<2x1xf32>
  %prod = nn.reduce prod %x [1] : tensor<2x3xf32> -> tensor<2x1xf32>
  return
}
