// RUN: fsdpc-opt %s | fsdpc-opt | FileCheck %s
// RUN: fsdpc-opt %s --mlir-print-op-generic | fsdpc-opt | FileCheck %s

// CHECK-LABEL: func.func @softmax
func.func @softmax(%x: tensor<2x3xf32>) {
  // CHECK: nn.softmax %{{.*}} : tensor<2x3xf32>
  %0 = nn.softmax %x : tensor<2x3xf32>
  // CHECK: nn.softmax_grad %{{.*}}, %{{.*}} : tensor<2x3xf32>
  %1 = nn.softmax_grad %0, %x : tensor<2x3xf32>
  // CHECK: nn.log_softmax %{{.*}} : tensor<2x3xf32>
  %2 = nn.log_softmax %x : tensor<2x3xf32>
  return
}

// Statistics of bf16 norms are f32; weight and bias are optional.
// CHECK-LABEL: func.func @norms
func.func @norms(%x: tensor<2x8xbf16>, %w: tensor<8xbf16>) {
  // CHECK: nn.layer_norm %{{.*}} weight %{{.*}} bias %{{.*}} {epsilon = 1.000000e-05 : f64} : tensor<2x8xbf16>, weight tensor<8xbf16>, bias tensor<8xbf16> -> tensor<2x8xbf16>, tensor<2xf32>, tensor<2xf32>
  %y, %m, %r = nn.layer_norm %x weight %w bias %w {epsilon = 1.0e-5 : f64} : tensor<2x8xbf16>, weight tensor<8xbf16>, bias tensor<8xbf16> -> tensor<2x8xbf16>, tensor<2xf32>, tensor<2xf32>
  // CHECK: nn.layer_norm %{{[a-z0-9]+}} weight %{{[a-z0-9]+}} {
  %y1, %m1, %r1 = nn.layer_norm %x weight %w {epsilon = 1.0e-5 : f64} : tensor<2x8xbf16>, weight tensor<8xbf16> -> tensor<2x8xbf16>, tensor<2xf32>, tensor<2xf32>
  // CHECK: nn.layer_norm %{{[a-z0-9]+}} {
  %y2, %m2, %r2 = nn.layer_norm %x {epsilon = 1.0e-5 : f64} : tensor<2x8xbf16> -> tensor<2x8xbf16>, tensor<2xf32>, tensor<2xf32>
  // CHECK: nn.layer_norm_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} weight %{{.*}} : tensor<2x8xbf16>, tensor<2xf32>, weight tensor<8xbf16> -> tensor<2x8xbf16>
  %d = nn.layer_norm_grad %y, %x, %m, %r weight %w : tensor<2x8xbf16>, tensor<2xf32>, weight tensor<8xbf16> -> tensor<2x8xbf16>
  // CHECK: nn.norm_weight_grad %{{.*}}, %{{.*}} mean %{{.*}} rstd %{{.*}} : tensor<2x8xbf16>, tensor<2xf32>, mean tensor<2xf32> -> tensor<8xbf16>
  %dw = nn.norm_weight_grad %y, %x mean %m rstd %r : tensor<2x8xbf16>, tensor<2xf32>, mean tensor<2xf32> -> tensor<8xbf16>
  // CHECK: nn.rms_norm %{{.*}} weight %{{.*}} {epsilon = 1.000000e-05 : f64} : tensor<2x8xbf16>, weight tensor<8xbf16> -> tensor<2x8xbf16>, tensor<2xf32>
  %z, %s = nn.rms_norm %x weight %w {epsilon = 1.0e-5 : f64} : tensor<2x8xbf16>, weight tensor<8xbf16> -> tensor<2x8xbf16>, tensor<2xf32>
  // CHECK: nn.rms_norm_grad %{{.*}}, %{{.*}}, %{{.*}} : tensor<2x8xbf16>, tensor<2xf32> -> tensor<2x8xbf16>
  %e = nn.rms_norm_grad %z, %x, %s : tensor<2x8xbf16>, tensor<2xf32> -> tensor<2x8xbf16>
  // CHECK: nn.norm_weight_grad %{{.*}}, %{{.*}} rstd %{{.*}} : tensor<2x8xbf16>, tensor<2xf32> -> tensor<8xbf16>
  %ew = nn.norm_weight_grad %z, %x rstd %s : tensor<2x8xbf16>, tensor<2xf32> -> tensor<8xbf16>
  return
}

// CHECK-LABEL: func.func @batch_norm
func.func @batch_norm(%x: tensor<2x3x4x4xf32>, %w: tensor<3xf32>) {
  // CHECK: nn.batch_norm %{{.*}}, %{{.*}}, %{{.*}} {epsilon = 1.000000e-05 : f64} : tensor<2x3x4x4xf32>, tensor<3xf32> -> tensor<2x3x4x4xf32>, tensor<3xf32>, tensor<3xf32>
  %y, %m, %v = nn.batch_norm %x, %w, %w {epsilon = 1.0e-5 : f64} : tensor<2x3x4x4xf32>, tensor<3xf32> -> tensor<2x3x4x4xf32>, tensor<3xf32>, tensor<3xf32>
  // CHECK: nn.batch_norm_grad
  %dx, %dw, %db = nn.batch_norm_grad %y, %x, %w, %m, %v {epsilon = 1.0e-5 : f64} : tensor<2x3x4x4xf32>, tensor<3xf32>, tensor<3xf32> -> tensor<2x3x4x4xf32>, tensor<3xf32>, tensor<3xf32>
  return
}

