// On a GPU the update brings pieces of what is offloaded ahead of its kernels,
// and these copies wait for earlier functions only.
// RUN: fsdpc-opt %s --verify-rt --verify-diagnostics --split-input-file

// What an optimizer has written of offloaded states is not read again.
module attributes {fsdp.arena = {bytes = 64 : i64}, fsdp.options = {target = "cuda"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<32xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 32 : f32 states 1 offloaded ["state"] {
    members = [#fsdp.member<@w[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @sgd(%p: f32, %g: f32, %m: f32) -> (f32, f32) attributes {nn.kernel, nn.optimizer} {
    return %p, %m : f32, f32
  }
  func.func @update() {
    %scale = rt.pointer arena + 0 bytes 4
    // expected-note @below {{it is written here}}
    rt.optimizer @sgd(@a.flat, %scale)
    // expected-error @below {{brings optimizer state of 'a.flat', which is offloaded, before what this function has written of it is back}}
    rt.optimizer @sgd(@a.flat, %scale)
    return
  }
}

// -----

// Nor is an offloaded gradient that a reduction of the same function adds to.
module attributes {fsdp.arena = {bytes = 4096 : i64}, fsdp.options = {target = "cuda"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<32xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 32 : f32 states 1 offloaded ["gradient"] {
    members = [#fsdp.member<@w[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @update() {
    %0 = rt.pointer arena + 0 bytes 128
    %sums = rt.pointer arena + 256 bytes 128
    // expected-note @below {{it is written here}}
    rt.reduce_scatter [@a.flat], %0
    rt.event_record reduce 0
    rt.event_wait compute 0
    // expected-error @below {{brings gradients of 'a.flat', which is offloaded}}
    rt.sum_squares [@a.flat] -> %sums
    return
  }
}

// -----

// In device memory the optimizer follows the one before it, and so it does on
// the host, whose files are read in order.
module attributes {fsdp.arena = {bytes = 64 : i64}, fsdp.options = {target = "cuda"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<32xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 32 : f32 states 1 {
    members = [#fsdp.member<@w[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @sgd(%p: f32, %g: f32, %m: f32) -> (f32, f32) attributes {nn.kernel, nn.optimizer} {
    return %p, %m : f32, f32
  }
  func.func @update() {
    %scale = rt.pointer arena + 0 bytes 4
    rt.optimizer @sgd(@a.flat, %scale)
    rt.optimizer @sgd(@a.flat, %scale)
    return
  }
}

// -----

module attributes {fsdp.arena = {bytes = 64 : i64}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<32xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 32 : f32 states 1 offloaded ["state"] {
    members = [#fsdp.member<@w[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @sgd(%p: f32, %g: f32, %m: f32) -> (f32, f32) attributes {nn.kernel, nn.optimizer} {
    return %p, %m : f32, f32
  }
  func.func @update() {
    %scale = rt.pointer arena + 0 bytes 4
    rt.optimizer @sgd(@a.flat, %scale)
    rt.optimizer @sgd(@a.flat, %scale)
    return
  }
}
