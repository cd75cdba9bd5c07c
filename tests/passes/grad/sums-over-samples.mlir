// RUN: fsdpc-opt %s --weigh-losses --split-input-file --verify-diagnostics | FileCheck %s

// Terms may be stacked before they are added.
// CHECK-LABEL: module
// CHECK: fsdp.loss_weight @loss_weight ["m"]
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %o = nn.reduce sum %w [0] : tensor<4xf32> -> tensor<1xf32>
    // CHECK: %[[PART:.*]] = nn.mul %{{.*}}, %{{.*}} : tensor<1xf32>
    // CHECK: nn.concat %[[PART]], %{{.*}}
    %q = nn.div %a, %b : tensor<1xf32>
    %both = nn.concat %q, %o {axis = 0 : i64} : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
    %s = nn.reduce sum %both [0] : tensor<2xf32> -> tensor<1xf32>
    %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// Means of a microbatch may stand for sums: over all of its elements, not over those that
// a mask counts. What is added to the divisor grows with the microbatches, as the rest of it.
// CHECK-LABEL: module
// CHECK: fsdp.loss_weight @loss_weight ["m"]
// CHECK: %[[SUM:.*]] = nn.reduce sum
// CHECK: %[[SHARE:.*]] = nn.div %[[SUM]]
// CHECK: nn.add %[[SHARE]]
// CHECK: fsdp.loss_factor
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %four = nn.constant dense<4.0> : tensor<1xf32>
    %one = nn.constant dense<1.0> : tensor<1xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %n = nn.div %a, %four : tensor<1xf32>
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %share = nn.div %b, %four : tensor<1xf32>
    %d = nn.add %share, %one : tensor<1xf32>
    %q = nn.div %n, %d : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// A product of two vectors sums over samples.
// CHECK-LABEL: module
// CHECK: fsdp.loss_factor
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %row = nn.reshape %p : tensor<4xf32> -> tensor<1x4xf32>
    %column = nn.reshape %m : tensor<4xf32> -> tensor<4x1xf32>
    %a = nn.matmul %row, %column : tensor<1x4xf32>, tensor<4x1xf32> -> tensor<1x1xf32>
    %b = nn.reduce sum %column [0, 1] : tensor<4x1xf32> -> tensor<1x1xf32>
    %q = nn.div %a, %b : tensor<1x1xf32>
    %l = nn.reshape %q : tensor<1x1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// A mean whose square counts stays that of its microbatch.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_weight
// CHECK-NOT: fsdp.loss_factor
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-note@below {{samples are combined here}}
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %mean = nn.div %a, %b : tensor<1xf32>
    %square = nn.mul %mean, %mean : tensor<1xf32>
    %t = nn.add %mean, %square : tensor<1xf32>
    %l = nn.reshape %t : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// The square of a sum is no sum over samples, so its quotient is no mean.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_weight
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-note@below {{samples are combined here}}
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %s = nn.mul %a, %a : tensor<1xf32>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %q = nn.div %s, %b : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// Nor is the product of a sum and a mean over samples.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_weight
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-note@below {{samples are combined here}}
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %four = nn.constant dense<4.0> : tensor<1xf32>
    %all = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %mean = nn.div %all, %four : tensor<1xf32>
    %s = nn.mul %a, %mean : tensor<1xf32>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %q = nn.div %s, %b : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// Losses of other terms count as 0 on the way from a mean to the loss, but a product with one
