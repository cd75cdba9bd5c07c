// RUN: fsdpc-opt %s --grad --split-input-file --verify-diagnostics | FileCheck %s

// Backward ops follow the forward in reverse order, with the unit and module of
// their primal. The input gets no cotangent, because no parameter leads to it.
fsdp.unit @a
fsdp.unit @b
fsdp.parameter @w : tensor<8x6xf32> trainable unit @a
fsdp.parameter @v : tensor<6x2xf32> trainable unit @b
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%x: tensor<4x8xf32> {fsdp.input = "x"}) {
  %w = fsdp.load @w {fsdp.unit = @a} : tensor<8x6xf32>
  %v = fsdp.load @v {fsdp.unit = @b} : tensor<6x2xf32>
  %y = nn.matmul %x, %w {fsdp.unit = @a, nn.modules = #nn.modules<"h.0": "Linear">} : tensor<4x8xf32>, tensor<8x6xf32> -> tensor<4x6xf32>
  %z = nn.matmul %y, %v {fsdp.unit = @b} : tensor<4x6xf32>, tensor<6x2xf32> -> tensor<4x2xf32>
  %s = nn.reduce sum %z [0, 1] {fsdp.unit = @b} : tensor<4x2xf32> -> tensor<1x1xf32>
  %l = nn.reshape %s {fsdp.unit = @b} : tensor<1x1xf32> -> tensor<f32>
  // CHECK: fsdp.report_loss
  fsdp.report_loss %l {fsdp.unit = @b} : tensor<f32>
  // CHECK-NEXT: %[[ONE:.*]] = nn.constant {fsdp.backward, fsdp.unit = @b} dense<1.000000e+00> : tensor<f32>
  // CHECK-NEXT: %[[G1:.*]] = nn.reshape %[[ONE]] {fsdp.backward, fsdp.unit = @b}
  // CHECK-NEXT: %[[G2:.*]] = nn.broadcast %[[G1]] {fsdp.backward, fsdp.unit = @b}
  // CHECK-NEXT: %[[DY:.*]] = nn.matmul %[[G2]], %{{.*}} {fsdp.backward, fsdp.unit = @b, transpose_b}
  // CHECK-NEXT: %[[DV:.*]] = nn.matmul %{{.*}}, %[[G2]] {fsdp.backward, fsdp.unit = @b, transpose_a}
  // CHECK-NEXT: fsdp.gradient @v, %[[DV]] {fsdp.backward, fsdp.unit = @b}
  // CHECK-NEXT: %[[DW:.*]] = nn.matmul %arg0, %[[DY]] {fsdp.backward, fsdp.unit = @a, nn.modules = #h_0, transpose_a}
  // CHECK-NEXT: fsdp.gradient @w, %[[DW]] {fsdp.backward, fsdp.unit = @a}
  // CHECK-NEXT: return
  return
}

// -----

// A parameter with several loads gets one gradient, after the last cotangent.
// It belongs to the parameter's unit.
fsdp.unit @a
fsdp.unit @b
fsdp.parameter @w : tensor<4xf32> trainable unit @a
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%x: tensor<4xf32> {fsdp.input = "x"}) {
  %w0 = fsdp.load @w {fsdp.unit = @a} : tensor<4xf32>
  %y = nn.mul %x, %w0 {fsdp.unit = @a} : tensor<4xf32>
  %w1 = fsdp.load @w {fsdp.unit = @b} : tensor<4xf32>
  %z = nn.add %y, %w1 {fsdp.unit = @b} : tensor<4xf32>
  %s = nn.reduce sum %z [0] {fsdp.unit = @b} : tensor<4xf32> -> tensor<1xf32>
  %l = nn.reshape %s {fsdp.unit = @b} : tensor<1xf32> -> tensor<f32>
  // CHECK: %[[G:.*]] = nn.broadcast %{{.*}} {fsdp.backward
  // CHECK-NEXT: %[[W0:.*]] = nn.mul %[[G]], %arg0
  // CHECK-NEXT: %[[SUM:.*]] = nn.add %[[G]], %[[W0]]
  // CHECK-NEXT: fsdp.gradient @w, %[[SUM]] {fsdp.backward, fsdp.unit = @a}
  // CHECK-NEXT: return
  fsdp.report_loss %l {fsdp.unit = @b} : tensor<f32>
  return
}

// -----

