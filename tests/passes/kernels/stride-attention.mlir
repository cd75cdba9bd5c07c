// Attention reads and writes strided tensors, which avoids copies around it.
// RUN: fsdpc-opt %s --stride-attention --split-input-file | FileCheck %s
// RUN: fsdpc-opt %s --stride-attention --outline-kernels --split-input-file | FileCheck %s --check-prefix=KERNELS

// Queries, keys and values are slices of one projection, and so are their
// cotangents: nothing is copied. The transpose that the backward repeats is
// that of the forward.
// CHECK-LABEL: func.func @microbatch
// CHECK: %[[QKV:.*]] = nn.matmul %arg0, %arg0
// CHECK: nn.transpose %[[QKV]] [2, 0, 3, 1, 4] {nn.strided = "operand"}
// CHECK-COUNT-3: nn.slice {{.*}} {nn.strided = "operand"}
// CHECK: nn.attention
// CHECK: nn.transpose %{{.*}} [0, 2, 1, 3] {nn.strided = "result"}
// CHECK: nn.attention_grad
// CHECK: nn.concat {{.*}}nn.strided = "result"
// CHECK: nn.transpose {{.*}} [1, 3, 0, 2, 4] {nn.strided = "result"}
// CHECK-NOT: nn.transpose
// KERNELS-LABEL: func.func @microbatch
// KERNELS-NOT: nn.launch
// KERNELS: return
module {
  func.func @microbatch(%x: tensor<2x4x3x2x8xf32> {fsdp.input = "x"}) {
    %qkv = nn.matmul %x, %x {transpose_b} : tensor<2x4x3x2x8xf32>, tensor<2x4x3x2x8xf32> -> tensor<2x4x3x2x2xf32>
    %p = nn.transpose %qkv [2, 0, 3, 1, 4] : tensor<2x4x3x2x2xf32> -> tensor<3x2x2x4x2xf32>
    %q5 = nn.slice %p [0, 0, 0, 0, 0] by [1, 1, 1, 1, 1] : tensor<3x2x2x4x2xf32> -> tensor<1x2x2x4x2xf32>
    %k5 = nn.slice %p [1, 0, 0, 0, 0] by [1, 1, 1, 1, 1] : tensor<3x2x2x4x2xf32> -> tensor<1x2x2x4x2xf32>
    %v5 = nn.slice %p [2, 0, 0, 0, 0] by [1, 1, 1, 1, 1] : tensor<3x2x2x4x2xf32> -> tensor<1x2x2x4x2xf32>
    %q = nn.reshape %q5 : tensor<1x2x2x4x2xf32> -> tensor<2x2x4x2xf32>
    %k = nn.reshape %k5 : tensor<1x2x2x4x2xf32> -> tensor<2x2x4x2xf32>
    %v = nn.reshape %v5 : tensor<1x2x2x4x2xf32> -> tensor<2x2x4x2xf32>
    %o, %lse = nn.attention %q, %k, %v {causal, scale = 1.0 : f64}
      : tensor<2x2x4x2xf32>, tensor<2x2x4x2xf32>, tensor<2x2x4x2xf32> -> tensor<2x2x4x2xf32>, tensor<2x2x4xf32>
    %t = nn.transpose %o [0, 2, 1, 3] : tensor<2x2x4x2xf32> -> tensor<2x4x2x2xf32>
    %y = nn.matmul %t, %t : tensor<2x4x2x2xf32>, tensor<2x4x2x2xf32> -> tensor<2x4x2x2xf32>
    %again = nn.transpose %o [0, 2, 1, 3] : tensor<2x2x4x2xf32> -> tensor<2x4x2x2xf32>
    %g = nn.matmul %again, %y : tensor<2x4x2x2xf32>, tensor<2x4x2x2xf32> -> tensor<2x4x2x2xf32>
    %h = nn.reshape %g : tensor<2x4x2x2xf32> -> tensor<2x2x4x2xf32>
    %d:3 = nn.attention_grad %h, %q, %k, %v, %o, %lse {causal, scale = 1.0 : f64}
      : tensor<2x2x4x2xf32>, tensor<2x2x4x2xf32>, tensor<2x2x4x2xf32>, tensor<2x2x4x2xf32>, tensor<2x2x4x2xf32>, tensor<2x2x4xf32>
      -> tensor<2x2x4x2xf32>, tensor<2x2x4x2xf32>, tensor<2x2x4x2xf32>
    %a = nn.reshape %d#0 : tensor<2x2x4x2xf32> -> tensor<1x2x2x4x2xf32>
    %b = nn.reshape %d#1 : tensor<2x2x4x2xf32> -> tensor<1x2x2x4x2xf32>
    %c = nn.reshape %d#2 : tensor<2x2x4x2xf32> -> tensor<1x2x2x4x2xf32>
    %j = nn.concat %a, %b, %c {axis = 0 : i64} : (tensor<1x2x2x4x2xf32>, tensor<1x2x2x4x2xf32>, tensor<1x2x2x4x2xf32>) -> tensor<3x2x2x4x2xf32>
    %m = nn.transpose %j [1, 3, 0, 2, 4] : tensor<3x2x2x4x2xf32> -> tensor<2x4x3x2x2xf32>
    %z = nn.matmul %m, %x : tensor<2x4x3x2x2xf32>, tensor<2x4x3x2x8xf32> -> tensor<2x4x3x2x8xf32>
    return
  }
}

