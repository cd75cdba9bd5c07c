// RUN: fsdpc-opt %s --verify-collectives --verify-diagnostics --split-input-file --allow-unregistered-dialect

// Exactly one reduction per trainable parameter and step, under every strategy: a
// parameter is a member of one layout (verify-shard), and each layout's gradient
// is reduced once. Each case has no reduction, a second one, or one on a branch
// that ranks may take differently: no dialect of a dump has branches, and in the
// region of a foreign op there are no layouts.

// zero3: none,
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is not reduced in '@microbatch'}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// two,
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-note @below {{the first time is here}}
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is reduced twice}}
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// and one on a branch.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    "test.if"() ({
      // expected-error @below {{references 'a.flat', which is not a fsdp.layout}}
      fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    }) : () -> ()
    return
  }
  func.func @update() { return }
}

// -----

// zero2: none,
module attributes {fsdp.options = {strategy = "zero2"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is not reduced in '@microbatch'}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// two,
module attributes {fsdp.options = {strategy = "zero2"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-note @below {{the first time is here}}
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is reduced twice}}
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// and one on a branch.
module attributes {fsdp.options = {strategy = "zero2"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    "test.if"() ({
      // expected-error @below {{references 'a.flat', which is not a fsdp.layout}}
      fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    }) : () -> ()
    return
  }
  func.func @update() { return }
}

// -----

// zero1: none,
module attributes {fsdp.options = {strategy = "zero1"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is not reduced in '@microbatch'}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// two,
module attributes {fsdp.options = {strategy = "zero1"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-note @below {{the first time is here}}
    fsdp.reduce_scatter [@a.flat], %g : tensor<16xf32>
    // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is reduced twice}}
    fsdp.reduce_scatter [@a.flat], %g : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// and one on a branch.
module attributes {fsdp.options = {strategy = "zero1"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    "test.if"() ({
      // expected-error @below {{references 'a.flat', which is not a fsdp.layout}}
      fsdp.reduce_scatter [@a.flat], %g : tensor<16xf32>
    }) : () -> ()
    return
  }
  func.func @update() { return }
}

// -----

// ddp: none,
module attributes {fsdp.options = {strategy = "ddp"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is not reduced in '@microbatch'}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// two,
module attributes {fsdp.options = {strategy = "ddp"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-note @below {{the first time is here}}
    fsdp.reduce_scatter [@a.flat], %g : tensor<16xf32>
    // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is reduced twice}}
    fsdp.reduce_scatter [@a.flat], %g : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// and one on a branch.
module attributes {fsdp.options = {strategy = "ddp"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    "test.if"() ({
      // expected-error @below {{references 'a.flat', which is not a fsdp.layout}}
      fsdp.reduce_scatter [@a.flat], %g : tensor<16xf32>
    }) : () -> ()
    return
  }
  func.func @update() { return }
}

// -----

// zero3 with --reduce=step: nothing is accumulated,
module attributes {fsdp.options = {reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is not accumulated in '@microbatch'}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["gradient"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// twice,
module attributes {fsdp.options = {reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["gradient"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-note @below {{the first time is here}}
    fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is accumulated twice}}
    fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// or on a branch;
module attributes {fsdp.options = {reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["gradient"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    "test.if"() ({
      // expected-error @below {{references 'a.flat', which is not a fsdp.layout}}
      fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    }) : () -> ()
    return
  }
  func.func @update() { return }
}

// -----

// what is accumulated is not reduced,
module attributes {fsdp.options = {reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["gradient"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  // expected-error @below {{breaks rule 'update': it has no 'fsdp.reduce_gradients'}}
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// reduced twice,
module attributes {fsdp.options = {reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["gradient"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    // expected-note @below {{the first is here}}
    fsdp.reduce_gradients [@a.flat]
    // expected-error @below {{breaks rule 'update': it is the second one}}
    fsdp.reduce_gradients [@a.flat]
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// or on a branch.
module attributes {fsdp.options = {reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["gradient"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    "test.if"() ({
      // expected-error @below {{references 'a.flat', which is not a fsdp.layout}}
      fsdp.reduce_gradients [@a.flat]
    }) : () -> ()
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// ddp with --reduce=step: nothing is accumulated,
module attributes {fsdp.options = {strategy = "ddp", reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is not accumulated in '@microbatch'}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// twice,
module attributes {fsdp.options = {strategy = "ddp", reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-note @below {{the first time is here}}
    fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is accumulated twice}}
    fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// or on a branch;
module attributes {fsdp.options = {strategy = "ddp", reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    "test.if"() ({
      // expected-error @below {{references 'a.flat', which is not a fsdp.layout}}
      fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    }) : () -> ()
    return
  }
  func.func @update() { return }
}

// -----

// what is accumulated is not reduced,
module attributes {fsdp.options = {strategy = "ddp", reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  // expected-error @below {{breaks rule 'update': it has no 'fsdp.reduce_gradients'}}
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.gather_gradients [@a.flat]
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// reduced twice,
module attributes {fsdp.options = {strategy = "ddp", reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    // expected-note @below {{the first is here}}
    fsdp.reduce_gradients [@a.flat]
    // expected-error @below {{breaks rule 'update': it is the second one}}
    fsdp.reduce_gradients [@a.flat]
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.gather_gradients [@a.flat]
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// or on a branch.
module attributes {fsdp.options = {strategy = "ddp", reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    "test.if"() ({
      // expected-error @below {{references 'a.flat', which is not a fsdp.layout}}
      fsdp.reduce_gradients [@a.flat]
    }) : () -> ()
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.gather_gradients [@a.flat]
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// oss: none,
module attributes {fsdp.options = {strategy = "oss"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is not reduced in '@microbatch'}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// two,
module attributes {fsdp.options = {strategy = "oss"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-note @below {{the first time is here}}
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is reduced twice}}
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// and one on a branch.
module attributes {fsdp.options = {strategy = "oss"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    "test.if"() ({
      // expected-error @below {{references 'a.flat', which is not a fsdp.layout}}
      fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    }) : () -> ()
    return
  }
  func.func @update() { return }
}

// -----

// @update reduces no microbatch again,
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %k = nn.constant dense<0.0> : tensor<16xf32>
    // expected-error @below {{breaks rule 'reduce-once': '@update' changes gradients only by reduce_gradients and gather_gradients}}
    fsdp.reduce_scatter [@a.flat], %k : tensor<16xf32>
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// and accumulates none.
module attributes {fsdp.options = {strategy = "ddp", reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    fsdp.reduce_gradients [@a.flat]
    %k = nn.constant dense<0.0> : tensor<16xf32>
    // expected-error @below {{breaks rule 'reduce-once': '@update' changes gradients only by reduce_gradients and gather_gradients}}
    fsdp.accumulate @a.flat, %k : tensor<16xf32>
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.gather_gradients [@a.flat]
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// An entry function has one block, so nothing in it is on a branch.
// expected-error @below {{expected a function 'microbatch' with a single block}}
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    "test.branch"()[^bb1, ^bb2] : () -> ()
  ^bb1:
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  ^bb2:
    return
  }
  func.func @update() { return }
}
