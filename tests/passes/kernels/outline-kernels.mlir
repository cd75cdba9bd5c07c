// Which ops become one kernel.
// RUN: fsdpc-opt %s --outline-kernels --split-input-file | FileCheck %s

// A chain of elementwise ops is one kernel. A broadcast is copied into it and
// takes no memory.
// CHECK-LABEL: func.func @microbatch
// CHECK-NEXT: %[[M:.*]] = nn.matmul
// CHECK-NEXT: nn.launch @[[NAME:.*]](%[[M]], %arg1) : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
// CHECK-NEXT: nn.matmul
// CHECK: func.func private @[[NAME]](%{{.*}}: tensor<8x4xf32>, %{{.*}}: tensor<4xf32>) -> tensor<8x4xf32> attributes {nn.kernel}
// CHECK: nn.broadcast
// CHECK: nn.add
// CHECK: nn.exp
module {
  func.func @microbatch(%x: tensor<8x8xf32> {fsdp.input = "x"}, %bias: tensor<4xf32> {fsdp.input = "b"}, %w: tensor<8x4xf32> {fsdp.input = "w"}) {
    %m = nn.matmul %x, %w : tensor<8x8xf32>, tensor<8x4xf32> -> tensor<8x4xf32>
    %b = nn.broadcast %bias : tensor<4xf32> -> tensor<8x4xf32>
    %h = nn.add %m, %b : tensor<8x4xf32>
    %y = nn.exp %h : tensor<8x4xf32>
    %z = nn.matmul %x, %y : tensor<8x8xf32>, tensor<8x4xf32> -> tensor<8x4xf32>
    return
  }
}

// -----

