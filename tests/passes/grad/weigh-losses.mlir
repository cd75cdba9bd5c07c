// RUN: fsdpc-opt %s --weigh-losses --split-input-file --verify-diagnostics | FileCheck %s

// A quotient of sums is a mean over targets: it is multiplied by its factor, and
// a divisor of 0 becomes 1. The weight follows from the input.
// CHECK-LABEL: module
// CHECK: fsdp.loss_weight @loss_weight ["m"]
// CHECK: %[[M:.*]]: tensor<4xf32>
// CHECK: %[[SUM:.*]] = nn.reduce sum %[[M]] [0] : tensor<4xf32> -> tensor<1xf32>
// CHECK: %[[COUNT:.*]] = nn.reshape %[[SUM]] : tensor<1xf32> -> tensor<f32>
// CHECK: fsdp.yield %[[COUNT]] : tensor<f32>
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    // CHECK: %[[FACTOR:.*]] = fsdp.loss_factor @loss_weight : tensor<f32>
    // CHECK: %[[GUARDED:.*]] = nn.select
    // CHECK: %[[MEAN:.*]] = nn.div %{{.*}}, %[[GUARDED]] : tensor<1xf32>
    // CHECK: %[[F:.*]] = nn.reshape %[[FACTOR]] : tensor<f32> -> tensor<1xf32>
    // CHECK: nn.mul %[[MEAN]], %[[F]] : tensor<1xf32>
    %q = nn.div %a, %b : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// A clamped divisor is that of the step as well; nothing is guarded.
// CHECK-LABEL: module
// CHECK: fsdp.loss_weight @loss_weight ["m"] at_least 2.000000e+00
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  // CHECK-LABEL: func.func @microbatch
  // CHECK: fsdp.loss_factor
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %two = nn.constant dense<2.0> : tensor<1xf32>
    %d = nn.maximum %b, %two : tensor<1xf32>
    %q = nn.div %a, %d : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// The bound of a mean's divisor is that of each microbatch: a step has V of them.
// CHECK-LABEL: module
// CHECK: fsdp.loss_weight @loss_weight ["m"] at_least 2.000000e+00 per_microbatch
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  // CHECK-LABEL: func.func @microbatch
  // CHECK: fsdp.loss_factor
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %four = nn.constant dense<4.0> : tensor<1xf32>
    %s = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %a = nn.div %s, %four : tensor<1xf32>
    %c = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %b = nn.div %c, %four : tensor<1xf32>
    %half = nn.constant dense<0.5> : tensor<1xf32>
    %d = nn.maximum %b, %half : tensor<1xf32>
    %q = nn.div %a, %d : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// So is a product with 1 over a sum.
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
    %one = nn.constant dense<1.0> : tensor<1xf32>
    // CHECK: fsdp.loss_factor @loss_weight : tensor<f32>
    // CHECK: %[[GUARDED:.*]] = nn.select
    // CHECK: %[[R:.*]] = nn.div %{{.*}}, %[[GUARDED]]
    // CHECK: %[[MEAN:.*]] = nn.mul %{{.*}}, %[[R]] : tensor<1xf32>
    // CHECK: nn.mul %[[MEAN]], %{{.*}} : tensor<1xf32>
    %r = nn.div %one, %b : tensor<1xf32>
    %q = nn.mul %a, %r : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// A loss that computes its gradients in the forward takes the factor there.
// Its targets count unless they are ignored.
// CHECK-LABEL: module
// CHECK: fsdp.loss_weight @loss_weight ["y"]
// CHECK: nn.cmp eq
module {
  fsdp.parameter @w : tensor<9x4xf32> trainable
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<5x4xf32> {fsdp.input = "x"}, %y: tensor<5xi64> {fsdp.input = "y"}) {
    %w = fsdp.load @w : tensor<9x4xf32>
    // CHECK: %[[F:.*]] = fsdp.loss_factor @loss_weight : tensor<f32>
    // CHECK: %[[LOSS:.*]], %{{.*}}, %{{.*}}, %{{.*}} = nn.linear_cross_entropy mean {{.*}} scale %[[F]]
    // CHECK: %[[PART:.*]] = nn.mul %[[LOSS]], %[[F]] : tensor<f32>
    // CHECK: fsdp.report_loss %[[PART]]
    %loss, %valid, %dx, %dw = nn.linear_cross_entropy mean %x, %w, %y {ignore_index = -100, transpose_weight} : tensor<5x4xf32>, tensor<9x4xf32>, tensor<5xi64> -> tensor<f32>, tensor<f32>
    fsdp.report_loss %loss valid %valid : tensor<f32>, tensor<f32>
    return
  }
}