// The adjoint of an op on weights alone follows the last user of its result,
// although the op itself is at the top of the function.
fsdp.parameter @w : tensor<4x4xf32> trainable
fsdp.parameter @b : tensor<4xf32> trainable
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
  %w = fsdp.load @w : tensor<4x4xf32>
  %wt = nn.transpose %w [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %b = fsdp.load @b : tensor<4xf32>
  %bb = nn.broadcast %b : tensor<4xf32> -> tensor<4x4xf32>
  %y = nn.mul %x, %bb : tensor<4x4xf32>
  %z = nn.mul %y, %wt : tensor<4x4xf32>
  %s = nn.reduce sum %z [0, 1] : tensor<4x4xf32> -> tensor<1x1xf32>
  %l = nn.reshape %s : tensor<1x1xf32> -> tensor<f32>
  fsdp.report_loss %l : tensor<f32>
  // CHECK: fsdp.report_loss
  // CHECK: %[[DWT:.*]] = nn.transpose %{{.*}} [1, 0] {fsdp.backward}
  // CHECK-NEXT: fsdp.gradient @w, %[[DWT]]
  // CHECK-NEXT: nn.mul
  // CHECK-NEXT: nn.reduce
  // CHECK-NEXT: nn.reshape
  // CHECK-NEXT: fsdp.gradient @b
  return
}

// -----

// A frozen parameter gets no gradient, and nothing is computed for it.
fsdp.parameter @w : tensor<4xf32> trainable
fsdp.parameter @frozen : tensor<4xf32>
// CHECK-LABEL: func.func @microbatch
func.func @microbatch() {
  %w = fsdp.load @w : tensor<4xf32>
  %f = fsdp.load @frozen : tensor<4xf32>
  %e = nn.exp %f : tensor<4xf32>
  %y = nn.mul %w, %e : tensor<4xf32>
  %s = nn.reduce sum %y [0] : tensor<4xf32> -> tensor<1xf32>
  %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
  // CHECK: fsdp.report_loss
  // CHECK-COUNT-1: nn.mul
  // CHECK-NEXT: fsdp.gradient @w
  // CHECK-NEXT: return
  fsdp.report_loss %l : tensor<f32>
  return
}

// -----

// The gradient of floor is zero everywhere, as in PyTorch.
fsdp.parameter @w : tensor<1xf32> trainable
// CHECK-LABEL: func.func @microbatch
func.func @microbatch() {
  %w = fsdp.load @w : tensor<1xf32>
  %f = nn.floor %w : tensor<1xf32>
  %l = nn.reshape %f : tensor<1xf32> -> tensor<f32>
  // CHECK: fsdp.report_loss
  // CHECK-NEXT: %[[ZERO:.*]] = nn.constant {fsdp.backward} dense<0.000000e+00>
  // CHECK-NEXT: fsdp.gradient @w, %[[ZERO]]
  // CHECK-NEXT: return
  fsdp.report_loss %l : tensor<f32>
  return
}

// -----

// A parameter that does not lead to the loss is not trained.
fsdp.parameter @w : tensor<1xf32> trainable
// CHECK: fsdp.parameter @unused : tensor<4xf32>{{$}}
// expected-remark @+1 {{parameter 'unused' does not affect the loss and is not trained}}
fsdp.parameter @unused : tensor<4xf32> trainable
// CHECK-LABEL: func.func @microbatch
func.func @microbatch() {
  %w = fsdp.load @w : tensor<1xf32>
  %u = fsdp.load @unused : tensor<4xf32>
  %e = nn.exp %u : tensor<4xf32>
  %l = nn.reshape %w : tensor<1xf32> -> tensor<f32>
  fsdp.report_loss %l : tensor<f32>
  return
}

// -----

// Gradients of the parts of a split are concatenated along the axis, instead of
// padded and added.
fsdp.parameter @w : tensor<2x6xf32> trainable
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%x: tensor<2x2xf32>) {
  %w = fsdp.load @w : tensor<2x6xf32>
  %y = nn.exp %w : tensor<2x6xf32>
  %a = nn.slice %y [0, 0] by [1, 1] : tensor<2x6xf32> -> tensor<2x2xf32>
  %b = nn.slice %y [0, 2] by [1, 1] : tensor<2x6xf32> -> tensor<2x2xf32>
  %c = nn.slice %y [0, 4] by [1, 1] : tensor<2x6xf32> -> tensor<2x2xf32>
  %ab = nn.mul %a, %b : tensor<2x2xf32>
  %abc = nn.mul %ab, %c : tensor<2x2xf32>
  %s = nn.reduce sum %abc [0, 1] : tensor<2x2xf32> -> tensor<1x1xf32>
  %l = nn.reshape %s : tensor<1x1xf32> -> tensor<f32>
  fsdp.report_loss %l : tensor<f32>
  // CHECK: fsdp.report_loss
  // CHECK-NOT: nn.pad
  // CHECK: %[[DAB:.*]] = nn.mul
  // CHECK-NEXT: %[[DC:.*]] = nn.mul
  // CHECK-NEXT: %[[DA:.*]] = nn.mul %[[DAB]]
  // CHECK-NEXT: %[[DB:.*]] = nn.mul %[[DAB]]
  // CHECK-NEXT: %[[DY:.*]] = nn.concat %[[DA]], %[[DB]], %[[DC]] {axis = 1 : i64, fsdp.backward}
  // CHECK-NEXT: nn.mul %[[DY]]
  return
}

