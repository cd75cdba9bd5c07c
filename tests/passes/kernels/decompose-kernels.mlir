// Composites in kernels become primitives; those of library calls stay.
// RUN: fsdpc-opt %s --decompose-kernels | FileCheck %s

// CHECK: func.func private @softmax
// CHECK: nn.reduce max
// CHECK: nn.exp
// CHECK: nn.reduce sum
// CHECK-NOT: nn.softmax
func.func private @softmax(%x: tensor<4x6xf32>) -> tensor<4x6xf32> attributes {nn.kernel} {
  %y = nn.softmax %x : tensor<4x6xf32>
  return %y : tensor<4x6xf32>
}

// CHECK: func.func @other
// CHECK: nn.softmax
func.func @other(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %y = nn.softmax %x : tensor<4x6xf32>
  return %y : tensor<4x6xf32>
}
