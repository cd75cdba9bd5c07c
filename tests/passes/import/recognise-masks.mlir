// RUN: fsdpc-opt %s --recognise-composites | FileCheck %s

// A comparison of row and column numbers is a causal mask at any length: no
// element of it is computed.
// CHECK-LABEL: func.func @positions
func.func @positions(%q: tensor<1x2x65536x4xf32>) -> tensor<1x2x65536x4xf32> {
  // CHECK-NOT: mask
  // CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}} {causal, scale = 1.000000e+00 : f64}
  %i = nn.iota {axis = 0 : i64} : tensor<65536xi64>
  %ri = nn.reshape %i : tensor<65536xi64> -> tensor<65536x1xi64>
  %rb = nn.broadcast %ri : tensor<65536x1xi64> -> tensor<65536x65536xi64>
  %cb = nn.broadcast %i : tensor<65536xi64> -> tensor<65536x65536xi64>
  %keep = nn.cmp le %cb, %rb : tensor<65536x65536xi64> -> tensor<65536x65536xi1>
  %zero = nn.constant dense<0.0> : tensor<65536x65536xf32>
  %low = nn.constant dense<0xFF800000> : tensor<65536x65536xf32>
  %m = nn.select %keep, %zero, %low : tensor<65536x65536xi1>, tensor<65536x65536xf32>
  %mb = nn.broadcast %m : tensor<65536x65536xf32> -> tensor<1x2x65536x65536xf32>
  %s = nn.matmul %q, %q {transpose_b} : tensor<1x2x65536x4xf32>, tensor<1x2x65536x4xf32> -> tensor<1x2x65536x65536xf32>
  %a = nn.add %s, %mb : tensor<1x2x65536x65536xf32>
  %p = nn.softmax %a : tensor<1x2x65536x65536xf32>
  %y = nn.matmul %p, %q : tensor<1x2x65536x65536xf32>, tensor<1x2x65536x4xf32> -> tensor<1x2x65536x4xf32>
  return %y : tensor<1x2x65536x4xf32>
}

