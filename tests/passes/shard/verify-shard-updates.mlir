// The rule `updates` of verify-shard: updates of whole matrices.
// RUN: fsdpc-opt %s --verify-shard --verify-diagnostics --split-input-file

// The updates of a layout's matrices pass all four ops.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<2x8xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = ["m0"], orthogonal = true>, whole = []}
  fsdp.unit @b
  fsdp.parameter @x : tensor<2x8xf32> trainable unit @b
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 1 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<2x8xf32>, %y: tensor<2x8xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<2x8xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %h = fsdp.pack @b.flat(%y) {fsdp.unit = @b, fsdp.backward} : (tensor<2x8xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    %m = fsdp.momentum_updates @a.flat, %c {clip_value = 0.0 : f64, momentum = 0.5 : f64} : tensor<f32> -> tensor<16xf32>
    %w = fsdp.collect_matrices @a.flat, %m : tensor<16xf32>
    %o = fsdp.orthogonalize @a.flat, %w {a = 3.0 : f64, b = -4.0 : f64, c = 2.0 : f64, eps = 0.0 : f64, steps = 5 : i32, adjust = "original"} : tensor<16xf32> -> tensor<80xf32>
    %u = fsdp.spread_matrices @a.flat, %o : tensor<80xf32>
    fsdp.optimizer @a.flat, %c updates %u : tensor<80xf32> : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %x: f32, %m0: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p, %m0 : f32, f32
    }
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %m0: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p, %m0 : f32, f32
    }
    return
  }
}

// -----

// Otherwise an owner would have its own part of a matrix alone.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<2x8xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = ["m0"], orthogonal = true>, whole = []}
  fsdp.unit @b
  fsdp.parameter @x : tensor<2x8xf32> trainable unit @b
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 1 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<2x8xf32>, %y: tensor<2x8xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<2x8xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %h = fsdp.pack @b.flat(%y) {fsdp.unit = @b, fsdp.backward} : (tensor<2x8xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    %m = fsdp.momentum_updates @a.flat, %c {clip_value = 0.0 : f64, momentum = 0.5 : f64} : tensor<f32> -> tensor<16xf32>
    // expected-error@+1 {{breaks rule 'updates': its updates are not 'fsdp.momentum_updates' collected by 'fsdp.collect_matrices'}}
    %o = fsdp.orthogonalize @a.flat, %m {a = 3.0 : f64, b = -4.0 : f64, c = 2.0 : f64, eps = 0.0 : f64, steps = 5 : i32, adjust = "original"} : tensor<16xf32> -> tensor<80xf32>
    %u = fsdp.spread_matrices @a.flat, %o : tensor<80xf32>
    // expected-note@+1 {{the optimizer that takes the updates}}
    fsdp.optimizer @a.flat, %c updates %u : tensor<80xf32> : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %x: f32, %m0: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p, %m0 : f32, f32
    }
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %m0: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p, %m0 : f32, f32
    }
    return
  }
}

// -----

// Otherwise a rank would have no update of matrices that it does not own.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<2x8xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = ["m0"], orthogonal = true>, whole = []}
  fsdp.unit @b
  fsdp.parameter @x : tensor<2x8xf32> trainable unit @b
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 1 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<2x8xf32>, %y: tensor<2x8xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<2x8xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %h = fsdp.pack @b.flat(%y) {fsdp.unit = @b, fsdp.backward} : (tensor<2x8xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    %m = fsdp.momentum_updates @a.flat, %c {clip_value = 0.0 : f64, momentum = 0.5 : f64} : tensor<f32> -> tensor<16xf32>
    %w = fsdp.collect_matrices @a.flat, %m : tensor<16xf32>
    %o = fsdp.orthogonalize @a.flat, %w {a = 3.0 : f64, b = -4.0 : f64, c = 2.0 : f64, eps = 0.0 : f64, steps = 5 : i32, adjust = "original"} : tensor<16xf32> -> tensor<80xf32>
    // expected-error@+2 {{breaks rule 'updates': its updates are not those of an 'fsdp.spread_matrices'}}
    // expected-note@+1 {{the optimizer that takes the updates}}
    fsdp.optimizer @a.flat, %c updates %o : tensor<80xf32> : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %x: f32, %m0: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p, %m0 : f32, f32
    }
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %m0: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p, %m0 : f32, f32
    }
    return
  }
}

// -----

// Owners follow from the shapes of a layout.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<2x8xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = ["m0"], orthogonal = true>, whole = []}
  fsdp.unit @b
  fsdp.parameter @x : tensor<2x8xf32> trainable unit @b
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 1 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<2x8xf32>, %y: tensor<2x8xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<2x8xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %h = fsdp.pack @b.flat(%y) {fsdp.unit = @b, fsdp.backward} : (tensor<2x8xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    %m = fsdp.momentum_updates @a.flat, %c {clip_value = 0.0 : f64, momentum = 0.5 : f64} : tensor<f32> -> tensor<16xf32>
    %w = fsdp.collect_matrices @a.flat, %m : tensor<16xf32>
    // expected-error@+1 {{breaks rule 'updates': it is of layout 'b.flat', not of 'a.flat'}}
    %o = fsdp.orthogonalize @b.flat, %w {a = 3.0 : f64, b = -4.0 : f64, c = 2.0 : f64, eps = 0.0 : f64, steps = 5 : i32, adjust = "original"} : tensor<16xf32> -> tensor<80xf32>
    %u = fsdp.spread_matrices @a.flat, %o : tensor<80xf32>
    // expected-note@+1 {{the optimizer that takes the updates}}
    fsdp.optimizer @a.flat, %c updates %u : tensor<80xf32> : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %x: f32, %m0: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p, %m0 : f32, f32
    }
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %m0: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p, %m0 : f32, f32
    }
    return
  }
}
