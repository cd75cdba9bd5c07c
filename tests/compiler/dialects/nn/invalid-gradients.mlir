// The gradients of composites obey the rules of their forward ops, so that an
// edited dump cannot give them shapes that their kernels do not have.
// RUN: fsdpc-opt %s --split-input-file --verify-diagnostics

// A scalar has no axis to normalise.
func.func @softmax_scalar(%x: tensor<f32>) {
  // expected-error @+1 {{input must have an axis to normalise}}
  %y = nn.softmax %x : tensor<f32>
  return
}

// -----

func.func @softmax_grad_scalar(%x: tensor<f32>) {
  // expected-error @+1 {{input must have an axis to normalise}}
  %y = nn.softmax_grad %x, %x : tensor<f32>
  return
}

// -----

func.func @log_softmax_scalar(%x: tensor<f32>) {
  // expected-error @+1 {{input must have an axis to normalise}}
  %y = nn.log_softmax %x : tensor<f32>
  return
}

// -----

func.func @layer_norm_grad_weight(%x: tensor<2x8xf32>, %s: tensor<2xf32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{weight must be a vector of 8 elements, not 'tensor<4xf32>'}}
  %dx = nn.layer_norm_grad %x, %x, %s, %s weight %w : tensor<2x8xf32>, tensor<2xf32>, weight tensor<4xf32> -> tensor<2x8xf32>
  return
}

// -----

func.func @layer_norm_grad_result(%x: tensor<2x8xf32>, %s: tensor<2xf32>) {
  // expected-error @+1 {{result 'tensor<2x4xf32>' must have the input's type 'tensor<2x8xf32>'}}
  %dx = nn.layer_norm_grad %x, %x, %s, %s : tensor<2x8xf32>, tensor<2xf32> -> tensor<2x4xf32>
  return
}

// -----

// Statistics are f32 for every type of input.
func.func @rms_norm_grad_statistic(%x: tensor<2x8xbf16>, %s: tensor<8xf32>) {
  // expected-error @+1 {{statistic must be 'tensor<2xf32>', not 'tensor<8xf32>'}}
  %dx = nn.rms_norm_grad %x, %x, %s : tensor<2x8xbf16>, tensor<8xf32> -> tensor<2x8xbf16>
  return
}

// -----

func.func @norm_weight_grad_result(%x: tensor<2x8xf32>, %s: tensor<2xf32>) {
  // expected-error @+1 {{result must be a vector of 8 elements, not 'tensor<2xf32>'}}
  %dw = nn.norm_weight_grad %x, %x rstd %s : tensor<2x8xf32>, tensor<2xf32> -> tensor<2xf32>
  return
}

// -----

func.func @norm_weight_grad_mean(%x: tensor<2x8xf32>, %s: tensor<2xf32>, %m: tensor<1xf32>) {
  // expected-error @+1 {{statistic must be 'tensor<2xf32>', not 'tensor<1xf32>'}}
  %dw = nn.norm_weight_grad %x, %x mean %m rstd %s : tensor<2x8xf32>, tensor<2xf32>, mean tensor<1xf32> -> tensor<8xf32>
  return
}

// -----

func.func @norm_weight_grad_scalar(%x: tensor<f32>) {
  // expected-error @+1 {{input must have an axis to normalise}}
  %dw = nn.norm_weight_grad %x, %x rstd %x : tensor<f32>, tensor<f32> -> tensor<1xf32>
  return
}

// -----

func.func @batch_norm_grad_channels(%x: tensor<2x3x4xf32>, %w: tensor<3xf32>, %s: tensor<4xf32>) {
  // expected-error @+1 {{mean must be 'tensor<3xf32>', not 'tensor<4xf32>'}}
  %dx, %dw, %db = nn.batch_norm_grad %x, %x, %w, %s, %s {epsilon = 1.0e-5 : f64} : tensor<2x3x4xf32>, tensor<3xf32>, tensor<4xf32> -> tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>
  return
}

// -----

func.func @batch_norm_grad_bias(%x: tensor<2x3x4xf32>, %w: tensor<3xf32>) {
  // expected-error @+1 {{dbias 'tensor<2xf32>' must have the weight's type 'tensor<3xf32>'}}
  %dx, %dw, %db = nn.batch_norm_grad %x, %x, %w, %w, %w {epsilon = 1.0e-5 : f64} : tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32> -> tensor<2x3x4xf32>, tensor<3xf32>, tensor<2xf32>
  return
}

// -----

func.func @attention_grad_result(%q: tensor<1x2x2x4xf32>, %l: tensor<1x2x2xf32>) {
  // expected-error @+1 {{dkey 'tensor<1x2x3x4xf32>' must have the key's type 'tensor<1x2x2x4xf32>'}}
  %dq, %dk, %dv = nn.attention_grad %q, %q, %q, %q, %q, %l {scale = 1.0 : f64} : tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>, tensor<1x2x2xf32> -> tensor<1x2x2x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x2x4xf32>
  return
}

// -----

func.func @attention_grad_statistic(%q: tensor<1x2x2x4xf32>, %l: tensor<1x2x3xf32>) {
  // expected-error @+1 {{lse must be 'tensor<1x2x2xf32>', not 'tensor<1x2x3xf32>'}}
  %dq, %dk, %dv = nn.attention_grad %q, %q, %q, %q, %q, %l {scale = 1.0 : f64} : tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>, tensor<1x2x3xf32> -> tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>
  return
}

// -----

func.func @cross_entropy_grad_targets(%g: tensor<f32>, %x: tensor<5x9xf32>, %t: tensor<4xi64>, %l: tensor<5xf32>) {
  // expected-error @+1 {{targets must be a vector of 5 elements, not 'tensor<4xi64>'}}
  %dx = nn.cross_entropy_grad mean %g, %x, %t, %l, %g : tensor<f32>, tensor<5x9xf32>, tensor<4xi64>, tensor<5xf32> -> tensor<5x9xf32>
  return
}

// -----

func.func @cross_entropy_grad_result(%g: tensor<f32>, %x: tensor<5x9xf32>, %t: tensor<5xi64>, %l: tensor<5xf32>) {
  // expected-error @+1 {{result 'tensor<5x8xf32>' must have the logits' type 'tensor<5x9xf32>'}}
  %dx = nn.cross_entropy_grad mean %g, %x, %t, %l, %g : tensor<f32>, tensor<5x9xf32>, tensor<5xi64>, tensor<5xf32> -> tensor<5x8xf32>
  return
}
