// RUN: fsdpc-opt %s --recognise-composites | FileCheck %s

// Scales of query and key become one scale. An additive mask of zeroes and
// lowest numbers in a lower triangle becomes causality. The NaN clean-up of
// softmax is removed.
// CHECK-LABEL: func.func @causal
func.func @causal(%q: tensor<1x2x3x4xf32>, %k: tensor<1x2x3x4xf32>, %v: tensor<1x2x3x5xf32>) -> tensor<1x2x3x5xf32> {
  // CHECK-NOT: mask
  // CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}} {causal, scale = 5.000000e-01 : f64}
  %f = nn.constant dense<0.707106769> : tensor<1x2x3x4xf32>
  %g = nn.constant dense<0.707106769> : tensor<1x2x4x3xf32>
  %m = nn.constant dense<[[0.0, -3.4028235e38, -3.4028235e38], [0.0, 0.0, -3.4028235e38], [0.0, 0.0, 0.0]]> : tensor<3x3xf32>
  %mb = nn.broadcast %m : tensor<3x3xf32> -> tensor<1x2x3x3xf32>
  %zero = nn.constant dense<0.0> : tensor<1x2x3x3xf32>
  %qs = nn.mul %q, %f : tensor<1x2x3x4xf32>
  %kf = nn.reshape %k : tensor<1x2x3x4xf32> -> tensor<2x3x4xf32>
  %kt = nn.transpose %kf [0, 2, 1] : tensor<2x3x4xf32> -> tensor<2x4x3xf32>
  %kr = nn.reshape %kt : tensor<2x4x3xf32> -> tensor<1x2x4x3xf32>
  %ks = nn.mul %kr, %g : tensor<1x2x4x3xf32>
  %s = nn.matmul %qs, %ks : tensor<1x2x3x4xf32>, tensor<1x2x4x3xf32> -> tensor<1x2x3x3xf32>
  %a = nn.add %s, %mb : tensor<1x2x3x3xf32>
  %p = nn.softmax %a : tensor<1x2x3x3xf32>
  %n = nn.cmp ne %p, %p : tensor<1x2x3x3xf32> -> tensor<1x2x3x3xi1>
  %c = nn.select %n, %zero, %p : tensor<1x2x3x3xi1>, tensor<1x2x3x3xf32>
  %y = nn.matmul %c, %v : tensor<1x2x3x3xf32>, tensor<1x2x3x5xf32> -> tensor<1x2x3x5xf32>
  return %y : tensor<1x2x3x5xf32>
}

// Keys and values that are repeated for the heads of a group are read once. A
// mask that keeps everything is removed; one that depends on an input stays
// small.
// CHECK-LABEL: func.func @grouped
// CHECK-SAME: %[[Q:.*]]: tensor<2x4x3x4xf32>, %[[K:.*]]: tensor<2x2x3x4xf32>, %[[V:.*]]: tensor<2x2x3x4xf32>, %[[M:.*]]: tensor<2x1x1x3xi1>
func.func @grouped(%q: tensor<2x4x3x4xf32>, %k: tensor<2x2x3x4xf32>, %v: tensor<2x2x3x4xf32>, %m: tensor<2x1x1x3xi1>) -> tensor<2x4x3x4xf32> {
  // CHECK: nn.attention %[[Q]], %[[K]], %[[V]] mask %[[M]] {scale = 1.000000e+00 : f64} : {{.*}}, mask tensor<2x1x1x3xi1>
  %k5 = nn.reshape %k : tensor<2x2x3x4xf32> -> tensor<2x2x1x3x4xf32>
  %kb = nn.broadcast %k5 : tensor<2x2x1x3x4xf32> -> tensor<2x2x2x3x4xf32>
  %kh = nn.reshape %kb : tensor<2x2x2x3x4xf32> -> tensor<2x4x3x4xf32>
  %v5 = nn.reshape %v : tensor<2x2x3x4xf32> -> tensor<2x2x1x3x4xf32>
  %vb = nn.broadcast %v5 : tensor<2x2x1x3x4xf32> -> tensor<2x2x2x3x4xf32>
  %vh = nn.reshape %vb : tensor<2x2x2x3x4xf32> -> tensor<2x4x3x4xf32>
  %all = nn.constant dense<true> : tensor<2x1x3x3xi1>
  %mb = nn.broadcast %m : tensor<2x1x1x3xi1> -> tensor<2x1x3x3xi1>
  %both = nn.and %all, %mb : tensor<2x1x3x3xi1>
  %zero = nn.constant dense<0.0> : tensor<2x1x3x3xf32>
  %low = nn.constant dense<0xFF800000> : tensor<2x1x3x3xf32>
  %w = nn.select %both, %zero, %low : tensor<2x1x3x3xi1>, tensor<2x1x3x3xf32>
  %wb = nn.broadcast %w : tensor<2x1x3x3xf32> -> tensor<2x4x3x3xf32>
  %s = nn.matmul %q, %kh {transpose_b} : tensor<2x4x3x4xf32>, tensor<2x4x3x4xf32> -> tensor<2x4x3x3xf32>
  %a = nn.add %s, %wb : tensor<2x4x3x3xf32>
  %p = nn.softmax %a : tensor<2x4x3x3xf32>
  %y = nn.matmul %p, %vh : tensor<2x4x3x3xf32>, tensor<2x4x3x4xf32> -> tensor<2x4x3x4xf32>
  return %y : tensor<2x4x3x4xf32>
}