// -----

// A table that is also read as a matrix: its rows are added to the product's
// gradient.
fsdp.parameter @w : tensor<6x4xf32> trainable
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%i: tensor<3xi64> {fsdp.input = "i"}) {
  %w = fsdp.load @w : tensor<6x4xf32>
  %e = nn.embedding %w, %i : tensor<6x4xf32>, tensor<3xi64> -> tensor<3x4xf32>
  %h = fsdp.load @w : tensor<6x4xf32>
  %y = nn.matmul %e, %h {transpose_b} : tensor<3x4xf32>, tensor<6x4xf32> -> tensor<3x6xf32>
  %s = nn.reduce sum %y [0, 1] : tensor<3x6xf32> -> tensor<1x1xf32>
  %l = nn.reshape %s : tensor<1x1xf32> -> tensor<f32>
  fsdp.report_loss %l : tensor<f32>
  // CHECK: %[[DE:.*]] = nn.matmul {{.*}} -> tensor<3x4xf32>
  // CHECK: %[[DH:.*]] = nn.matmul {{.*}} -> tensor<6x4xf32>
  // CHECK: %[[DW:.*]] = nn.embedding_grad %[[DE]], %arg0 accumulate %[[DH]]
  // CHECK-NOT: nn.add
  // CHECK: fsdp.gradient @w, %[[DW]]
  return
}

// -----

// The same where the head alone stays f32: its backward is marked, and so is the
// sum of the table's gradients, to which the rows are added.
fsdp.parameter @w : tensor<6x4xf32> trainable {fsdp.keep_f32}
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%i: tensor<3xi64> {fsdp.input = "i"}) {
  %w = fsdp.load @w {fsdp.keep_f32} : tensor<6x4xf32>
  %e = nn.embedding %w, %i : tensor<6x4xf32>, tensor<3xi64> -> tensor<3x4xf32>
  %h = fsdp.load @w {fsdp.keep_f32} : tensor<6x4xf32>
  %y = nn.matmul %e, %h {transpose_b, fsdp.keep_f32} : tensor<3x4xf32>, tensor<6x4xf32> -> tensor<3x6xf32>
  %s = nn.reduce sum %y [0, 1] : tensor<3x6xf32> -> tensor<1x1xf32>
  %l = nn.reshape %s : tensor<1x1xf32> -> tensor<f32>
  fsdp.report_loss %l : tensor<f32>
  // CHECK: nn.broadcast %{{.*}} {fsdp.backward} :
  // CHECK: nn.matmul {{.*}}fsdp.keep_f32{{.*}} -> tensor<3x4xf32>
  // CHECK: nn.matmul {{.*}}fsdp.keep_f32{{.*}} -> tensor<6x4xf32>
  // CHECK: nn.embedding_grad {{.*}} accumulate {{.*}}fsdp.keep_f32
  return
}

// -----

// No cotangent passes nn.stop_gradient, which is gone afterwards: @w has a
// gradient from the left factor alone.
fsdp.parameter @w : tensor<4xf32> trainable
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%x: tensor<4xf32> {fsdp.input = "x"}) {
  %w = fsdp.load @w : tensor<4xf32>
  %y = nn.mul %x, %w : tensor<4xf32>
  %d = nn.stop_gradient %y : tensor<4xf32>
  // CHECK-NOT: nn.stop_gradient
  // CHECK: %[[Y:.*]] = nn.mul
  // CHECK: %[[Z:.*]] = nn.mul %[[Y]], %[[Y]]
  %z = nn.mul %y, %d : tensor<4xf32>
  %s = nn.reduce sum %z [0] : tensor<4xf32> -> tensor<1xf32>
  %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
  // CHECK: %[[G:.*]] = nn.broadcast
  // CHECK-NEXT: %[[DY:.*]] = nn.mul %[[G]], %[[Y]] {fsdp.backward}
  // CHECK-NEXT: %[[DW:.*]] = nn.mul %[[DY]], %arg0 {fsdp.backward}
  // CHECK-NEXT: fsdp.gradient @w, %[[DW]]
  fsdp.report_loss %l : tensor<f32>
  return
}