// torch writes where(tril(ones) == 0, -inf, 0).
// CHECK-LABEL: func.func @tril
func.func @tril(%q: tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32> {
  // CHECK-NOT: mask
  // CHECK: nn.attention %{{.*}} {causal, scale = 1.000000e+00 : f64}
  %r = nn.iota {axis = 0 : i64} : tensor<3x3xi64>
  %c = nn.iota {axis = 1 : i64} : tensor<3x3xi64>
  %below = nn.cmp le %c, %r : tensor<3x3xi64> -> tensor<3x3xi1>
  %one = nn.constant dense<1.0> : tensor<3x3xf32>
  %zero = nn.constant dense<0.0> : tensor<3x3xf32>
  %low = nn.constant dense<0xFF800000> : tensor<3x3xf32>
  %ones = nn.select %below, %one, %zero : tensor<3x3xi1>, tensor<3x3xf32>
  %hide = nn.cmp eq %ones, %zero : tensor<3x3xf32> -> tensor<3x3xi1>
  %m = nn.select %hide, %low, %zero : tensor<3x3xi1>, tensor<3x3xf32>
  %mb = nn.broadcast %m : tensor<3x3xf32> -> tensor<1x2x3x3xf32>
  %s = nn.matmul %q, %q {transpose_b} : tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x3x3xf32>
  %a = nn.add %s, %mb : tensor<1x2x3x3xf32>
  %p = nn.softmax %a : tensor<1x2x3x3xf32>
  %y = nn.matmul %p, %q : tensor<1x2x3x3xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x3x4xf32>
  return %y : tensor<1x2x3x4xf32>
}

// Two queries of a cache of five keys: query t sees keys up to t + 3. The rows
// are a slice of longer positions, written as floats, and a window that is
// longer than the sequence keeps every key.
// CHECK-LABEL: func.func @cached
func.func @cached(%q: tensor<1x2x2x4xf32>, %k: tensor<1x2x5x4xf32>) -> tensor<1x2x2x4xf32> {
  // CHECK-NOT: mask
  // CHECK: nn.attention %{{.*}} {causal, scale = 1.000000e+00 : f64}
  %all = nn.constant dense<[[0.0], [1.0], [2.0], [3.0], [4.0]]> : tensor<5x1xf32>
  %last = nn.slice %all [3, 0] by [1, 1] : tensor<5x1xf32> -> tensor<2x1xf32>
  %r = nn.broadcast %last : tensor<2x1xf32> -> tensor<2x5xf32>
  %c64 = nn.iota {axis = 1 : i64} : tensor<2x5xi64>
  %c = nn.cast %c64 : tensor<2x5xi64> -> tensor<2x5xf32>
  %zero = nn.constant dense<0.0> : tensor<2x5xf32>
  %d = nn.sub %r, %c : tensor<2x5xf32>
  %past = nn.cmp ge %d, %zero : tensor<2x5xf32> -> tensor<2x5xi1>
  %eight = nn.constant dense<8.0> : tensor<2x5xf32>
  %window = nn.cmp lt %d, %eight : tensor<2x5xf32> -> tensor<2x5xi1>
  %keep = nn.and %past, %window : tensor<2x5xi1>
  %low = nn.constant dense<0xFF800000> : tensor<2x5xf32>
  %m = nn.select %keep, %zero, %low : tensor<2x5xi1>, tensor<2x5xf32>
  %mb = nn.broadcast %m : tensor<2x5xf32> -> tensor<1x2x2x5xf32>
  %s = nn.matmul %q, %k {transpose_b} : tensor<1x2x2x4xf32>, tensor<1x2x5x4xf32> -> tensor<1x2x2x5xf32>
  %a = nn.add %s, %mb : tensor<1x2x2x5xf32>
  %p = nn.softmax %a : tensor<1x2x2x5xf32>
  %y = nn.matmul %p, %k : tensor<1x2x2x5xf32>, tensor<1x2x5x4xf32> -> tensor<1x2x2x4xf32>
  return %y : tensor<1x2x2x4xf32>
}

// Another diagonal is not causal: its comparison stays the mask.
// CHECK-LABEL: func.func @diagonal
func.func @diagonal(%q: tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32> {
  // CHECK: %[[KEEP:.*]] = nn.cmp lt
  // CHECK: %[[M:.*]] = nn.reshape %[[KEEP]]
  // CHECK: nn.attention %{{.*}} mask %[[M]] {scale = 1.000000e+00 : f64}
  %r = nn.iota {axis = 0 : i64} : tensor<3x3xi64>
  %c = nn.iota {axis = 1 : i64} : tensor<3x3xi64>
  %keep = nn.cmp lt %c, %r : tensor<3x3xi64> -> tensor<3x3xi1>
  %zero = nn.constant dense<0.0> : tensor<3x3xf32>
  %low = nn.constant dense<0xFF800000> : tensor<3x3xf32>
  %m = nn.select %keep, %zero, %low : tensor<3x3xi1>, tensor<3x3xf32>
  %mb = nn.broadcast %m : tensor<3x3xf32> -> tensor<1x2x3x3xf32>
  %s = nn.matmul %q, %q {transpose_b} : tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x3x3xf32>
  %a = nn.add %s, %mb : tensor<1x2x3x3xf32>
  %p = nn.softmax %a : tensor<1x2x3x3xf32>
  %y = nn.matmul %p, %q : tensor<1x2x3x3xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x3x4xf32>
  return %y : tensor<1x2x3x4xf32>
}

// Padding may hide all keys of a query. Hidden by the lowest number, they all
// have the same weight then, so the mask stays as it is.
// CHECK-LABEL: func.func @padded
func.func @padded(%q: tensor<2x2x3x4xf32>, %keys: tensor<2x1x1x3xi1>) -> tensor<2x2x3x4xf32> {
  // CHECK: %[[M:.*]] = nn.select %{{.*}} : tensor<2x1x3x3xi1>, tensor<2x1x3x3xf32>
  // CHECK: nn.attention %{{.*}} mask %[[M]] {scale = 1.000000e+00 : f64}
  %r = nn.iota {axis = 2 : i64} : tensor<1x1x3x3xi64>
  %c = nn.iota {axis = 3 : i64} : tensor<1x1x3x3xi64>
  %past = nn.cmp le %c, %r : tensor<1x1x3x3xi64> -> tensor<1x1x3x3xi1>
  %pb = nn.broadcast %past : tensor<1x1x3x3xi1> -> tensor<2x1x3x3xi1>
  %kb = nn.broadcast %keys : tensor<2x1x1x3xi1> -> tensor<2x1x3x3xi1>
  %keep = nn.and %pb, %kb : tensor<2x1x3x3xi1>
  %zero = nn.constant dense<0.0> : tensor<2x1x3x3xf32>
  %low = nn.constant dense<-3.4028235e38> : tensor<2x1x3x3xf32>
  %m = nn.select %keep, %zero, %low : tensor<2x1x3x3xi1>, tensor<2x1x3x3xf32>
  %mb = nn.broadcast %m : tensor<2x1x3x3xf32> -> tensor<2x2x3x3xf32>
  %s = nn.matmul %q, %q {transpose_b} : tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32> -> tensor<2x2x3x3xf32>
  %a = nn.add %s, %mb : tensor<2x2x3x3xf32>
  %p = nn.softmax %a : tensor<2x2x3x3xf32>
  %y = nn.matmul %p, %q : tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32> -> tensor<2x2x3x4xf32>
  return %y : tensor<2x2x3x4xf32>
}

// Hidden by minus infinity, such a row has no weights, as under a boolean mask.
// CHECK-LABEL: func.func @padded_by_infinity
// CHECK-SAME: %[[KEYS:[a-z0-9]+]]: tensor<2x1x1x3xi1>
func.func @padded_by_infinity(%q: tensor<2x2x3x4xf32>, %keys: tensor<2x1x1x3xi1>) -> tensor<2x2x3x4xf32> {
  // CHECK: nn.attention %{{.*}} mask %[[KEYS]] {causal, scale = 1.000000e+00 : f64}
  %r = nn.iota {axis = 2 : i64} : tensor<1x1x3x3xi64>
  %c = nn.iota {axis = 3 : i64} : tensor<1x1x3x3xi64>
  %past = nn.cmp le %c, %r : tensor<1x1x3x3xi64> -> tensor<1x1x3x3xi1>
  %pb = nn.broadcast %past : tensor<1x1x3x3xi1> -> tensor<2x1x3x3xi1>
  %kb = nn.broadcast %keys : tensor<2x1x1x3xi1> -> tensor<2x1x3x3xi1>
  %keep = nn.and %pb, %kb : tensor<2x1x3x3xi1>
  %zero = nn.constant dense<0.0> : tensor<2x1x3x3xf32>
  %low = nn.constant dense<0xFF800000> : tensor<2x1x3x3xf32>
  %m = nn.select %keep, %zero, %low : tensor<2x1x3x3xi1>, tensor<2x1x3x3xf32>
  %mb = nn.broadcast %m : tensor<2x1x3x3xf32> -> tensor<2x2x3x3xf32>
  %s = nn.matmul %q, %q {transpose_b} : tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32> -> tensor<2x2x3x3xf32>
  %a = nn.add %s, %mb : tensor<2x2x3x3xf32>
  %p = nn.softmax %a : tensor<2x2x3x3xf32>
  %y = nn.matmul %p, %q : tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32> -> tensor<2x2x3x4xf32>
  return %y : tensor<2x2x3x4xf32>
}

// Every query keeps its own key, so the lowest number hides like a boolean.
// CHECK-LABEL: func.func @window
func.func @window(%q: tensor<2x2x3x4xf32>, %keys: tensor<2x1x1x3xi1>) -> tensor<2x2x3x4xf32> {
  // CHECK: %[[RECENT:.*]] = nn.cmp gt
  // CHECK: nn.attention %{{.*}} mask %[[RECENT]] {causal, scale = 1.000000e+00 : f64}
  %r = nn.iota {axis = 2 : i64} : tensor<1x1x3x3xi64>
  %c = nn.iota {axis = 3 : i64} : tensor<1x1x3x3xi64>
  %past = nn.cmp le %c, %r : tensor<1x1x3x3xi64> -> tensor<1x1x3x3xi1>
  %two = nn.constant dense<2> : tensor<1x1x3x3xi64>
  %first = nn.sub %r, %two : tensor<1x1x3x3xi64>
  %recent = nn.cmp gt %c, %first : tensor<1x1x3x3xi64> -> tensor<1x1x3x3xi1>
  %near = nn.and %past, %recent : tensor<1x1x3x3xi1>
  %keep = nn.broadcast %near : tensor<1x1x3x3xi1> -> tensor<2x1x3x3xi1>
  %zero = nn.constant dense<0.0> : tensor<2x1x3x3xf32>
  %low = nn.constant dense<-3.4028235e38> : tensor<2x1x3x3xf32>
  %m = nn.select %keep, %zero, %low : tensor<2x1x3x3xi1>, tensor<2x1x3x3xf32>
  %mb = nn.broadcast %m : tensor<2x1x3x3xf32> -> tensor<2x2x3x3xf32>
  %s = nn.matmul %q, %q {transpose_b} : tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32> -> tensor<2x2x3x3xf32>
  %a = nn.add %s, %mb : tensor<2x2x3x3xf32>
  %p = nn.softmax %a : tensor<2x2x3x3xf32>
  %y = nn.matmul %p, %q : tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32> -> tensor<2x2x3x4xf32>
  return %y : tensor<2x2x3x4xf32>
}

// A score that is replaced gets no gradient, which attention does not know.
// CHECK-LABEL: func.func @filled
func.func @filled(%q: tensor<2x2x3x4xf32>, %keys: tensor<2x1x1x3xi1>) -> tensor<2x2x3x4xf32> {
  // CHECK-NOT: nn.attention
  // CHECK: nn.softmax
  %s = nn.matmul %q, %q {transpose_b} : tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32> -> tensor<2x2x3x3xf32>
  %keep = nn.broadcast %keys : tensor<2x1x1x3xi1> -> tensor<2x2x3x3xi1>
  %low = nn.constant dense<-3.4028235e38> : tensor<2x2x3x3xf32>
  %a = nn.select %keep, %s, %low : tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>
  %p = nn.softmax %a : tensor<2x2x3x3xf32>
  %y = nn.matmul %p, %q : tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32> -> tensor<2x2x3x4xf32>
  return %y : tensor<2x2x3x4xf32>
}
