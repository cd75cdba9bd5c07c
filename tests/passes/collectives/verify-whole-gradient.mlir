// RUN: fsdpc-opt %s --verify-collectives --verify-diagnostics --split-input-file

// The gradient that an optimizer of a whole layout reads (rule 'update').

// Without it the rank would update with its part of the gradient only.
module attributes {fsdp.options = {strategy = "ddp", "max-accumulate" = 1 : i64, "max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.parameter @wa : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %ga = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %ga : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    // expected-error @below {{breaks rule 'update': it takes no 'fsdp.whole_gradient', but this rank keeps only a part of the gradient of layout 'a.flat'}}
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// A whole gradient of another layout.
module attributes {fsdp.options = {strategy = "ddp", "max-accumulate" = 1 : i64, "max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.parameter @wa : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "state"]}
  fsdp.unit @b
  fsdp.parameter @wb : tensor<16xf32> trainable unit @b
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wb[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %ga = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    %gb = fsdp.pack @b.flat(%x) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat, @b.flat], %ga, %gb : tensor<16xf32>, tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    %wa = fsdp.whole_gradient @a.flat : tensor<80xf32>
    fsdp.optimizer @a.flat, %c gradient %wa : tensor<80xf32> : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    // expected-error @below {{breaks rule 'update': its gradient is not the 'fsdp.whole_gradient' of layout 'b.flat'}}
    fsdp.optimizer @b.flat, %c gradient %wa : tensor<80xf32> : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// A layout that adds up gradients over microbatches has the sum in its own memory.
module attributes {fsdp.options = {strategy = "ddp", "max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.parameter @wa : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %ga = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %ga : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.gather_gradients [@a.flat]
    %wa = fsdp.whole_gradient @a.flat : tensor<80xf32>
    // expected-error @below {{breaks rule 'update': it takes a gradient, but reads that of layout 'a.flat' in the layout's memory}}
    fsdp.optimizer @a.flat, %c gradient %wa : tensor<80xf32> : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// A gradient that a step of one microbatch gathers has no memory in the layout.
module attributes {fsdp.options = {strategy = "ddp", "max-accumulate" = 1 : i64, "max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.parameter @wa : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %ga = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %ga : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    // expected-error @below {{breaks rule 'update': the strategies of layouts and --reduce do not want it}}
    fsdp.gather_gradients [@a.flat]
    %wa = fsdp.whole_gradient @a.flat : tensor<80xf32>
    fsdp.optimizer @a.flat, %c gradient %wa : tensor<80xf32> : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// The strategy and --max-accumulate decide together what a rank keeps.
module attributes {fsdp.options = {strategy = "ddp", "max-accumulate" = 1 : i64, "max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.parameter @wa : tensor<16xf32> trainable unit @a
  // expected-error @below {{breaks rule 'replication': layout 'a.flat' keeps [compute, gradient, master, state] on every rank, and strategy 'ddp' with reduce 'microbatch' and max-accumulate 1 [compute, master, state]}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %ga = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %ga : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    %wa = fsdp.whole_gradient @a.flat : tensor<80xf32>
    fsdp.optimizer @a.flat, %c gradient %wa : tensor<80xf32> : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// The result has room for the padding.
module attributes {fsdp.options = {strategy = "ddp", "max-accumulate" = 1 : i64, "max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.parameter @wa : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %ga = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %ga : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    // expected-error @below {{has type 'tensor<16xf32>' where 80 elements are needed}}
    %wa = fsdp.whole_gradient @a.flat : tensor<16xf32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}