// CHECK-LABEL: func.func @attention
func.func @attention(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x6x8xf32>, %v: tensor<2x2x6x3xf32>, %mask: tensor<2x1x1x6xi1>, %t: tensor<1x1x5x8xf32>) {
  // CHECK: nn.rotary %{{.*}}, %{{.*}}, %{{.*}} {transposed} : tensor<2x4x5x8xf32>, tensor<1x1x5x8xf32>, tensor<1x1x5x8xf32>
  %r = nn.rotary %q, %t, %t {transposed} : tensor<2x4x5x8xf32>, tensor<1x1x5x8xf32>, tensor<1x1x5x8xf32>
  // CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}} {causal, scale = 1.000000e+00 : f64} : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32> -> tensor<2x4x5x3xf32>, tensor<2x4x5xf32>
  %y, %l = nn.attention %q, %k, %v {causal, scale = 1.0 : f64} : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32> -> tensor<2x4x5x3xf32>, tensor<2x4x5xf32>
  // CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}} mask %{{.*}} {scale = 1.000000e+00 : f64}
  %y1, %l1 = nn.attention %q, %k, %v mask %mask {scale = 1.0 : f64} : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32>, mask tensor<2x1x1x6xi1> -> tensor<2x4x5x3xf32>, tensor<2x4x5xf32>
  // CHECK: nn.attention_grad
  %dq, %dk, %dv = nn.attention_grad %y, %q, %k, %v, %y, %l mask %mask {scale = 1.0 : f64} : tensor<2x4x5x3xf32>, tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32>, tensor<2x4x5x3xf32>, tensor<2x4x5xf32>, mask tensor<2x1x1x6xi1> -> tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32>
  return
}

// CHECK-LABEL: func.func @cross_entropy
func.func @cross_entropy(%x: tensor<5x9xf32>, %t: tensor<5xi64>, %w: tensor<9xf32>) {
  // CHECK: nn.cross_entropy mean %{{.*}}, %{{.*}} {ignore_index = -100 : i64} : tensor<5x9xf32>, tensor<5xi64> -> tensor<f32>, tensor<5xf32>, tensor<f32>
  %l, %s, %v = nn.cross_entropy mean %x, %t {ignore_index = -100 : i64} : tensor<5x9xf32>, tensor<5xi64> -> tensor<f32>, tensor<5xf32>, tensor<f32>
  // CHECK: nn.cross_entropy sum %{{.*}}, %{{.*}} weights %{{.*}} : tensor<5x9xf32>, tensor<5xi64>, weights tensor<9xf32>
  %l1, %s1, %v1 = nn.cross_entropy sum %x, %t weights %w : tensor<5x9xf32>, tensor<5xi64>, weights tensor<9xf32> -> tensor<f32>, tensor<5xf32>, tensor<f32>
  // CHECK: nn.cross_entropy_grad mean
  %d = nn.cross_entropy_grad mean %l, %x, %t, %s, %v {ignore_index = -100 : i64} : tensor<f32>, tensor<5x9xf32>, tensor<5xi64>, tensor<5xf32> -> tensor<5x9xf32>
  return
}

// CHECK-LABEL: func.func @scaled_linear_cross_entropy
func.func @scaled_linear_cross_entropy(%x: tensor<5x4xf16>, %w: tensor<4x9xf16>, %t: tensor<5xi64>, %s: tensor<f32>) {
  // CHECK: nn.linear_cross_entropy mean %{{.*}}, %{{.*}}, %{{.*}} scale %{{.*}} : tensor<5x4xf16>, tensor<4x9xf16>, tensor<5xi64> scale tensor<f32> -> tensor<f32>, tensor<f32>
  %l, %v, %dx, %dw = nn.linear_cross_entropy mean %x, %w, %t scale %s : tensor<5x4xf16>, tensor<4x9xf16>, tensor<5xi64> scale tensor<f32> -> tensor<f32>, tensor<f32>
  return
}

// CHECK-LABEL: func.func @linear_cross_entropy
func.func @linear_cross_entropy(%x: tensor<5x4xbf16>, %w: tensor<9x4xbf16>, %b: tensor<9xbf16>, %t: tensor<5xi64>) {
  // CHECK: nn.linear_cross_entropy mean %{{.*}}, %{{.*}}, %{{.*}} bias %{{.*}} {transpose_weight} : tensor<5x4xbf16>, tensor<9x4xbf16>, tensor<5xi64> bias tensor<9xbf16> -> tensor<f32>, tensor<f32>, tensor<9xbf16>
  %l, %v, %dx, %dw, %db = nn.linear_cross_entropy mean %x, %w, %t bias %b {transpose_weight} : tensor<5x4xbf16>, tensor<9x4xbf16>, tensor<5xi64> bias tensor<9xbf16> -> tensor<f32>, tensor<f32>, tensor<9xbf16>
  return
}

// CHECK-LABEL: func.func @cross_entropy_rows
func.func @cross_entropy_rows(%x: tensor<5x9xbf16>, %t: tensor<5xi64>, %w: tensor<5xf32>) {
  // CHECK: nn.cross_entropy_rows %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<5x9xbf16>, tensor<5xi64>, tensor<5xf32>
  %l, %dx = nn.cross_entropy_rows %x, %t, %w, %w : tensor<5x9xbf16>, tensor<5xi64>, tensor<5xf32>
  return
}