// -----

// A weight whose detached value another unit reads is copied in its own, since
// each unit loads the weights that it reads.
fsdp.parameter @v : tensor<4xf32> trainable unit @a
fsdp.unit @a
fsdp.unit @b
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%x: tensor<4xf32> {fsdp.input = "x"}) {
  // CHECK: %[[V:.*]] = fsdp.load @v
  %v = fsdp.load @v {fsdp.unit = @a} : tensor<4xf32>
  // CHECK: %[[C:.*]] = nn.copy %[[V]] {fsdp.unit = @a}
  %d = nn.stop_gradient %v {fsdp.unit = @a} : tensor<4xf32>
  // CHECK: nn.mul %arg0, %[[V]] {fsdp.unit = @a}
  %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<4xf32>
  // CHECK: nn.mul %{{.*}}, %[[C]] {fsdp.unit = @b}
  %z = nn.mul %y, %d {fsdp.unit = @b} : tensor<4xf32>
  %s = nn.reduce sum %z [0] {fsdp.unit = @b} : tensor<4xf32> -> tensor<1xf32>
  %l = nn.reshape %s {fsdp.unit = @b} : tensor<1xf32> -> tensor<f32>
  fsdp.report_loss %l {fsdp.unit = @b} : tensor<f32>
  return
}

// -----

// So is one of which another unit reads a view.
fsdp.parameter @v : tensor<4xf32> trainable unit @a
fsdp.unit @a
fsdp.unit @b
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%x: tensor<1x4xf32> {fsdp.input = "x"}) {
  // CHECK: %[[V:.*]] = fsdp.load @v
  %v = fsdp.load @v {fsdp.unit = @a} : tensor<4xf32>
  // CHECK: %[[C:.*]] = nn.copy %[[V]] {fsdp.unit = @a}
  %d = nn.stop_gradient %v {fsdp.unit = @a} : tensor<4xf32>
  // CHECK: nn.reshape %[[C]] {fsdp.unit = @a}
  %r = nn.reshape %d {fsdp.unit = @a} : tensor<4xf32> -> tensor<1x4xf32>
  %w = nn.reshape %v {fsdp.unit = @a} : tensor<4xf32> -> tensor<1x4xf32>
  %y = nn.mul %x, %w {fsdp.unit = @a} : tensor<1x4xf32>
  %z = nn.mul %y, %r {fsdp.unit = @b} : tensor<1x4xf32>
  %s = nn.reduce sum %z [0, 1] {fsdp.unit = @b} : tensor<1x4xf32> -> tensor<1x1xf32>
  %l = nn.reshape %s {fsdp.unit = @b} : tensor<1x1xf32> -> tensor<f32>
  fsdp.report_loss %l {fsdp.unit = @b} : tensor<f32>
  return
}

// -----

// A parameter that reaches the loss only through nn.stop_gradient has no
// gradient, as in PyTorch, and one that is loaded for a detached use as well
// still gets its own.
fsdp.parameter @w : tensor<4xf32> trainable
// expected-remark @+1 {{parameter 'teacher' does not affect the loss and is not trained}}
fsdp.parameter @teacher : tensor<4xf32> trainable
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%x: tensor<4xf32> {fsdp.input = "x"}) {
  %t = fsdp.load @teacher : tensor<4xf32>
  %w = fsdp.load @w : tensor<4xf32>
  %dt = nn.stop_gradient %t : tensor<4xf32>
  %dw = nn.stop_gradient %w : tensor<4xf32>
  %y = nn.mul %w, %dt : tensor<4xf32>
  %z = nn.mul %y, %dw : tensor<4xf32>
  %s = nn.reduce sum %z [0] : tensor<4xf32> -> tensor<1xf32>
  %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
  // CHECK: fsdp.gradient @w
  // CHECK-NOT: fsdp.gradient @teacher
  fsdp.report_loss %l : tensor<f32>
  return
}

// -----

