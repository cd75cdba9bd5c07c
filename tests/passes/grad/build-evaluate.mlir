// RUN: fsdpc-opt %s --build-evaluate --split-input-file | FileCheck %s

// Dropout passes its operand on, and its random numbers are gone. The forward
// of training stays as it is.
// CHECK-LABEL: func.func @microbatch
// CHECK: nn.dropout
// CHECK-LABEL: func.func @evaluate
// CHECK-SAME: %[[X:.*]]: tensor<2x8xf32> {fsdp.input = "x"}
// CHECK-NOT: fsdp.random
// CHECK-NOT: nn.dropout
// CHECK: nn.reduce sum %[[X]]
// CHECK: fsdp.report_loss
fsdp.unit @a
func.func @microbatch(%x: tensor<2x8xf32> {fsdp.input = "x"}) {
  %r = fsdp.random {fsdp.unit = @a} : tensor<4xi32>
  %d = nn.dropout %x, %r {op = 0 : i64, ratio = 0.5 : f64, fsdp.unit = @a} : tensor<2x8xf32>, tensor<4xi32>
  %s = nn.reduce sum %d [0, 1] {fsdp.unit = @a} : tensor<2x8xf32> -> tensor<1x1xf32>
  %l = nn.reshape %s {fsdp.unit = @a} : tensor<1x1xf32> -> tensor<f32>
  fsdp.report_loss %l {fsdp.unit = @a} : tensor<f32>
  return
}

// -----

// A batch norm reads its running statistics and updates nothing. The running
// variance is found behind the factor of the unbiased one. What is kept in f32
// stays so.
// CHECK-LABEL: func.func @microbatch
// CHECK: nn.batch_norm
// CHECK: fsdp.update_statistics @mean
// CHECK-LABEL: func.func @evaluate
// CHECK-NOT: nn.batch_norm
// CHECK: %[[V:.*]] = fsdp.load @var {fsdp.keep_f32, fsdp.unit = @a}
// CHECK: %[[E:.*]] = nn.add %[[V]]
// CHECK: %[[R:.*]] = nn.rsqrt %[[E]]
// CHECK: %[[M:.*]] = fsdp.load @mean {fsdp.keep_f32, fsdp.unit = @a}
// CHECK: nn.sub {{.*}}fsdp.keep_f32
// CHECK: nn.mul %{{.*}}, %[[R]]
// CHECK-NOT: fsdp.update_statistics
// CHECK: fsdp.report_loss
fsdp.unit @a
fsdp.buffer @mean : tensor<3xf32> {rule = "zeros"}
fsdp.buffer @var : tensor<3xf32> {rule = "ones"}
func.func @microbatch(%x: tensor<2x3xf32> {fsdp.input = "x"}, %w: tensor<3xf32> {fsdp.input = "w"}, %b: tensor<3xf32> {fsdp.input = "b"}) {
  %y, %mean, %variance = nn.batch_norm %x, %w, %b {epsilon = 1.0e-5 : f64, fsdp.keep_f32, fsdp.unit = @a} : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>
  %two = nn.constant {fsdp.unit = @a} dense<2.0> : tensor<3xf32>
  %unbiased = nn.mul %variance, %two {fsdp.unit = @a} : tensor<3xf32>
  fsdp.update_statistics @mean, %mean {momentum = 0.1 : f64, fsdp.unit = @a} : tensor<3xf32>
  fsdp.update_statistics @var, %unbiased {momentum = 0.1 : f64, fsdp.unit = @a} : tensor<3xf32>
  %s = nn.reduce sum %y [0, 1] {fsdp.unit = @a} : tensor<2x3xf32> -> tensor<1x1xf32>
  %l = nn.reshape %s {fsdp.unit = @a} : tensor<1x1xf32> -> tensor<f32>
  fsdp.report_loss %l {fsdp.unit = @a} : tensor<f32>
  return
}

// -----

// Without running statistics a batch norm keeps those of the batch.
// CHECK-LABEL: func.func @evaluate
// CHECK: nn.batch_norm
func.func @microbatch(%x: tensor<2x3xf32> {fsdp.input = "x"}, %w: tensor<3xf32> {fsdp.input = "w"}, %b: tensor<3xf32> {fsdp.input = "b"}) {
  %y, %mean, %variance = nn.batch_norm %x, %w, %b {epsilon = 1.0e-5 : f64} : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>
  %s = nn.reduce sum %y [0, 1] : tensor<2x3xf32> -> tensor<1x1xf32>
  %l = nn.reshape %s : tensor<1x1xf32> -> tensor<f32>
  fsdp.report_loss %l : tensor<f32>
  return
}

// -----

