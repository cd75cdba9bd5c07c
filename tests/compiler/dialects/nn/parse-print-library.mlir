// RUN: fsdpc-opt %s | fsdpc-opt | FileCheck %s
// RUN: fsdpc-opt %s --mlir-print-op-generic | fsdpc-opt | FileCheck %s

// CHECK-LABEL: func.func @matmul
func.func @matmul(%a: tensor<2x3x4xf32>, %b: tensor<5x4xf32>, %c: tensor<2x3x5xf32>, %row: tensor<5xf32>) {
  // CHECK: nn.matmul %{{.*}}, %{{.*}} {transpose_b} : tensor<2x3x4xf32>, tensor<5x4xf32> -> tensor<2x3x5xf32>
  %0 = nn.matmul %a, %b {transpose_b} : tensor<2x3x4xf32>, tensor<5x4xf32> -> tensor<2x3x5xf32>
  // CHECK: nn.matmul %{{.*}}, %{{.*}} accumulate %{{.*}} {transpose_b} : tensor<2x3x4xf32>, tensor<5x4xf32>, accumulate tensor<2x3x5xf32> -> tensor<2x3x5xf32>
  %1 = nn.matmul %a, %b accumulate %c {transpose_b} : tensor<2x3x4xf32>, tensor<5x4xf32>, accumulate tensor<2x3x5xf32> -> tensor<2x3x5xf32>
  // CHECK: nn.matmul %{{.*}}, %{{.*}} accumulate %{{.*}} {transpose_b} : tensor<2x3x4xf32>, tensor<5x4xf32>, accumulate tensor<5xf32> -> tensor<2x3x5xf32>
  %2 = nn.matmul %a, %b accumulate %row {transpose_b} : tensor<2x3x4xf32>, tensor<5x4xf32>, accumulate tensor<5xf32> -> tensor<2x3x5xf32>
  return
}

// CHECK-LABEL: func.func @fused_matmul
func.func @fused_matmul(%a: tensor<2x3x4xbf16>, %b: tensor<4x8xbf16>, %c: tensor<2x3x8xbf16>, %row: tensor<8xbf16>, %x: tensor<4x3xbf16>, %dy: tensor<4x8xbf16>) {
  // CHECK: nn.fused_matmul none %{{.*}}, %{{.*}} bias %{{.*}} plus %{{.*}} : (tensor<2x3x4xbf16>, tensor<4x8xbf16>, tensor<8xbf16>, tensor<2x3x8xbf16>) -> tensor<2x3x8xbf16>
  %0 = nn.fused_matmul none %a, %b bias %row plus %c : (tensor<2x3x4xbf16>, tensor<4x8xbf16>, tensor<8xbf16>, tensor<2x3x8xbf16>) -> tensor<2x3x8xbf16>
  // CHECK: nn.fused_matmul gelu %{{.*}}, %{{.*}} : (tensor<2x3x4xbf16>, tensor<4x8xbf16>) -> (tensor<2x3x8xbf16>, tensor<2x3x8xbf16>)
  %1:2 = nn.fused_matmul gelu %a, %b : (tensor<2x3x4xbf16>, tensor<4x8xbf16>) -> (tensor<2x3x8xbf16>, tensor<2x3x8xbf16>)
  // CHECK: nn.fused_matmul gelu_grad %{{.*}}, %{{.*}} input %{{.*}} : (tensor<2x3x4xbf16>, tensor<4x8xbf16>, tensor<2x3x8xbf16>) -> tensor<2x3x8xbf16>
  %2 = nn.fused_matmul gelu_grad %a, %b input %1#1 : (tensor<2x3x4xbf16>, tensor<4x8xbf16>, tensor<2x3x8xbf16>) -> tensor<2x3x8xbf16>
  // CHECK: nn.fused_matmul sum_rhs %{{.*}}, %{{.*}} {transpose_a} : (tensor<4x3xbf16>, tensor<4x8xbf16>) -> (tensor<3x8xbf16>, tensor<8xbf16>)
  %3:2 = nn.fused_matmul sum_rhs %x, %dy {transpose_a} : (tensor<4x3xbf16>, tensor<4x8xbf16>) -> (tensor<3x8xbf16>, tensor<8xbf16>)
  return
}

// CHECK-LABEL: func.func @windows
func.func @windows(%x: tensor<2x4x8x8xf32>, %f: tensor<6x2x3x3xf32>) {
  // CHECK: nn.conv2d %{{.*}}, %{{.*}} {dilations = array<i64: 1, 1>, groups = 2 : i64, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} : tensor<2x4x8x8xf32>, tensor<6x2x3x3xf32> -> tensor<2x6x4x4xf32>
  %y = nn.conv2d %x, %f {dilations = array<i64: 1, 1>, groups = 2 : i64, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} : tensor<2x4x8x8xf32>, tensor<6x2x3x3xf32> -> tensor<2x6x4x4xf32>
  // CHECK: nn.conv2d_grad_input
  %dx = nn.conv2d_grad_input %y, %f {dilations = array<i64: 1, 1>, groups = 2 : i64, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} : tensor<2x6x4x4xf32>, tensor<6x2x3x3xf32> -> tensor<2x4x8x8xf32>
  // CHECK: nn.conv2d_grad_filter
  %df = nn.conv2d_grad_filter %y, %x {dilations = array<i64: 1, 1>, groups = 2 : i64, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} : tensor<2x6x4x4xf32>, tensor<2x4x8x8xf32> -> tensor<6x2x3x3xf32>
  // CHECK: nn.max_pool2d %{{.*}} {kernel = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} : tensor<2x4x8x8xf32> -> tensor<2x4x4x4xf32>, tensor<2x4x4x4xi32>
  %m, %i = nn.max_pool2d %x {kernel = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} : tensor<2x4x8x8xf32> -> tensor<2x4x4x4xf32>, tensor<2x4x4x4xi32>
  // CHECK: nn.max_pool2d_grad
  %dm = nn.max_pool2d_grad %m, %i {kernel = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} : tensor<2x4x4x4xf32>, tensor<2x4x4x4xi32> -> tensor<2x4x8x8xf32>
  // CHECK: nn.avg_pool2d %{{.*}} {count_padding
  %a = nn.avg_pool2d %x {count_padding, kernel = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 2, 2>} : tensor<2x4x8x8xf32> -> tensor<2x4x4x4xf32>
  // CHECK: nn.avg_pool2d_grad
  %da = nn.avg_pool2d_grad %a {count_padding, kernel = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 2, 2>} : tensor<2x4x4x4xf32> -> tensor<2x4x8x8xf32>
  return
}

func.func private @bias_gelu(%x: tensor<2x3xf32>, %b: tensor<3xf32>) -> tensor<2x3xf32> attributes {nn.kernel} {
  return %x : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @launch
func.func @launch(%x: tensor<2x3xf32>, %b: tensor<3xf32>) {
  // CHECK: nn.launch @bias_gelu(%{{.*}}, %{{.*}}) {tied = array<i64: 0>} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %0 = nn.launch @bias_gelu(%x, %b) {tied = array<i64: 0>} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return
}