// The gradient of a weight that many small products share, as the steps of a
// recurrence do, is one product over the rows of all, in the order of steps.
fsdp.unit @a
fsdp.parameter @w : tensor<6x6xf32> trainable unit @a
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%x: tensor<2x6xf32> {fsdp.input = "x"}) {
  %w = fsdp.load @w {fsdp.unit = @a} : tensor<6x6xf32>
  // CHECK: %[[H1:.*]] = nn.matmul %arg0
  %h1 = nn.matmul %x, %w {fsdp.unit = @a} : tensor<2x6xf32>, tensor<6x6xf32> -> tensor<2x6xf32>
  // CHECK: %[[H2:.*]] = nn.matmul %[[H1]]
  %h2 = nn.matmul %h1, %w {fsdp.unit = @a} : tensor<2x6xf32>, tensor<6x6xf32> -> tensor<2x6xf32>
  // CHECK: %[[H3:.*]] = nn.matmul %[[H2]]
  %h3 = nn.matmul %h2, %w {fsdp.unit = @a} : tensor<2x6xf32>, tensor<6x6xf32> -> tensor<2x6xf32>
  %h4 = nn.matmul %h3, %w {fsdp.unit = @a} : tensor<2x6xf32>, tensor<6x6xf32> -> tensor<2x6xf32>
  %s = nn.reduce sum %h4 [0, 1] {fsdp.unit = @a} : tensor<2x6xf32> -> tensor<1x1xf32>
  %l = nn.reshape %s {fsdp.unit = @a} : tensor<1x1xf32> -> tensor<f32>
  fsdp.report_loss %l {fsdp.unit = @a} : tensor<f32>
  // CHECK: %[[G4:.*]] = nn.broadcast
  // CHECK: %[[G3:.*]] = nn.matmul %[[G4]], %{{.*}} {{.*}}transpose_b
  // CHECK: %[[G2:.*]] = nn.matmul %[[G3]], %{{.*}} {{.*}}transpose_b
  // CHECK: %[[G1:.*]] = nn.matmul %[[G2]], %{{.*}} {{.*}}transpose_b
  // CHECK-DAG: %[[H:.*]] = nn.concat %arg0, %[[H1]], %[[H2]], %[[H3]] {{.*}} -> tensor<8x6xf32>
  // CHECK-DAG: %[[G:.*]] = nn.concat %[[G1]], %[[G2]], %[[G3]], %[[G4]] {{.*}} -> tensor<8x6xf32>
  // CHECK: %[[DW:.*]] = nn.matmul %[[H]], %[[G]] {{.*}}transpose_a
  // CHECK-NEXT: fsdp.gradient @w, %[[DW]]
  return
}

// -----

// A gradient of the model's own is a clone of the ops between cotangents and
// gradients, on the cotangents of the results: zeros of the second one, which
// the loss does not need. The pattern in the forward is gone.
fsdp.parameter @w : tensor<4xf32> trainable
// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%x: tensor<4xf32> {fsdp.input = "x"}) {
  %w = fsdp.load @w : tensor<4xf32>
  %r = nn.round %w : tensor<4xf32>
  %e = nn.exp %w : tensor<4xf32>
  %g0 = nn.cotangent 0 of %r : tensor<4xf32>
  %g1 = nn.cotangent 1 of %e : tensor<4xf32>
  %t = nn.mul %g1, %e : tensor<4xf32>
  %u = nn.sub %g0, %t : tensor<4xf32>
  %stop = nn.stop_gradient %u : tensor<4xf32>
  // CHECK-NOT: nn.cotangent
  // CHECK: %[[R:.*]] = nn.round
  // CHECK: %[[E:.*]] = nn.exp
  // CHECK-NOT: nn.sub
  // CHECK: nn.mul %[[R]], %arg0
  %y:2 = nn.custom_gradient values(%r, %e : tensor<4xf32>, tensor<4xf32>) cotangents(%g0, %g1 : tensor<4xf32>, tensor<4xf32>) inputs(%w : tensor<4xf32>) gradients(%stop : tensor<4xf32>) -> tensor<4xf32>, tensor<4xf32>
  %z = nn.mul %y#0, %x : tensor<4xf32>
  %s = nn.reduce sum %z [0] : tensor<4xf32> -> tensor<1xf32>
  %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
  // CHECK: %[[G:.*]] = nn.mul %{{.*}}, %arg0 {fsdp.backward}
  // CHECK: %[[Z:.*]] = nn.constant {{.*}}dense<0.0
  // CHECK: %[[T:.*]] = nn.mul %[[Z]], %[[E]] {fsdp.backward}
  // CHECK: %[[U:.*]] = nn.sub %[[G]], %[[T]] {fsdp.backward}
  // CHECK-NEXT: fsdp.gradient @w, %[[U]]
  fsdp.report_loss %l : tensor<f32>
  return
}
