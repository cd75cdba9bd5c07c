// Where the states of an offloaded layout may be used.
// RUN: fsdpc-opt %s --verify-shard --verify-diagnostics --split-input-file

// The optimizer goes through them piece by piece.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 offloaded {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %m: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p, %m : f32, f32
    }
    return
  }
}

// -----

// A layout without states has nothing to offload.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{is offloaded, but has no states}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 offloaded {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}

// -----

// Sums over whole parameters read states that are in memory.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 offloaded {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @update(%c: tensor<f32>) {
    // expected-error @below {{reads the states of layout 'a.flat', which are offloaded}}
    %n = fsdp.member_sums [@a.flat], %c : tensor<f32> -> tensor<1xf64> {
    ^bb0(%p: f32, %g: f32, %m: f32, %lr: f64, %step: f64, %decay: f64):
      %0 = arith.extf %m : f32 to f64
      fsdp.yield %0 : f64
    }
    return
  }
}

// -----

// So does the momentum of whole matrices.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 offloaded {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @update(%c: tensor<f32>) {
    // expected-error @below {{reads the states of layout 'a.flat', which are offloaded}}
    %u = fsdp.momentum_updates @a.flat, %c {momentum = 0.9 : f64, clip_value = 0.0 : f64} : tensor<f32> -> tensor<16xf32>
    return
  }
}

// -----

// Only the host has a file of states.
module attributes {fsdp.options = {"target" = "cuda-emulation"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{breaks rule 'offload': layout 'a.flat' is offloaded, which target 'cuda-emulation' does not support}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 offloaded {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    return
  }
}