fsdp.parameter @bias : tensor<1x2x3x3xf32> trainable

// A learned mask needs a gradient, which attention does not compute.
// CHECK-LABEL: func.func @learned
func.func @learned(%q: tensor<1x2x3x4xf32>, %k: tensor<1x2x3x4xf32>, %v: tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32> {
  // CHECK-NOT: nn.attention
  // CHECK: nn.softmax
  %b = fsdp.load @bias : tensor<1x2x3x3xf32>
  %s = nn.matmul %q, %k {transpose_b} : tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x3x3xf32>
  %a = nn.add %s, %b : tensor<1x2x3x3xf32>
  %p = nn.softmax %a : tensor<1x2x3x3xf32>
  %y = nn.matmul %p, %v : tensor<1x2x3x3xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x3x4xf32>
  return %y : tensor<1x2x3x4xf32>
}

// An additive mask of other numbers stays additive.
// CHECK-LABEL: func.func @additive
func.func @additive(%q: tensor<1x2x3x4xf32>, %k: tensor<1x2x3x4xf32>, %v: tensor<1x2x3x4xf32>, %m: tensor<3x3xf32>) -> tensor<1x2x3x4xf32> {
  // CHECK: %[[M:.*]] = nn.reshape %{{.*}} : tensor<3x3xf32> -> tensor<1x1x3x3xf32>
  // CHECK: nn.attention %{{.*}} mask %[[M]]
  %mb = nn.broadcast %m : tensor<3x3xf32> -> tensor<1x2x3x3xf32>
  %s = nn.matmul %q, %k {transpose_b} : tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x3x3xf32>
  %a = nn.add %s, %mb : tensor<1x2x3x3xf32>
  %p = nn.softmax %a : tensor<1x2x3x3xf32>
  %y = nn.matmul %p, %v : tensor<1x2x3x3xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x3x4xf32>
  return %y : tensor<1x2x3x4xf32>
}

// Beside an additive mask, a boolean one becomes additive: minus infinity hides a key, so a row without keys gives zeroes here too.
// CHECK-LABEL: func.func @both
// CHECK-SAME: %[[KEEP:[a-z0-9]+]]: tensor<1x1x3x3xi1>
func.func @both(%q: tensor<1x2x3x4xf32>, %k: tensor<1x2x3x4xf32>, %v: tensor<1x2x3x4xf32>, %bias: tensor<1x1x3x3xf32>, %keep: tensor<1x1x3x3xi1>) -> tensor<1x2x3x4xf32> {
  // CHECK-DAG: %[[ZERO:.*]] = nn.constant dense<0.000000e+00> : tensor<1x1x3x3xf32>
  // CHECK-DAG: %[[NONE:.*]] = nn.constant dense<0xFF800000> : tensor<1x1x3x3xf32>
  // CHECK: %[[ADDED:.*]] = nn.select %[[KEEP]], %[[ZERO]], %[[NONE]]
  // CHECK: %[[M:.*]] = nn.add %[[ADDED]], %{{.*}} : tensor<1x1x3x3xf32>
  // CHECK: nn.attention %{{.*}} mask %[[M]]
  %low = nn.constant dense<0xFF800000> : tensor<1x2x3x3xf32>
  %kb = nn.broadcast %keep : tensor<1x1x3x3xi1> -> tensor<1x2x3x3xi1>
  %bb = nn.broadcast %bias : tensor<1x1x3x3xf32> -> tensor<1x2x3x3xf32>
  %s = nn.matmul %q, %k {transpose_b} : tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x3x3xf32>
  %a = nn.add %s, %bb : tensor<1x2x3x3xf32>
  %w = nn.select %kb, %a, %low : tensor<1x2x3x3xi1>, tensor<1x2x3x3xf32>
  %p = nn.softmax %w : tensor<1x2x3x3xf32>
  %y = nn.matmul %p, %v : tensor<1x2x3x3xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x3x4xf32>
  return %y : tensor<1x2x3x4xf32>
}
