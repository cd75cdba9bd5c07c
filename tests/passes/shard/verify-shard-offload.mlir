// The parts of a layout that may be offloaded, and where they may be used.
// RUN: fsdpc-opt %s --verify-shard --verify-diagnostics --split-input-file

// The ops of @update go through all of it piece by piece.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 offloaded ["state", "parameter", "gradient"] {
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
  // expected-error @below {{has its states offloaded, but has none}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 offloaded ["state"] {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}

// -----

// A frozen layout has no gradient.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> unit @a
  // expected-error @below {{is frozen, but has its gradient offloaded}}
  fsdp.layout @a.frozen of @a elements 16 : f32 states 0 offloaded ["gradient"] {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}

// -----

// There are three kinds.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{cannot offload 'master'; expected gradient, parameter or state}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 offloaded ["master"] {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}

// -----

// Parts that all ranks have whole are in memory.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{has its parameter offloaded, but keeps 'master' replicated}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 offloaded ["parameter"] {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "state"]}
}

// -----

// A master in f32 is a part of the copy that zero2 computes with.
module attributes {fsdp.options = {"strategy" = "zero2"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{breaks rule 'offload': the parameters of layout 'a.flat' cannot be offloaded, as no rank has a part of its own}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 offloaded ["parameter"] {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    return
  }
}
