// RUN: fsdpc-opt %s --grad --split-input-file --verify-diagnostics

// The loss must depend on a trainable parameter.
fsdp.parameter @w : tensor<4xf32> trainable
func.func @microbatch(%x: tensor<f32>) {
  // expected-error @+1 {{depends on no trainable parameter, so there is nothing to train}}
  fsdp.report_loss %x : tensor<f32>
  return
}

// -----

// An op without an adjoint between a parameter and the loss.
fsdp.parameter @w : tensor<2x2xf32> trainable
func.func @microbatch() {
  %w = fsdp.load @w : tensor<2x2xf32>
  // expected-error @+1 {{has no adjoint, but a trainable parameter affects the loss through it}}
  %y = nn.softmax_grad %w, %w : tensor<2x2xf32>
  %s = nn.reduce sum %y [0, 1] : tensor<2x2xf32> -> tensor<1x1xf32>
  %l = nn.reshape %s : tensor<1x1xf32> -> tensor<f32>
  fsdp.report_loss %l : tensor<f32>
  return
}

// -----

// A composite has no adjoint for its statistics.
fsdp.parameter @w : tensor<4xf32> trainable
func.func @microbatch() {
  %w = fsdp.load @w : tensor<4xf32>
  // expected-error @+1 {{is not differentiable with respect to result 1}}
  %y, %m, %r = nn.layer_norm %w {epsilon = 1.0e-5 : f64} : tensor<4xf32> -> tensor<4xf32>, tensor<f32>, tensor<f32>
  fsdp.report_loss %m : tensor<f32>
  return
}

// -----

// The loss must be a scalar.
fsdp.parameter @w : tensor<4xf32> trainable
func.func @microbatch() {
  %w = fsdp.load @w : tensor<4xf32>
  // expected-error @+1 {{loss must have one element, but has type 'tensor<4xf32>'}}
  fsdp.report_loss %w : tensor<4xf32>
  return
}

// -----

// expected-error @+1 {{must report exactly one loss, but reports 0}}
func.func @microbatch() {
  return
}

// -----

// Running the pass twice is an error of the pipeline.
func.func @microbatch(%x: tensor<f32>) {
  // expected-error @+1 {{belongs to a backward, but the module must contain only a forward}}
  %y = nn.neg %x {fsdp.backward} : tensor<f32>
  fsdp.report_loss %x : tensor<f32>
  return
}