// A kernel does not cross units or directions.
// CHECK-LABEL: func.func @microbatch
// CHECK-NEXT: nn.launch {{.*}} {fsdp.unit = @a}
// CHECK-NEXT: nn.launch {{.*}} {fsdp.unit = @b}
// CHECK-NEXT: nn.launch {{.*}} {fsdp.backward, fsdp.unit = @b}
// CHECK-NEXT: nn.matmul
module {
  fsdp.unit @a
  fsdp.unit @b
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.exp %x {fsdp.unit = @a} : tensor<4x4xf32>
    %b = nn.exp %a {fsdp.unit = @b} : tensor<4x4xf32>
    %c = nn.exp %b {fsdp.unit = @b, fsdp.backward} : tensor<4x4xf32>
    %d = nn.matmul %c, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// A library call between two ops keeps them apart: the kernel would have to run
// before and after it.
// CHECK-LABEL: func.func @microbatch
// CHECK-NEXT: %[[A:.*]] = nn.launch
// CHECK-NEXT: %[[M:.*]] = nn.matmul %[[A]]
// CHECK-NEXT: %[[C:.*]] = nn.launch @{{.*}}(%[[A]], %[[M]])
// CHECK-NEXT: nn.matmul %[[C]]
module {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.exp %x : tensor<4x4xf32>
    %m = nn.matmul %a, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %c = nn.mul %a, %m : tensor<4x4xf32>
    %d = nn.matmul %c, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// The same indirectly: %d may not join %k, because %m follows the kernel of %a
// and %c, which reads %k.
// CHECK-LABEL: func.func @microbatch
// CHECK-NEXT: %[[K:.*]] = nn.launch @{{.*}}(%arg1) {fsdp.unit = @b}
// CHECK-NEXT: %[[AC:.*]]:2 = nn.launch @{{.*}}(%arg0, %[[K]]) {fsdp.unit = @a}
// CHECK-NEXT: %[[M:.*]] = nn.matmul %[[AC]]#0
// CHECK-NEXT: nn.launch @{{.*}}(%[[K]], %[[M]]) {fsdp.unit = @b}
module {
  fsdp.unit @a
  fsdp.unit @b
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}, %y: tensor<4x4xf32> {fsdp.input = "y"}) {
    %a = nn.exp %x {fsdp.unit = @a} : tensor<4x4xf32>
    %m = nn.matmul %a, %x {fsdp.unit = @a} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %k = nn.log %y {fsdp.unit = @b} : tensor<4x4xf32>
    %c = nn.add %a, %k {fsdp.unit = @a} : tensor<4x4xf32>
    %d = nn.mul %k, %m {fsdp.unit = @b} : tensor<4x4xf32>
    %e = nn.matmul %c, %d : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// A reduction of rows joins the ops that compute them, and ops on its broadcast
// result join it: a softmax by hand is one kernel. A reduction along another
// axis does not join.
// CHECK-LABEL: func.func @microbatch
// CHECK-NEXT: %[[P:.*]] = nn.launch @{{.*}}(%arg0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: nn.launch @{{.*}}(%[[P]]) : (tensor<4x8xf32>) -> tensor<1x8xf32>
module {
  func.func @microbatch(%x: tensor<4x8xf32> {fsdp.input = "x"}) {
    %e = nn.exp %x : tensor<4x8xf32>
    %s = nn.reduce sum %e [1] : tensor<4x8xf32> -> tensor<4x1xf32>
    %b = nn.broadcast %s : tensor<4x1xf32> -> tensor<4x8xf32>
    %p = nn.div %e, %b : tensor<4x8xf32>
    %c = nn.reduce sum %p [0] : tensor<4x8xf32> -> tensor<1x8xf32>
    %m = nn.matmul %c, %p {transpose_b} : tensor<1x8xf32>, tensor<4x8xf32> -> tensor<1x4xf32>
    return
  }
}

// -----

// Values computed from indices and constants alone are copied into their
// readers: the scaling of the scores joins the kernel of their causal mask.
// CHECK-LABEL: func.func @microbatch
// CHECK-NEXT: %[[M:.*]] = nn.matmul
// CHECK-NEXT: %[[Y:.*]] = nn.launch @{{.*}}(%[[M]])
// CHECK-NEXT: nn.matmul %[[Y]]
module {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %m = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %s = nn.exp %m : tensor<4x4xf32>
    %t = nn.iota {axis = 0 : i64} : tensor<4x4xi32>
    %k = nn.iota {axis = 1 : i64} : tensor<4x4xi32>
    %one = nn.constant dense<1> : tensor<4x4xi32>
    %l = nn.add %t, %one : tensor<4x4xi32>
    %seen = nn.cmp le %k, %l : tensor<4x4xi32> -> tensor<4x4xi1>
    %zero = nn.constant dense<0.0> : tensor<4x4xf32>
    %y = nn.select %seen, %s, %zero : tensor<4x4xi1>, tensor<4x4xf32>
    %z = nn.matmul %y, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// A sum of rows is cut into fixed blocks. The kernel of the same rows computes
// the blocks' sums as a by-product; here they belong to a norm's weight and
// bias and to the bias before a GELU. One row per block remains to be added.
// CHECK-LABEL: func.func @microbatch
// CHECK: %[[M:.*]] = nn.matmul
// CHECK: nn.launch @{{.*}}(%[[M]], %arg0, {{.*}}) : {{.*}} -> (tensor<2x1x32xf32>, tensor<2x1x32xf32>, tensor<128x32xf32>, tensor<2x1x32xf32>)
// CHECK-COUNT-3: nn.launch @{{.*}} : (tensor<2x1x32xf32>) -> tensor<1x1x32xf32>
// CHECK-NOT: nn.launch
// CHECK: return
module {
  func.func @microbatch(%x: tensor<128x32xf32> {fsdp.input = "x"}, %w: tensor<32x32xf32> {fsdp.input = "w"}, %v: tensor<32xf32> {fsdp.input = "v"}, %mean: tensor<128xf32> {fsdp.input = "m"}, %rstd: tensor<128xf32> {fsdp.input = "r"}) {
    %m = nn.matmul %x, %w : tensor<128x32xf32>, tensor<32x32xf32> -> tensor<128x32xf32>
    %d = nn.layer_norm_grad %m, %x, %mean, %rstd weight %v : tensor<128x32xf32>, tensor<128xf32>, weight tensor<32xf32> -> tensor<128x32xf32>
    %dw = nn.norm_weight_grad %m, %x mean %mean rstd %rstd : tensor<128x32xf32>, tensor<128xf32>, mean tensor<128xf32> -> tensor<32xf32>
    %db = nn.reduce sum %m [0] : tensor<128x32xf32> -> tensor<1x32xf32>
    %g = nn.gelu_grad erf %x, %d : tensor<128x32xf32>
    %gb = nn.reduce sum %g [0] : tensor<128x32xf32> -> tensor<1x32xf32>
    %a = nn.reshape %dw : tensor<32xf32> -> tensor<1x32xf32>
    %y = nn.matmul %a, %g {transpose_b} : tensor<1x32xf32>, tensor<128x32xf32> -> tensor<1x128xf32>
    %z = nn.matmul %db, %gb {transpose_b} : tensor<1x32xf32>, tensor<1x32xf32> -> tensor<1x1xf32>
    return
  }
}

// -----

// A sum over no axis of a scalar, as a loss may have, is no sum of rows. Neither
// is one over columns of size 0.
// CHECK-LABEL: func.func @microbatch
// CHECK-DAG: nn.launch @{{.*}} : (tensor<f32>) -> tensor<f32>
// CHECK-DAG: nn.launch @{{.*}} : (tensor<64x0xf32>) -> tensor<1x0xf32>
// CHECK: return
module {
  func.func @microbatch(%x: tensor<f32> {fsdp.input = "x"}, %e: tensor<64x0xf32> {fsdp.input = "e"}) {
    %s = nn.reduce sum %x [] : tensor<f32> -> tensor<f32>
    %r = nn.reshape %s : tensor<f32> -> tensor<1x1xf32>
    %y = nn.matmul %r, %r : tensor<1x1xf32>, tensor<1x1xf32> -> tensor<1x1xf32>
    %t = nn.reduce sum %e [0] : tensor<64x0xf32> -> tensor<1x0xf32>
    %z = nn.matmul %t, %t {transpose_b} : tensor<1x0xf32>, tensor<1x0xf32> -> tensor<1x1xf32>
    return
  }
}
