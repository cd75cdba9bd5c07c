// A value marked `nn.strided` has no memory of its own.
// RUN: fsdpc-opt %s --plan-memory --verify-memory --split-input-file --verify-diagnostics | FileCheck %s

// Queries, keys and values are read from the product, and the result is written
// as rows of tokens: no transpose has an offset.
// CHECK-LABEL: func.func @microbatch
// CHECK: nn.matmul {{.*}}fsdp.offsets = array<i64: [[QKV:[0-9]+]]>
// CHECK-NOT: nn.transpose {{.*}}fsdp.offsets
// CHECK: nn.attention {{.*}}fsdp.offsets = array<i64: {{[0-9]+}}, {{[0-9]+}}>
// CHECK-NOT: nn.transpose {{.*}}fsdp.offsets
module attributes {fsdp.options = {"max-ranks" = 2 : i64}} {
  func.func @microbatch(%x: tensor<4x2x8xf32> {fsdp.input = "x"}) {
    %p = nn.matmul %x, %x {transpose_b} : tensor<4x2x8xf32>, tensor<4x2x8xf32> -> tensor<4x2x2xf32>
    %h = nn.reshape %p {nn.strided = "operand"} : tensor<4x2x2xf32> -> tensor<1x4x2x2xf32>
    %q = nn.transpose %h [0, 2, 1, 3] {nn.strided = "operand"} : tensor<1x4x2x2xf32> -> tensor<1x2x4x2xf32>
    %o, %lse = nn.attention %q, %q, %q {scale = 1.0 : f64}
      : tensor<1x2x4x2xf32>, tensor<1x2x4x2xf32>, tensor<1x2x4x2xf32> -> tensor<1x2x4x2xf32>, tensor<1x2x4xf32>
    %t = nn.transpose %o [0, 2, 1, 3] {nn.strided = "result"} : tensor<1x2x4x2xf32> -> tensor<1x4x2x2xf32>
    %y = nn.matmul %t, %t : tensor<1x4x2x2xf32>, tensor<1x4x2x2xf32> -> tensor<1x4x2x2xf32>
    return
  }
  func.func @update() { return }
}

// -----

// Only attention supports strides.
module attributes {fsdp.options = {"max-ranks" = 2 : i64}} {
  func.func @microbatch(%x: tensor<2x4x8xf32> {fsdp.input = "x"}) {
    %p = nn.matmul %x, %x {transpose_b} : tensor<2x4x8xf32>, tensor<2x4x8xf32> -> tensor<2x4x4xf32>
    %q = nn.transpose %p [0, 2, 1] {nn.strided = "operand"} : tensor<2x4x4xf32> -> tensor<2x4x4xf32>
    // expected-error @below {{does not support strided operands, but the operand of type 'tensor<2x4x4xf32>' is strided}}
    %y = nn.matmul %q, %q : tensor<2x4x4xf32>, tensor<2x4x4xf32> -> tensor<2x4x4xf32>
    return
  }
  func.func @update() { return }
}
