// Updates of whole matrices in @update, and optimizers that take them.
// RUN: fsdpc-opt %s --verify-diagnostics --split-input-file

fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 1 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>) {
  // expected-error@+1 {{takes matrices, but parameter 'a' has 1 dimensions}}
  %s = fsdp.momentum_updates @u.flat, %c {clip_value = 0.0 : f64, momentum = 0.5 : f64} : tensor<f32> -> tensor<8xf32>
  return
}

// -----

// The momentum is the first state.
fsdp.parameter @a : tensor<2x4xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>) {
  // expected-error@+1 {{needs a state, but layout 'u.flat' has none}}
  %s = fsdp.momentum_updates @u.flat, %c {clip_value = 0.0 : f64, momentum = 0.5 : f64} : tensor<f32> -> tensor<8xf32>
  return
}

// -----

// The result has room for four more matrices.
fsdp.parameter @a : tensor<2x4xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 1 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%x: tensor<8xf32>) {
  // expected-error@+1 {{has type 'tensor<8xf32>' where 40 elements are needed}}
  %o = fsdp.orthogonalize @u.flat, %x {a = 3.0 : f64, b = -4.0 : f64, c = 2.0 : f64, eps = 0.0 : f64, steps = 5 : i32, adjust = "original"} : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

fsdp.parameter @a : tensor<2x4xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 1 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%x: tensor<8xf32>) {
  // expected-error@+1 {{has adjust 'rms'; expected original or match_rms_adamw}}
  %o = fsdp.orthogonalize @u.flat, %x {a = 3.0 : f64, b = -4.0 : f64, c = 2.0 : f64, eps = 0.0 : f64, steps = 5 : i32, adjust = "rms"} : tensor<8xf32> -> tensor<40xf32>
  return
}

// -----

fsdp.parameter @a : tensor<2x4xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 1 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%x: tensor<8xf32>) {
  // expected-error@+1 {{has 0 steps; expected 1 to 99}}
  %o = fsdp.orthogonalize @u.flat, %x {a = 3.0 : f64, b = -4.0 : f64, c = 2.0 : f64, eps = 0.0 : f64, steps = 0 : i32, adjust = "original"} : tensor<8xf32> -> tensor<40xf32>
  return
}
