// RUN: fsdpc-opt %s --split-input-file --verify-diagnostics

func.func @layer_norm_weight(%x: tensor<2x8xf32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{weight must be a vector of 8 elements, not 'tensor<4xf32>'}}
  %y, %m, %r = nn.layer_norm %x weight %w {epsilon = 1.0e-5 : f64} : tensor<2x8xf32>, weight tensor<4xf32> -> tensor<2x8xf32>, tensor<2xf32>, tensor<2xf32>
  return
}

// -----

// Statistics are f32 for every type of input.
func.func @rms_norm_statistic(%x: tensor<2x8xbf16>) {
  // expected-error @+1 {{statistic must be 'tensor<2xf32>', not 'tensor<2x8xf32>'}}
  %y, %r = nn.rms_norm %x {epsilon = 1.0e-5 : f64} : tensor<2x8xbf16> -> tensor<2x8xbf16>, tensor<2x8xf32>
  return
}

// -----

func.func @layer_norm_bias(%x: tensor<2x8xf32>, %b: tensor<8xf32>) {
  // expected-error @+1 {{has a bias but no weight}}
  %y, %m, %r = "nn.layer_norm"(%x, %b) {epsilon = 1.0e-5 : f64, operandSegmentSizes = array<i32: 1, 0, 1>} : (tensor<2x8xf32>, tensor<8xf32>) -> (tensor<2x8xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @batch_norm_channels(%x: tensor<2x3x4xf32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{weight must be a vector of 3 elements}}
  %y, %m, %v = nn.batch_norm %x, %w, %w {epsilon = 1.0e-5 : f64} : tensor<2x3x4xf32>, tensor<4xf32> -> tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>
  return
}

// -----

func.func @rotary_odd(%x: tensor<1x1x2x3xf32>) {
  // expected-error @+1 {{last dimension must be even to be split in halves}}
  %0 = nn.rotary %x, %x, %x : tensor<1x1x2x3xf32>, tensor<1x1x2x3xf32>, tensor<1x1x2x3xf32>
  return
}

// -----

func.func @rotary_table(%x: tensor<1x2x2x4xf32>, %t: tensor<2x4xf32>) {
  // expected-error @+1 {{cos and sin must have the input's rank, and each dimension must be 1 or the input's, but the type is 'tensor<2x4xf32>'}}
  %0 = nn.rotary %x, %t, %t : tensor<1x2x2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
  return
}

// -----

func.func @attention_groups(%q: tensor<1x3x2x4xf32>, %k: tensor<1x2x2x4xf32>) {
  // expected-error @+1 {{query heads, 3, must be a multiple of the key heads, 2}}
  %y, %l = nn.attention %q, %k, %k {scale = 1.0 : f64} : tensor<1x3x2x4xf32>, tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32> -> tensor<1x3x2x4xf32>, tensor<1x3x2xf32>
  return
}

// -----

func.func @attention_mask(%q: tensor<1x2x2x4xf32>, %m: tensor<1x1x3x2xi1>) {
  // expected-error @+1 {{mask 'tensor<1x1x3x2xi1>' does not broadcast to 1x2x2x2}}
  %y, %l = nn.attention %q, %q, %q mask %m {scale = 1.0 : f64} : tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>, mask tensor<1x1x3x2xi1> -> tensor<1x2x2x4xf32>, tensor<1x2x2xf32>
  return
}

// -----

func.func @attention_value(%q: tensor<1x2x2x4xf32>, %v: tensor<1x2x3x4xf32>) {
  // expected-error @+1 {{have incompatible shapes}}
  %y, %l = nn.attention %q, %q, %v {scale = 1.0 : f64} : tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x2x4xf32>, tensor<1x2x2xf32>
  return
}

// -----

func.func @cross_entropy_targets(%x: tensor<5x9xf32>, %t: tensor<4xi64>) {
  // expected-error @+1 {{targets must be a vector of 5 elements, not 'tensor<4xi64>'}}
  %l, %s, %v = nn.cross_entropy mean %x, %t : tensor<5x9xf32>, tensor<4xi64> -> tensor<f32>, tensor<5xf32>, tensor<f32>
  return
}

// -----

func.func @cross_entropy_rank(%x: tensor<5x2x9xf32>, %t: tensor<5xi64>) {
  // expected-error @+1 {{logits must be rows by classes}}
  %l, %s, %v = nn.cross_entropy mean %x, %t : tensor<5x2x9xf32>, tensor<5xi64> -> tensor<f32>, tensor<5xf32>, tensor<f32>
  return
}

// -----

func.func @linear_cross_entropy_product(%x: tensor<5x4xf32>, %w: tensor<9x4xf32>, %t: tensor<5xi64>) {
  // expected-error @+1 {{input 'tensor<5x4xf32>' and weight 'tensor<9x4xf32>' do not form a matrix product}}
  %l, %v, %dx, %dw = nn.linear_cross_entropy mean %x, %w, %t : tensor<5x4xf32>, tensor<9x4xf32>, tensor<5xi64> -> tensor<f32>, tensor<f32>
  return
}

// -----

func.func @linear_cross_entropy_bias(%x: tensor<5x4xf32>, %w: tensor<4x9xf32>, %b: tensor<9xf32>, %t: tensor<5xi64>) {
  // expected-error @+1 {{must have a gradient of the bias if and only if it has a bias}}
  %l, %v, %dx, %dw = nn.linear_cross_entropy mean %x, %w, %t bias %b : tensor<5x4xf32>, tensor<4x9xf32>, tensor<5xi64> bias tensor<9xf32> -> tensor<f32>, tensor<f32>
  return
}

// -----

func.func @linear_cross_entropy_scale(%x: tensor<5x4xf32>, %w: tensor<4x9xf32>, %t: tensor<5xi64>, %s: tensor<1xf32>) {
  // expected-error @+1 {{scale must be 'tensor<f32>', not 'tensor<1xf32>'}}
  %l, %v, %dx, %dw = nn.linear_cross_entropy mean %x, %w, %t scale %s : tensor<5x4xf32>, tensor<4x9xf32>, tensor<5xi64> scale tensor<1xf32> -> tensor<f32>, tensor<f32>
  return
}

// -----

func.func @cross_entropy_rows_weights(%x: tensor<5x9xf32>, %t: tensor<5xi64>, %w: tensor<9xf32>) {
  // expected-error @+1 {{weights must be 'tensor<5xf32>', not 'tensor<9xf32>'}}
  %l, %dx = nn.cross_entropy_rows %x, %t, %w, %w : tensor<5x9xf32>, tensor<5xi64>, tensor<9xf32>
  return
}