// -----

// A divisor that is an input, or a mean that the model multiplies by its own
// count, stays as it is.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_weight
// CHECK-NOT: fsdp.loss_factor
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}, %n: tensor<f32> {fsdp.input = "n"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %one = nn.reshape %n : tensor<f32> -> tensor<1xf32>
    %given = nn.div %a, %one : tensor<1xf32>
    %mean = nn.div %a, %b : tensor<1xf32>
    %undone = nn.mul %mean, %b : tensor<1xf32>
    %s = nn.add %given, %undone : tensor<1xf32>
    %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// The power -1 of a count is a divisor, in whichever parts.
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
    %two = nn.constant dense<2.0> : tensor<1xf32>
    %minus = nn.constant dense<-1.0> : tensor<1xf32>
    %r = nn.rsqrt %b : tensor<1xf32>
    // CHECK: %[[FIRST:.*]] = nn.mul %{{.*}}, %{{.*}} : tensor<1xf32>
    // CHECK: %[[HALF:.*]] = nn.div %[[FIRST]]
    // CHECK: %[[MEAN:.*]] = nn.mul %[[HALF]], %{{.*}} : tensor<1xf32>
    // CHECK: nn.mul %[[MEAN]], %{{.*}} : tensor<1xf32>
    %first = nn.mul %a, %r : tensor<1xf32>
    %half = nn.div %first, %two : tensor<1xf32>
    %c = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %s = nn.rsqrt %c : tensor<1xf32>
    %roots = nn.mul %half, %s : tensor<1xf32>
    // CHECK: %[[MEAN:.*]] = nn.mul
    // CHECK: nn.mul %[[MEAN]], %{{.*}} : tensor<1xf32>
    %power = nn.pow %b, %minus : tensor<1xf32>
    %q = nn.mul %a, %power : tensor<1xf32>
    // CHECK: nn.log
    // CHECK: %[[MEAN:.*]] = nn.mul
    // CHECK: nn.mul %[[MEAN]], %{{.*}} : tensor<1xf32>
    %log = nn.log %b : tensor<1xf32>
    %less = nn.neg %log : tensor<1xf32>
    %exp = nn.exp %less : tensor<1xf32>
    %e = nn.mul %exp, %a : tensor<1xf32>
    %t = nn.add %roots, %q : tensor<1xf32>
    %u = nn.add %t, %e : tensor<1xf32>
    %l = nn.reshape %u : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// Other powers are no means.
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
    %r = nn.rsqrt %b : tensor<1xf32>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %q = nn.mul %a, %r : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// Nor is the root of a square, which is the count without its sign.
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
    %s = nn.mul %b, %b : tensor<1xf32>
    %r = nn.sqrt %s : tensor<1xf32>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %q = nn.div %a, %r : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// Weights that follow from counts of a microbatch, as those of classes.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_weight
module {
  fsdp.parameter @w : tensor<4x3xf32> trainable
  func.func @microbatch(%x: tensor<4x3xf32> {fsdp.input = "x"}) {
    %w = fsdp.load @w : tensor<4x3xf32>
    // expected-note@below {{samples are combined here}}
    %b = nn.reduce sum %x [0] : tensor<4x3xf32> -> tensor<1x3xf32>
    %all = nn.broadcast %b : tensor<1x3xf32> -> tensor<4x3xf32>
    %share = nn.div %x, %all : tensor<4x3xf32>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %q = nn.mul %w, %share : tensor<4x3xf32>
    %s = nn.reduce sum %q [0, 1] : tensor<4x3xf32> -> tensor<1x1xf32>
    %l = nn.reshape %s : tensor<1x1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// A mean of a sample's own targets needs no weight, nor does the mean of these.
// So it is with one sample, whose sum has one element.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_weight
module {
  fsdp.parameter @w : tensor<2x3xf32> trainable
  func.func @microbatch(%m: tensor<2x3xf32> {fsdp.input = "m"}, %n: tensor<1x6xf32> {fsdp.input = "n"}) {
    %w = fsdp.load @w : tensor<2x3xf32>
    %p = nn.mul %w, %m : tensor<2x3xf32>
    %a = nn.reduce sum %p [1] : tensor<2x3xf32> -> tensor<2x1xf32>
    %b = nn.reduce sum %m [1] : tensor<2x3xf32> -> tensor<2x1xf32>
    %q = nn.div %a, %b : tensor<2x1xf32>
    %s = nn.reduce sum %q [0, 1] : tensor<2x1xf32> -> tensor<1x1xf32>
    %v = nn.reshape %w : tensor<2x3xf32> -> tensor<1x6xf32>
    %p1 = nn.mul %v, %n : tensor<1x6xf32>
    %a1 = nn.reduce sum %p1 [1] : tensor<1x6xf32> -> tensor<1x1xf32>
    %b1 = nn.reduce sum %n [1] : tensor<1x6xf32> -> tensor<1x1xf32>
    %q1 = nn.div %a1, %b1 : tensor<1x1xf32>
    %t = nn.add %s, %q1 : tensor<1x1xf32>
    %l = nn.reshape %t : tensor<1x1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// So it is with samples that are taken one by one.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_weight
module {
  fsdp.parameter @w : tensor<1x3xf32> trainable
  func.func @microbatch(%m: tensor<2x3xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<1x3xf32>
    %m1 = nn.slice %m [1, 0] by [1, 1] : tensor<2x3xf32> -> tensor<1x3xf32>
    %p = nn.mul %w, %m1 : tensor<1x3xf32>
    %a = nn.reduce sum %p [0, 1] : tensor<1x3xf32> -> tensor<1x1xf32>
    %b = nn.reduce sum %m1 [0, 1] : tensor<1x3xf32> -> tensor<1x1xf32>
    %q = nn.div %a, %b : tensor<1x1xf32>
    %l = nn.reshape %q : tensor<1x1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// Samples stay apart where axes are merged, moved and looked up, and the sum over
// the merged axis counts.
// CHECK-LABEL: module
// CHECK: fsdp.loss_weight @loss_weight ["y"]
module {
  fsdp.parameter @w : tensor<6x1xf32> trainable
  func.func @microbatch(%y: tensor<2x3xi64> {fsdp.input = "y"}) {
    %w = fsdp.load @w : tensor<6x1xf32>
    %table = nn.constant dense<[[1.0], [2.0], [4.0], [8.0]]> : tensor<4x1xf32>
    %t = nn.transpose %y [1, 0] : tensor<2x3xi64> -> tensor<3x2xi64>
    %rows = nn.embedding %table, %t : tensor<4x1xf32>, tensor<3x2xi64> -> tensor<3x2x1xf32>
    %flat = nn.reshape %rows : tensor<3x2x1xf32> -> tensor<6x1xf32>
    %p = nn.mul %w, %flat : tensor<6x1xf32>
    %a = nn.reduce sum %p [0, 1] : tensor<6x1xf32> -> tensor<1x1xf32>
    %b = nn.reduce sum %flat [0] : tensor<6x1xf32> -> tensor<1x1xf32>
    %q = nn.div %a, %b : tensor<1x1xf32>
    %l = nn.reshape %q : tensor<1x1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// A test of whether there are targets is part of the mean that it guards. So is one of
// the mean itself, which is NaN without targets.
// CHECK-LABEL: module
// CHECK: fsdp.loss_weight @loss_weight ["m"]
// CHECK-NOT: fsdp.loss_weight
// CHECK: fsdp.loss_factor
// CHECK: fsdp.loss_factor
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %zero = nn.constant dense<0.0> : tensor<1xf32>
    %one = nn.constant dense<1.0> : tensor<1xf32>
    %any = nn.cmp gt %b, %zero : tensor<1xf32> -> tensor<1xi1>
    %d = nn.maximum %b, %one : tensor<1xf32>
    %q = nn.div %a, %d : tensor<1xf32>
    %guarded = nn.select %any, %q, %zero : tensor<1xi1>, tensor<1xf32>
    %r = nn.div %a, %d : tensor<1xf32>
    %nan = nn.cmp ne %r, %r : tensor<1xf32> -> tensor<1xi1>
    %number = nn.select %nan, %zero, %r : tensor<1xi1>, tensor<1xf32>
    %s = nn.add %guarded, %number : tensor<1xf32>
    %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// So is one of an infinity of one sign, as that of nan_to_num.
// CHECK-LABEL: module
// CHECK: fsdp.loss_factor
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %zero = nn.constant dense<0.0> : tensor<1xf32>
    %infinity = nn.constant dense<0x7F800000> : tensor<1xf32>
    %most = nn.constant dense<3.0e38> : tensor<1xf32>
    %q = nn.div %a, %b : tensor<1xf32>
    %above = nn.cmp gt %q, %zero : tensor<1xf32> -> tensor<1xi1>
    %abs = nn.abs %q : tensor<1xf32>
    %infinite = nn.cmp eq %abs, %infinity : tensor<1xf32> -> tensor<1xi1>
    %both = nn.and %above, %infinite : tensor<1xi1>
    %s = nn.select %both, %most, %q : tensor<1xi1>, tensor<1xf32>
    %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// Divisors may be guarded in the same way. A count that is computed twice is one weight.
// CHECK-LABEL: module
// CHECK: fsdp.loss_weight @loss_weight ["m"]
// CHECK-NOT: fsdp.loss_weight
// CHECK: fsdp.loss_factor
// CHECK: fsdp.loss_factor
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %zero = nn.constant dense<0.0> : tensor<1xf32>
    %one = nn.constant dense<1.0> : tensor<1xf32>
    %none = nn.cmp eq %b, %zero : tensor<1xf32> -> tensor<1xi1>
    %d = nn.select %none, %one, %b : tensor<1xi1>, tensor<1xf32>
    %q = nn.div %a, %d : tensor<1xf32>
    %more = nn.cast %none : tensor<1xi1> -> tensor<1xf32>
    %c = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %e = nn.add %c, %more : tensor<1xf32>
    %r = nn.div %a, %e : tensor<1xf32>
    %s = nn.add %q, %r : tensor<1xf32>
    %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// A test of whether there are many targets may choose otherwise in a microbatch than it
// would for all samples: the mean stays that of its microbatch.
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
    %zero = nn.constant dense<0.0> : tensor<1xf32>
    %two = nn.constant dense<2.0> : tensor<1xf32>
    %any = nn.cmp gt %b, %two : tensor<1xf32> -> tensor<1xi1>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %q = nn.div %a, %b : tensor<1xf32>
    %s = nn.select %any, %q, %zero : tensor<1xi1>, tensor<1xf32>
    %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// A guard belongs to the mean that it guards.
// CHECK-LABEL: module
// CHECK: fsdp.loss_weight @loss_weight ["m"]
// CHECK-NOT: fsdp.loss_weight
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-note@below {{samples are combined here}}
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %zero = nn.constant dense<0.0> : tensor<1xf32>
    %any = nn.cmp gt %b, %zero : tensor<1xf32> -> tensor<1xi1>
    %q = nn.div %a, %b : tensor<1xf32>
    %o = nn.reduce sum %w [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %g = nn.select %any, %o, %zero : tensor<1xi1>, tensor<1xf32>
    %s = nn.add %q, %g : tensor<1xf32>
    %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// A count is any sum over samples: what padding leaves of all places, the end of a
// running sum, or the sum over one sample.
// CHECK-LABEL: module
// CHECK-COUNT-2: fsdp.loss_weight @loss_weight{{(_[0-9]+)?}} ["m"]
// CHECK: fsdp.loss_weight @loss_weight{{(_[0-9]+)?}} ["n"]
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}, %n: tensor<1xf32> {fsdp.input = "n"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %ones = nn.constant dense<1.0> : tensor<4xf32>
    %all = nn.constant dense<4.0> : tensor<1xf32>
    %hidden = nn.sub %ones, %m : tensor<4xf32>
    %padding = nn.reduce sum %hidden [0] : tensor<4xf32> -> tensor<1xf32>
    %rest = nn.sub %all, %padding : tensor<1xf32>
    %q = nn.div %a, %rest : tensor<1xf32>
    %m1 = nn.slice %m [0] by [1] : tensor<4xf32> -> tensor<3xf32>
    %s1 = nn.pad %m1 [1] by [1] : tensor<3xf32> -> tensor<4xf32>
    %sum1 = nn.add %m, %s1 : tensor<4xf32>
    %m2 = nn.slice %sum1 [0] by [1] : tensor<4xf32> -> tensor<2xf32>
    %s2 = nn.pad %m2 [2] by [1] : tensor<2xf32> -> tensor<4xf32>
    %sum2 = nn.add %sum1, %s2 : tensor<4xf32>
    %end = nn.slice %sum2 [3] by [1] : tensor<4xf32> -> tensor<1xf32>
    %r = nn.div %a, %end : tensor<1xf32>
    %one = nn.slice %w [0] by [1] : tensor<4xf32> -> tensor<1xf32>
    %p1 = nn.mul %one, %n : tensor<1xf32>
    %a1 = nn.reduce sum %p1 [0] : tensor<1xf32> -> tensor<1xf32>
    %b1 = nn.reduce sum %n [0] : tensor<1xf32> -> tensor<1xf32>
    %u = nn.div %a1, %b1 : tensor<1xf32>
    %v = nn.add %q, %r : tensor<1xf32>
    %s = nn.add %v, %u : tensor<1xf32>
    %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// A constant minus a sum is no count, unless it is the number of elements.
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
    %ten = nn.constant dense<10.0> : tensor<1xf32>
    %c = nn.sub %ten, %b : tensor<1xf32>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %q = nn.div %a, %c : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// Products of two dimensions keep samples apart.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_weight
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4x3xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %table = nn.constant dense<[[1.0], [2.0], [3.0]]> : tensor<3x1xf32>
    %rows = nn.matmul %m, %table : tensor<4x3xf32>, tensor<3x1xf32> -> tensor<4x1xf32>
    %k = nn.reshape %rows : tensor<4x1xf32> -> tensor<4xf32>
    %p = nn.mul %w, %k : tensor<4xf32>
    %s = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// A factor with a parameter has a gradient, so its divisor is guarded and not its value.
// CHECK-LABEL: module
// CHECK: fsdp.loss_weight @loss_weight ["m"]
// CHECK-NOT: fsdp.loss_weight
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %scale = nn.slice %w [0] by [1] : tensor<4xf32> -> tensor<1xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    // CHECK: %[[DIVISOR:.*]] = nn.select
    // CHECK-NEXT: %[[SHARE:.*]] = nn.div %{{.*}}, %[[DIVISOR]]
    // CHECK: nn.mul %{{.*}}, %[[SHARE]]
    %f = nn.div %scale, %b : tensor<1xf32>
    %s = nn.mul %a, %f : tensor<1xf32>
    %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// A weight that depends on a parameter is unknown before the step.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_factor
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-remark@below {{this mean stays a mean over the targets of its microbatch ('--loss-mean=microbatch'), since its weight depends on more than the model's inputs}}
    %q = nn.div %a, %a : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// The weights are described, and nothing is multiplied.
// CHECK-LABEL: module
// CHECK: fsdp.loss_weight @loss_weight ["m"]
// CHECK-NOT: fsdp.loss_factor
module attributes {fsdp.options = {"loss-mean" = "microbatch"}} {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %q = nn.div %a, %b : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// What a mask hides may come from any sample. Its place is a reduction of inputs
// alone, which adds up no losses.
// CHECK-LABEL: module
// CHECK: fsdp.loss_factor
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}, %i: tensor<4xi64> {fsdp.input = "i"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %zero = nn.constant dense<0.0> : tensor<f32>
    %zeros = nn.broadcast %zero : tensor<f32> -> tensor<4xf32>
    %c = nn.cmp gt %m, %zeros : tensor<4xf32> -> tensor<4xi1>
    %detached = nn.stop_gradient %p : tensor<4xf32>
    %rows = nn.reshape %detached : tensor<4xf32> -> tensor<4x1xf32>
    %first = nn.reduce min %i [0] : tensor<4xi64> -> tensor<1xi64>
    %row = nn.embedding %rows, %first : tensor<4x1xf32>, tensor<1xi64> -> tensor<1x1xf32>
    %one = nn.reshape %row : tensor<1x1xf32> -> tensor<1xf32>
    %filler = nn.broadcast %one : tensor<1xf32> -> tensor<4xf32>
    %filled = nn.select %c, %p, %filler : tensor<4xi1>, tensor<4xf32>
    %kept = nn.select %c, %filled, %zeros : tensor<4xi1>, tensor<4xf32>
    %a = nn.reduce sum %kept [0] : tensor<4xf32> -> tensor<1xf32>
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %q = nn.div %a, %b : tensor<1xf32>
    %l = nn.reshape %q : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// Inputs choose how often the loss has the mean.
// CHECK-LABEL: module
// CHECK-NOT: fsdp.loss_factor
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}, %i: tensor<4x1xi64> {fsdp.input = "i"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %p = nn.mul %w, %m : tensor<4xf32>
    %a = nn.reduce sum %p [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-note@below {{samples are combined here}}
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %q = nn.div %a, %b : tensor<1xf32>
    %zero = nn.constant dense<0.0> : tensor<1xf32>
    %both = nn.concat %q, %zero {axis = 0 : i64} : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
    %rows = nn.broadcast %both : tensor<2xf32> -> tensor<4x2xf32>
    %chosen = nn.take_along_axis %rows, %i : tensor<4x2xf32>, tensor<4x1xi64> -> tensor<4x1xf32>
    %sum = nn.reduce sum %chosen [0, 1] : tensor<4x1xf32> -> tensor<1x1xf32>
    %l = nn.reshape %sum : tensor<1x1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}