// -----

// A transpose with another reader must be materialised. The values are one of
// two slices; the other half would live as long, so they are copied.
// CHECK-LABEL: func.func @microbatch
// CHECK-NOT: nn.strided
// CHECK: return
// KERNELS-LABEL: func.func @microbatch
// KERNELS: nn.launch @transpose
// KERNELS: nn.launch @slice
module {
  func.func @microbatch(%x: tensor<2x4x2x8xf32> {fsdp.input = "x"}, %w: tensor<2x2x4x16xf32> {fsdp.input = "w"}) {
    %q = nn.transpose %x [0, 2, 1, 3] : tensor<2x4x2x8xf32> -> tensor<2x2x4x8xf32>
    %v = nn.slice %w [0, 0, 0, 8] by [1, 1, 1, 1] : tensor<2x2x4x16xf32> -> tensor<2x2x4x8xf32>
    %o, %lse = nn.attention %q, %q, %v {scale = 1.0 : f64}
      : tensor<2x2x4x8xf32>, tensor<2x2x4x8xf32>, tensor<2x2x4x8xf32> -> tensor<2x2x4x8xf32>, tensor<2x2x4xf32>
    %y = nn.matmul %q, %o {transpose_b} : tensor<2x2x4x8xf32>, tensor<2x2x4x8xf32> -> tensor<2x2x4x4xf32>
    return
  }
}

// -----

// A slice that walks backwards is copied: its memory begins before its first
// element, which strides do not describe.
// CHECK-LABEL: func.func @microbatch
// CHECK-NOT: nn.strided
// CHECK: return
module {
  func.func @microbatch(%x: tensor<2x2x4x2xf32> {fsdp.input = "x"}) {
    %p = nn.matmul %x, %x {transpose_b} : tensor<2x2x4x2xf32>, tensor<2x2x4x2xf32> -> tensor<2x2x4x4xf32>
    %q = nn.slice %p [0, 0, 3, 0] by [1, 1, -1, 1] : tensor<2x2x4x4xf32> -> tensor<2x2x4x4xf32>
    %o, %lse = nn.attention %q, %q, %q {scale = 1.0 : f64}
      : tensor<2x2x4x4xf32>, tensor<2x2x4x4xf32>, tensor<2x2x4x4xf32> -> tensor<2x2x4x4xf32>, tensor<2x2x4xf32>
    %y = nn.matmul %o, %x : tensor<2x2x4x4xf32>, tensor<2x2x4x2xf32> -> tensor<2x2x4x2xf32>
    return
  }
}

// -----

// On GPUs libraries load 16 bytes at a time. Rows of 20 elements of bf16 are 40
// bytes apart, so queries are copied.
// CHECK-LABEL: func.func @microbatch
// CHECK-NOT: nn.strided = "operand"
// CHECK: return
// KERNELS-LABEL: func.func @microbatch
// KERNELS: nn.launch
module attributes {fsdp.options = {target = "cuda"}} {
  func.func @microbatch(%x: tensor<2x4x20xbf16> {fsdp.input = "x"}, %k: tensor<2x1x4x8xbf16> {fsdp.input = "k"}, %w: tensor<20x20xbf16> {fsdp.input = "w"}) {
    %wide = nn.matmul %x, %w : tensor<2x4x20xbf16>, tensor<20x20xbf16> -> tensor<2x4x20xbf16>
    %h = nn.reshape %wide : tensor<2x4x20xbf16> -> tensor<2x4x1x20xbf16>
    %t = nn.transpose %h [0, 2, 1, 3] : tensor<2x4x1x20xbf16> -> tensor<2x1x4x20xbf16>
    %q = nn.slice %t [0, 0, 0, 0] by [1, 1, 1, 1] : tensor<2x1x4x20xbf16> -> tensor<2x1x4x8xbf16>
    %r = nn.slice %t [0, 0, 0, 8] by [1, 1, 1, 1] : tensor<2x1x4x20xbf16> -> tensor<2x1x4x8xbf16>
    %s = nn.slice %t [0, 0, 0, 12] by [1, 1, 1, 1] : tensor<2x1x4x20xbf16> -> tensor<2x1x4x8xbf16>
    %o, %lse = nn.attention %q, %k, %k {causal, scale = 1.0 : f64}
      : tensor<2x1x4x8xbf16>, tensor<2x1x4x8xbf16>, tensor<2x1x4x8xbf16> -> tensor<2x1x4x8xbf16>, tensor<2x1x4xf32>
    %p, %lsf = nn.attention %r, %s, %k {causal, scale = 1.0 : f64}
      : tensor<2x1x4x8xbf16>, tensor<2x1x4x8xbf16>, tensor<2x1x4x8xbf16> -> tensor<2x1x4x8xbf16>, tensor<2x1x4xf32>
    return
  }
}
