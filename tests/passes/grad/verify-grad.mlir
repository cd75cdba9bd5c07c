// RUN: fsdpc-opt %s --verify-grad --split-input-file --verify-diagnostics

// The result of grad and rematerialise-weights: activations are saved, weights
// and values derived from them are not.
fsdp.unit @a
fsdp.parameter @w : tensor<4xf32> trainable unit @a
func.func @microbatch(%x: tensor<4xf32>) {
  %w = fsdp.load @w {fsdp.unit = @a} : tensor<4xf32>
  %y = nn.mul %x, %w {fsdp.unit = @a} : tensor<4xf32>
  %w1 = fsdp.load @w {fsdp.backward, fsdp.unit = @a} : tensor<4xf32>
  %g = nn.mul %y, %w1 {fsdp.backward, fsdp.unit = @a} : tensor<4xf32>
  fsdp.gradient @w, %g {fsdp.backward, fsdp.unit = @a} : tensor<4xf32>
  return
}

// -----

// A value derived from a weight of the op's own unit.
fsdp.unit @a
fsdp.parameter @w : tensor<4xf32> trainable unit @a
func.func @microbatch(%x: tensor<4xf32>) {
  %w = fsdp.load @w {fsdp.unit = @a} : tensor<4xf32>
  // expected-note @+1 {{computed by 'nn.exp'}}
  %e = nn.exp %w {fsdp.unit = @a} : tensor<4xf32>
  // expected-error @+1 {{'nn.mul' op belongs to the backward, but uses a value of the forward that depends only on weights}}
  %g = nn.mul %x, %e {fsdp.backward, fsdp.unit = @a} : tensor<4xf32>
  fsdp.gradient @w, %g {fsdp.backward, fsdp.unit = @a} : tensor<4xf32>
  return
}

// -----

// Nor may a weight itself be saved for another unit; a value computed from it
// may.
fsdp.unit @a
fsdp.unit @b
fsdp.parameter @w : tensor<4xf32> unit @a
func.func @microbatch(%x: tensor<4xf32>) {
  // expected-note @+1 {{computed by 'fsdp.load'}}
  %w = fsdp.load @w {fsdp.unit = @a} : tensor<4xf32>
  %e = nn.exp %w {fsdp.unit = @a} : tensor<4xf32>
  %g = nn.mul %x, %e {fsdp.backward, fsdp.unit = @b} : tensor<4xf32>
  // expected-error @+1 {{uses a value of the forward that depends only on weights}}
  %h = nn.mul %x, %w {fsdp.backward, fsdp.unit = @b} : tensor<4xf32>
  return
}

// -----

// The forward must not depend on the backward.
func.func @microbatch(%x: tensor<4xf32>) {
  // expected-note @+1 {{computed by 'nn.neg'}}
  %g = nn.neg %x {fsdp.backward} : tensor<4xf32>
  // expected-error @+1 {{belongs to the forward, but uses a value of the backward}}
  %y = nn.exp %g : tensor<4xf32>
  return
}

// -----

// expected-error @+1 {{'w' is trainable, but has no gradient}}
fsdp.parameter @w : tensor<4xf32> trainable
func.func @microbatch() {
  return
}

// -----

fsdp.parameter @w : tensor<4xf32> trainable
func.func @microbatch(%x: tensor<4xf32>) {
  // expected-note @+1 {{first gradient is here}}
  fsdp.gradient @w, %x : tensor<4xf32>
  // expected-error @+1 {{is the second gradient of parameter 'w'}}
  fsdp.gradient @w, %x : tensor<4xf32>
  return
}
