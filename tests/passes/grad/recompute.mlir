// RUN: fsdpc-opt %s --recompute --split-input-file --verify-diagnostics | FileCheck %s

// The input of a GELU is kept for its adjoint, so its output is recomputed
// where the backward first reads it. The forward is unchanged.
fsdp.unit @a
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%in: tensor<8x8xf32>, %g: tensor<8x8xf32>) {
  // CHECK: %[[H:.*]] = nn.matmul
  %h = nn.matmul %in, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  // CHECK-NEXT: %[[Y:.*]] = nn.gelu erf %[[H]]
  %y = nn.gelu erf %h {fsdp.unit = @a} : tensor<8x8xf32>
  // CHECK-NEXT: nn.matmul %[[Y]],
  %z = nn.matmul %y, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  // CHECK-NEXT: nn.matmul
  %o = nn.matmul %z, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  // CHECK-NEXT: %[[AGAIN:.*]] = nn.gelu erf %[[H]] {fsdp.backward, fsdp.unit = @a}
  // CHECK-NEXT: nn.matmul %[[AGAIN]],
  %dw = nn.matmul %y, %g {transpose_a, fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %dh = nn.gelu_grad erf %g, %h {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
  return
}

// -----

// A chain: the gated product from the gate's SiLU, which is recomputed too and
// serves both of its readers.
fsdp.unit @a
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%in: tensor<8x8xf32>, %g: tensor<8x8xf32>) {
  // CHECK: %[[GATE:.*]] = nn.matmul
  %gate = nn.matmul %in, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  // CHECK-NEXT: %[[UP:.*]] = nn.matmul
  %up = nn.matmul %in, %in {transpose_a, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %s = nn.silu %gate {fsdp.unit = @a} : tensor<8x8xf32>
  %y = nn.mul %s, %up {fsdp.unit = @a} : tensor<8x8xf32>
  %z = nn.matmul %y, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %o = nn.matmul %z, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  // CHECK: %[[S:.*]] = nn.silu %[[GATE]] {fsdp.backward
  // CHECK-NEXT: %[[Y:.*]] = nn.mul %[[S]], %[[UP]] {fsdp.backward
  // CHECK-NEXT: nn.matmul %[[Y]],
  %dw = nn.matmul %y, %g {transpose_a, fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  // CHECK-NEXT: nn.mul %{{.*}}, %[[S]] {fsdp.backward
  %dup = nn.mul %g, %s {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
  %ds = nn.mul %g, %up {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
  %dgate = nn.silu_grad %ds, %gate {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
  return
}

// -----

// A norm is recomputed as a whole, and its adjoint reads the statistics of the
// recomputed one. If only the statistics are read, they are kept.
fsdp.unit @a
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%in: tensor<8x8xf32>, %g: tensor<8x8xf32>) {
  // CHECK: %[[H:.*]] = nn.matmul
  %h = nn.matmul %in, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %y, %rstd = nn.rms_norm %h {epsilon = 1.0e-5 : f64, fsdp.unit = @a} : tensor<8x8xf32> -> tensor<8x8xf32>, tensor<8xf32>
  %z = nn.matmul %y, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  // CHECK: %{{.*}}, %[[KEPT:.*]] = nn.rms_norm
  %n, %rstd2 = nn.rms_norm %z {epsilon = 1.0e-5 : f64, fsdp.unit = @a} : tensor<8x8xf32> -> tensor<8x8xf32>, tensor<8xf32>
  %o = nn.matmul %n, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %p = nn.matmul %o, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  // CHECK: nn.rms_norm_grad %{{.*}}, %{{.*}}, %[[KEPT]]
  %dz = nn.rms_norm_grad %g, %z, %rstd2 {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8xf32> -> tensor<8x8xf32>
  // CHECK-NEXT: %[[Y:.*]], %[[RSTD:.*]] = nn.rms_norm %[[H]] {epsilon = 1.000000e-05 : f64, fsdp.backward
  // CHECK-NEXT: nn.matmul %[[Y]],
  %dw = nn.matmul %y, %dz {transpose_a, fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  // CHECK-NEXT: nn.rms_norm_grad %{{.*}}, %[[H]], %[[RSTD]]
  %dh = nn.rms_norm_grad %g, %h, %rstd {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8xf32> -> tensor<8x8xf32>
  return
}

// -----

// Kept: a sum of two products that are not kept themselves (two tensors would
// be kept instead of one), a value that another unit's backward reads, and a
// value that no product follows.
fsdp.unit @a
fsdp.unit @b
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%in: tensor<8x8xf32>, %g: tensor<8x8xf32>) {
  %h = nn.matmul %in, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %i = nn.matmul %h, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %sum = nn.add %h, %i {fsdp.unit = @a} : tensor<8x8xf32>
  %other = nn.exp %sum {fsdp.unit = @a} : tensor<8x8xf32>
  %z = nn.matmul %other, %in {fsdp.unit = @b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %last = nn.exp %z {fsdp.unit = @b} : tensor<8x8xf32>
  %o = nn.matmul %last, %in {fsdp.unit = @b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  // CHECK-NOT: nn.add {{.*}}fsdp.backward
  // CHECK-NOT: nn.exp {{.*}}fsdp.backward
  %d0 = nn.mul %last, %z {fsdp.backward, fsdp.unit = @b} : tensor<8x8xf32>
  %d1 = nn.mul %other, %g {fsdp.backward, fsdp.unit = @b} : tensor<8x8xf32>
  %d2 = nn.mul %sum, %g {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
  return
}

// -----

// The option that turns it off.
module attributes {fsdp.options = {recompute = "none"}} {
  fsdp.unit @a
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%in: tensor<8x8xf32>, %g: tensor<8x8xf32>) {
    %h = nn.matmul %in, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %y = nn.relu %h {fsdp.unit = @a} : tensor<8x8xf32>
    %z = nn.matmul %y, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %o = nn.matmul %z, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK-NOT: nn.relu {{.*}}fsdp.backward
    %dw = nn.mul %y, %h {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
    return
  }
}

// -----

// Whole units: the backward of unit b recomputes the products of unit a that it
// reads. The last product of the forward is kept.
module attributes {fsdp.options = {recompute = "units"}} {
  fsdp.unit @a
  fsdp.unit @b
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%in: tensor<8x8xf32>, %g: tensor<8x8xf32>) {
    // CHECK: %[[A:.*]] = nn.matmul %arg0, %arg0 {fsdp.unit = @a}
    %a = nn.matmul %in, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %h = nn.matmul %a, %in {fsdp.unit = @b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %y = nn.gelu erf %h {fsdp.unit = @b} : tensor<8x8xf32>
    %z = nn.matmul %y, %in {fsdp.unit = @b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK: %[[H:.*]] = nn.matmul %[[A]], %arg0 {fsdp.backward, fsdp.unit = @b}
    // CHECK-NEXT: %[[Y:.*]] = nn.gelu erf %[[H]] {fsdp.backward, fsdp.unit = @b}
    // CHECK-NEXT: nn.matmul %[[Y]], %arg1 {fsdp.backward
    // CHECK-NEXT: nn.gelu_grad erf %arg1, %[[H]]
    %dw = nn.matmul %y, %g {transpose_a, fsdp.backward, fsdp.unit = @b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %dh = nn.gelu_grad erf %g, %h {fsdp.backward, fsdp.unit = @b} : tensor<8x8xf32>
    return
  }
}

// -----

// Not what leads to the loss and to no product (a penalty on activations):
// mixed precision computes it in f32, but would compute a copy in bf16.
module attributes {fsdp.options = {recompute = "units"}} {
  fsdp.unit @a
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%in: tensor<8x8xf32>, %g: tensor<8x8xf32>) {
    %h = nn.matmul %in, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %y = nn.gelu erf %h {fsdp.unit = @a} : tensor<8x8xf32>
    %penalty = nn.exp %y {fsdp.unit = @a} : tensor<8x8xf32>
    %z = nn.matmul %y, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK: nn.gelu erf {{.*}} {fsdp.backward
    // CHECK-NOT: nn.exp {{.*}}fsdp.backward
    %dy = nn.mul %penalty, %g {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
    %dw = nn.matmul %y, %dy {transpose_a, fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    return
  }
}

// -----

// --recompute-scope chooses units. In the others only what is cheap is computed
// again: here the GELU of @a, but not its products, and all of @b.
module attributes {fsdp.options = {recompute = "units", "recompute-scope" = ["^b$"]}} {
  fsdp.unit @a
  fsdp.unit @b
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%in: tensor<8x8xf32>, %g: tensor<8x8xf32>) {
    // CHECK: %[[A:.*]] = nn.matmul
    %a = nn.matmul %in, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %ya = nn.gelu erf %a {fsdp.unit = @a} : tensor<8x8xf32>
    // CHECK: %[[Z:.*]] = nn.matmul {{.*}} {fsdp.unit = @a}
    %z = nn.matmul %ya, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %b = nn.matmul %z, %in {fsdp.unit = @b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %yb = nn.gelu erf %b {fsdp.unit = @b} : tensor<8x8xf32>
    %o = nn.matmul %yb, %in {fsdp.unit = @b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK: %[[B:.*]] = nn.matmul %[[Z]], %arg0 {fsdp.backward, fsdp.unit = @b}
    // CHECK-NEXT: %[[YB:.*]] = nn.gelu erf %[[B]] {fsdp.backward
    // CHECK-NEXT: nn.matmul %[[YB]], %arg1
    %dwb = nn.matmul %yb, %g {transpose_a, fsdp.backward, fsdp.unit = @b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %db = nn.gelu_grad erf %g, %b {fsdp.backward, fsdp.unit = @b} : tensor<8x8xf32>
    // CHECK: nn.gelu erf %[[A]] {fsdp.backward, fsdp.unit = @a}
    // CHECK-NEXT: nn.matmul
    %dwa = nn.matmul %ya, %db {transpose_a, fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK-NEXT: nn.gelu_grad erf %{{.*}}, %[[A]]
    %da = nn.gelu_grad erf %db, %a {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
    return
  }
}

// -----

// An expression that matches no unit is an error.
// expected-error@+1 {{--recompute-scope 'layer' matches no unit; available: 'a'}}
module attributes {fsdp.options = {recompute = "units", "recompute-scope" = ["layer"]}} {
  fsdp.unit @a
  func.func @microbatch(%in: tensor<8x8xf32>) {
    return
  }
}

// -----

// With --recompute=auto, the default, the ops that have `fsdp.recompute` are
// computed again, products too, and cheap ones besides. The second product of
// @a is kept. The unit says what of it is computed again: one op of two, as
// GELU is cheap and another unit reads the last product.
// CHECK: fsdp.unit @a {fsdp.recomputed = {of = 2 : i64, ops = 1 : i64, us = {{.*}} : i64}}
fsdp.unit @a
// CHECK: fsdp.unit @b{{$}}
fsdp.unit @b
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%in: tensor<8x8xf32>, %g: tensor<8x8xf32>) {
  // CHECK: nn.matmul {{.*}} {fsdp.recompute, fsdp.unit = @a}
  %h = nn.matmul %in, %in {fsdp.recompute, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %y = nn.gelu erf %h {fsdp.unit = @a} : tensor<8x8xf32>
  // CHECK: %[[KEPT:.*]] = nn.matmul
  %z = nn.matmul %y, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %x = nn.matmul %z, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %k = nn.matmul %x, %in {fsdp.unit = @b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %l = nn.matmul %k, %in {fsdp.unit = @b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  // CHECK-NOT: nn.matmul {{.*}} {fsdp.backward, fsdp.unit = @b}
  %dk = nn.add %k, %g {fsdp.backward, fsdp.unit = @b} : tensor<8x8xf32>
  // CHECK: nn.matmul %[[KEPT]], %{{.*}} {fsdp.backward, fsdp.unit = @a, transpose_a}
  %dx = nn.matmul %z, %dk {transpose_a, fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  // CHECK: %[[AGAIN:.*]] = nn.matmul {{.*}} {fsdp.backward, fsdp.unit = @a}
  // CHECK: nn.gelu erf %[[AGAIN]] {fsdp.backward, fsdp.unit = @a}
  %dw = nn.matmul %y, %dk {transpose_a, fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %dh = nn.gelu_grad erf %dk, %h {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
  return
}

// -----

// An op that another unit reads is kept for it in any case, so an edited dump
// cannot have it computed again.
fsdp.unit @a
fsdp.unit @b
func.func @microbatch(%in: tensor<8x8xf32>, %g: tensor<8x8xf32>) {
  // expected-error@+1 {{'nn.matmul' op has 'fsdp.recompute', but the backward cannot compute it again: only ops of the forward before its last product can be, if their own unit alone reads them; remove the attribute}}
  %h = nn.matmul %in, %in {fsdp.recompute, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %z = nn.matmul %h, %in {fsdp.unit = @b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %dz = nn.matmul %h, %g {transpose_a, fsdp.backward, fsdp.unit = @b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  return
}

// -----

// Only --recompute=auto reads marks.
module attributes {fsdp.options = {recompute = "cheap"}} {
  fsdp.unit @a
  func.func @microbatch(%in: tensor<8x8xf32>) {
    // expected-error@+1 {{'nn.matmul' op has 'fsdp.recompute', which has no effect with '--recompute=cheap'; remove the attribute, or use '--recompute=auto'}}
    %h = nn.matmul %in, %in {fsdp.recompute, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    return
  }
}

// -----

// A product on a GPU computes the tanh form of GELU from sums that are not
// rounded yet. So GELU's result is kept like the product's.
module attributes {fsdp.options = {target = "cuda", "param-dtype" = "bf16"}} {
  fsdp.unit @a
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%in: tensor<8x8xf32>, %bias: tensor<8xf32>, %g: tensor<8x8xf32>) {
    %p = nn.matmul %in, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %rows = nn.broadcast %bias {fsdp.unit = @a} : tensor<8xf32> -> tensor<8x8xf32>
    %h = nn.add %p, %rows {fsdp.unit = @a} : tensor<8x8xf32>
    // CHECK: %[[Y:.*]] = nn.gelu tanh
    %y = nn.gelu tanh %h {fsdp.unit = @a} : tensor<8x8xf32>
    %z = nn.matmul %y, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %o = nn.matmul %z, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK-NOT: nn.gelu tanh
    // CHECK: nn.matmul %[[Y]], %arg2 {fsdp.backward
    %dw = nn.matmul %y, %g {transpose_a, fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %dh = nn.gelu_grad tanh %g, %h {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
    return
  }
}

// -----

// The same in f16.
module attributes {fsdp.options = {target = "cuda", math = "fast", "param-dtype" = "f16"}} {
  fsdp.unit @a
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%in: tensor<8x8xf32>, %g: tensor<8x8xf32>) {
    %h = nn.matmul %in, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK: %[[Y:.*]] = nn.gelu tanh
    %y = nn.gelu tanh %h {fsdp.unit = @a} : tensor<8x8xf32>
    %z = nn.matmul %y, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %o = nn.matmul %z, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK-NOT: nn.gelu tanh
    // CHECK: nn.matmul %[[Y]], %arg1 {fsdp.backward
    %dw = nn.matmul %y, %g {transpose_a, fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %dh = nn.gelu_grad tanh %g, %h {fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>
    return
  }
}

// -----

// It is computed again where its product is, and kept where that is kept: an op
// of another unit reads %i.
module attributes {fsdp.options = {target = "cuda", "param-dtype" = "bf16", recompute = "units"}} {
  fsdp.unit @a
  fsdp.unit @b
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%in: tensor<8x8xf32>, %g: tensor<8x8xf32>) {
    %h = nn.matmul %in, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %y = nn.gelu tanh %h {fsdp.unit = @a} : tensor<8x8xf32>
    %j = nn.matmul %y, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %i = nn.matmul %j, %in {fsdp.unit = @b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK: %[[KEPT:.*]] = nn.gelu tanh {{.*}} {fsdp.unit = @b}
    %x = nn.gelu tanh %i {fsdp.unit = @b} : tensor<8x8xf32>
    %u = nn.neg %i {fsdp.unit = @a} : tensor<8x8xf32>
    %z = nn.matmul %x, %u {fsdp.unit = @b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %o = nn.matmul %z, %in {fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK: nn.matmul %[[KEPT]], %arg1 {fsdp.backward, fsdp.unit = @b
    %dx = nn.matmul %x, %g {transpose_a, fsdp.backward, fsdp.unit = @b} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK: %[[H:.*]] = nn.matmul {{.*}} {fsdp.backward, fsdp.unit = @a}
    // CHECK: %[[Y:.*]] = nn.gelu tanh %[[H]] {fsdp.backward, fsdp.unit = @a}
    // CHECK: nn.matmul %[[Y]], %arg1 {fsdp.backward, fsdp.unit = @a
    %dw = nn.matmul %y, %g {transpose_a, fsdp.backward, fsdp.unit = @a} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    return
  }
}