// A metric is reported in both functions. A prediction is reported in the
// evaluation only, and training does not compute it.
// CHECK-LABEL: func.func @microbatch
// CHECK-NOT: nn.exp
// CHECK: fsdp.report_output "half" %{{.*}} : tensor<f32>
// CHECK-NOT: fsdp.report_output
// CHECK: return
// CHECK-LABEL: func.func @evaluate
// CHECK: %[[E:.*]] = nn.exp
// CHECK: fsdp.report_output "half" %{{.*}} : tensor<f32>
// CHECK: fsdp.report_output "exp" %[[E]] : tensor<2x3xf32>
func.func @microbatch(%x: tensor<2x3xf32> {fsdp.input = "x"}) {
  %e = nn.exp %x : tensor<2x3xf32>
  %s = nn.reduce sum %x [0, 1] : tensor<2x3xf32> -> tensor<1x1xf32>
  %l = nn.reshape %s : tensor<1x1xf32> -> tensor<f32>
  %c = nn.constant dense<0.5> : tensor<f32>
  %m = nn.mul %l, %c : tensor<f32>
  fsdp.report_output "half" %m : tensor<f32>
  fsdp.report_output "exp" %e : tensor<2x3xf32>
  fsdp.report_loss %l : tensor<f32>
  return
}

// -----

// The divisor of a sum of losses is no weight of the microbatch.
// CHECK-LABEL: func.func @microbatch
// CHECK: fsdp.report_loss %{{.*}} valid
// CHECK-LABEL: func.func @evaluate
// CHECK: fsdp.report_loss %{{[^ ]*}} : tensor<f32>
func.func @microbatch(%x: tensor<2x3xf32> {fsdp.input = "x"}, %t: tensor<2xi64> {fsdp.input = "t"}) {
  %loss, %lse, %valid = nn.cross_entropy sum %x, %t {ignore_index = -100 : i64} : tensor<2x3xf32>, tensor<2xi64> -> tensor<f32>, tensor<2xf32>, tensor<f32>
  fsdp.report_loss %loss valid %valid : tensor<f32>, tensor<f32>
  return
}

// -----

// An evaluation has no gradients to stop.
// CHECK-LABEL: func.func @evaluate
// CHECK-NOT: nn.stop_gradient
// CHECK: nn.mul %arg0, %arg0
func.func @microbatch(%x: tensor<2xf32> {fsdp.input = "x"}) {
  %d = nn.stop_gradient %x : tensor<2xf32>
  %y = nn.mul %d, %x : tensor<2xf32>
  %s = nn.reduce sum %y [0] : tensor<2xf32> -> tensor<1xf32>
  %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
  fsdp.report_loss %l : tensor<f32>
  return
}

// -----

// A weight that a dropout passes on to another unit is copied, since each unit
// loads the weights that it reads.
// CHECK-LABEL: func.func @evaluate
// CHECK-NOT: nn.dropout
// CHECK: %[[W:.*]] = fsdp.load @w {fsdp.unit = @a}
// CHECK: %[[C:.*]] = nn.copy %[[W]] {fsdp.unit = @a}
// CHECK: nn.mul %{{.*}}, %[[C]] {fsdp.unit = @b}
fsdp.parameter @w : tensor<2xf32> trainable unit @a
fsdp.unit @a
fsdp.unit @b
func.func @microbatch(%x: tensor<2xf32> {fsdp.input = "x"}) {
  %r = fsdp.random {fsdp.unit = @a} : tensor<4xi32>
  %w = fsdp.load @w {fsdp.unit = @a} : tensor<2xf32>
  %d = nn.dropout %w, %r {op = 0 : i64, ratio = 0.5 : f64, fsdp.unit = @a} : tensor<2xf32>, tensor<4xi32>
  %y = nn.mul %x, %d {fsdp.unit = @b} : tensor<2xf32>
  %s = nn.reduce sum %y [0] {fsdp.unit = @b} : tensor<2xf32> -> tensor<1xf32>
  %l = nn.reshape %s {fsdp.unit = @b} : tensor<1xf32> -> tensor<f32>
  fsdp.report_loss %l {fsdp.unit = @b} : tensor<f32>
  return
}

// -----

// A mean over targets keeps its factor, which the runtime computes over the
// whole evaluation.
// CHECK-LABEL: func.func @evaluate
// CHECK: %[[F:.*]] = fsdp.loss_factor @loss_weight
// CHECK: %[[L:.*]] = nn.mul %{{.*}}, %[[F]]
// CHECK: fsdp.report_loss %[[L]]
fsdp.unit @a
fsdp.loss_weight @loss_weight ["m"] {
^bb0(%m: tensor<f32>):
  fsdp.yield %m : tensor<f32>
}
func.func @microbatch(%x: tensor<f32> {fsdp.input = "x"}, %m: tensor<f32> {fsdp.input = "m"}) {
  %q = nn.div %x, %m {fsdp.unit = @a} : tensor<f32>
  %f = fsdp.loss_factor @loss_weight {fsdp.unit = @a} : tensor<f32>
  %l = nn.mul %q, %f {fsdp.unit = @a} : tensor<f32>
  fsdp.report_loss %l {fsdp.unit = @a} : tensor<f32>
  return
}