// is no sum over samples.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_weight
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-note@below {{samples are combined here}}
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %q = nn.div %a, %b : tensor<1xf32>
    %all = nn.add %q, %a : tensor<1xf32>
    %t = nn.mul %all, %a : tensor<1xf32>
    %l = nn.reshape %t : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// Nor the largest loss, nor the exponential of a sum.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_weight
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-note@below {{samples are combined here}}
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %max = nn.reduce max %p [0] : tensor<4xf32> -> tensor<1xf32>
    %exp = nn.exp %a : tensor<1xf32>
    %s = nn.add %max, %exp : tensor<1xf32>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %q = nn.div %s, %b : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// Losses less their mean are not losses of one sample each.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_weight
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %all = nn.broadcast %a : tensor<1xf32> -> tensor<4xf32>
    %c = nn.sub %p, %all : tensor<4xf32>
    %s = nn.reduce sum %c [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-note@below {{samples are combined here}}
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %q = nn.div %s, %b : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// Sums over the samples, one per column, that are repeated beside a factor of each sample.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_weight
module {
  fsdp.parameter @w : tensor<4x3xf32> trainable
  func.func @microbatch(%m: tensor<4x3xf32> {fsdp.input = "m"}, %x: tensor<4x3xf32> {fsdp.input = "x"}) {
    %w = fsdp.load @w : tensor<4x3xf32>
    %p = nn.mul %w, %m : tensor<4x3xf32>
    %a = nn.reduce sum %p [0] : tensor<4x3xf32> -> tensor<1x3xf32>
    // expected-note@below {{samples are combined here}}
    %b = nn.reduce sum %m [0, 1] : tensor<4x3xf32> -> tensor<1x1xf32>
    %each = nn.broadcast %b : tensor<1x1xf32> -> tensor<1x3xf32>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %q = nn.div %a, %each : tensor<1x3xf32>
    %all = nn.broadcast %q : tensor<1x3xf32> -> tensor<4x3xf32>
    %f = nn.mul %all, %x : tensor<4x3xf32>
    %s = nn.reduce sum %f [0, 1] : tensor<4x3xf32> -> tensor<1x1xf32>
    %l = nn.reshape %s : tensor<1x1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// The logarithm of an entropy's mean is no mean over the step's targets.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_weight
module {
  fsdp.parameter @w : tensor<5x9xf32> trainable
  func.func @microbatch(%y: tensor<5xi64> {fsdp.input = "y"}) {
    %w = fsdp.load @w : tensor<5x9xf32>
    // expected-remark@below {{this mean stays a mean over the targets of its microbatch ('--loss-mean=microbatch'), since its weight is not that of a term in which the loss is linear}}
    %loss, %lse, %valid = nn.cross_entropy mean %w, %y {ignore_index = -100} : tensor<5x9xf32>, tensor<5xi64> -> tensor<f32>, tensor<5xf32>, tensor<f32>
    %l = nn.log %loss : tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// The mean of all elements over the sum of a mask: for all samples it would be smaller by
// the number of microbatches.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_weight
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %four = nn.constant dense<4.0> : tensor<1xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %n = nn.div %a, %four : tensor<1xf32>
    // expected-note@below {{samples are combined here}}
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %q = nn.div %n, %b : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// Behind an op that moves samples to places which are not known, each row of a product with
// a weight counts as of one sample, as elsewhere in a model.
// CHECK-LABEL: module
// CHECK: fsdp.loss_weight @loss_weight ["m"]
module {
  fsdp.parameter @w : tensor<8x1xf32> trainable
  fsdp.parameter @b : tensor<1xf32> trainable
  // CHECK: fsdp.loss_factor
  func.func @microbatch(%x: tensor<4x1x2x4xf32> {fsdp.input = "x"}, %m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<8x1xf32>
    %b = fsdp.load @b : tensor<1xf32>
    %v = nn.reshape %w : tensor<8x1xf32> -> tensor<1x1x2x4xf32>
    %turned = nn.rotary %x, %v, %v : tensor<4x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>
    %flat = nn.reshape %turned : tensor<4x1x2x4xf32> -> tensor<4x8xf32>
    %y = nn.matmul %flat, %w : tensor<4x8xf32>, tensor<8x1xf32> -> tensor<4x1xf32>
    %bias = nn.broadcast %b : tensor<1xf32> -> tensor<4x1xf32>
    %z = nn.add %y, %bias : tensor<4x1xf32>
    %r = nn.mul %z, %z : tensor<4x1xf32>
    %losses = nn.reshape %r : tensor<4x1xf32> -> tensor<4xf32>
    %p = nn.mul %losses, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %n = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %q = nn.div %a, %n : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// Dropout keeps samples at their places.
// CHECK-LABEL: module
// CHECK: fsdp.loss_weight @loss_weight ["m"]
module {
  fsdp.parameter @w : tensor<2x1xf32> trainable
  fsdp.parameter @b : tensor<1xf32> trainable
  // CHECK: fsdp.loss_factor
  func.func @microbatch(%x: tensor<4x2xf32> {fsdp.input = "x"}, %m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<2x1xf32>
    %b = fsdp.load @b : tensor<1xf32>
    %random = fsdp.random : tensor<4xi32>
    %dropped = nn.dropout %x, %random {op = 0 : i64, ratio = 0.5 : f64} : tensor<4x2xf32>, tensor<4xi32>
    %y = nn.matmul %dropped, %w : tensor<4x2xf32>, tensor<2x1xf32> -> tensor<4x1xf32>
    %bias = nn.broadcast %b : tensor<1xf32> -> tensor<4x1xf32>
    %z = nn.add %y, %bias : tensor<4x1xf32>
    %r = nn.mul %z, %z : tensor<4x1xf32>
    %losses = nn.reshape %r : tensor<4x1xf32> -> tensor<4xf32>
    %p = nn.mul %losses, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %n = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %q = nn.div %a, %n : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// The row that stands for those which a mask omits counts nothing, also among values of inputs.
// CHECK-LABEL: module
// CHECK: fsdp.loss_weight @loss_weight ["m"]
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  // CHECK: fsdp.loss_factor
  func.func @microbatch(%x: tensor<4xf32> {fsdp.input = "x"}, %m: tensor<4xi1> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %float = nn.cast %m : tensor<4xi1> -> tensor<4xf32>
    %places = nn.constant dense<[0, 1, 2, 3]> : tensor<4xi64>
    %none = nn.constant dense<4> : tensor<4xi64>
    %selected = nn.select %m, %places, %none : tensor<4xi1>, tensor<4xi64>
    %first = nn.reduce min %selected [0] : tensor<4xi64> -> tensor<1xi64>
    %fixed = nn.stop_gradient %x : tensor<4xf32>
    %table = nn.reshape %fixed : tensor<4xf32> -> tensor<4x1xf32>
    %row = nn.embedding %table, %first : tensor<4x1xf32>, tensor<1xi64> -> tensor<1x1xf32>
    %flat = nn.reshape %row : tensor<1x1xf32> -> tensor<1xf32>
    %stand = nn.broadcast %flat : tensor<1xf32> -> tensor<4xf32>
    %rows = nn.select %m, %x, %stand : tensor<4xi1>, tensor<4xf32>
    %difference = nn.sub %w, %rows : tensor<4xf32>
    %losses = nn.abs %difference : tensor<4xf32>
    %p = nn.mul %losses, %float : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %n = nn.reduce sum %float [0] : tensor<4xf32> -> tensor<1xf32>
    %q = nn.div %a, %n : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}
