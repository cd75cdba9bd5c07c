// Each rule of verify-collectives for @update, broken. Those of the norm and the
// optimizers are verify-shard's too.
// RUN: fsdpc-opt %s --verify-collectives --verify-diagnostics --split-input-file --allow-unregistered-dialect

// @update takes the norm of the gradients.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  // expected-error @below {{breaks rule 'norm': it has no 'fsdp.sum_squares'}}
  func.func @update() { return }
}

// -----

// The norm is taken once.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    // expected-note @below {{the first is here}}
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    // expected-error @below {{breaks rule 'norm': it is the second one in '@update'}}
    %s2 = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
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

// It is of all trainable layouts.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.parameter @u : tensor<16xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // expected-note @below {{the layout}}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@u[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    %h = fsdp.pack @b.flat(%x) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@b.flat], %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    // expected-error @below {{breaks rule 'norm': it leaves out layout 'b.flat'}}
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

// No layout counts twice.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    // expected-error @below {{breaks rule 'norm': it names layout 'a.flat' twice}}
    %s = fsdp.sum_squares [@a.flat, @a.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @a.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// The ranks add up these sums,
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    %o = nn.constant dense<0.0> : tensor<1x16xf64>
    // expected-note @below {{the squares are summed here}}
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    // expected-error @below {{breaks rule 'norm': it does not sum the squares}}
    %r = fsdp.all_reduce %o : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// and the scale follows from what they add up.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    // expected-note @below {{the squares are summed here}}
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    // expected-error @below {{breaks rule 'norm': it does not take the sums of the same layouts in the same order}}
    %c = fsdp.clip_scale [@a.flat], %s {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// Each trainable layout has an optimizer.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  // expected-error @below {{breaks rule 'optimizer': layout 'a.flat' has no 'fsdp.optimizer' in '@update'}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    return
  }
}

// -----

// It has one.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    // expected-note @below {{the first is here}}
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    // expected-error @below {{breaks rule 'optimizer': it is the second one of layout 'a.flat'}}
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// The optimizer scales the gradient as the norm says.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    %o = nn.constant dense<1.0> : tensor<f32>
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    // expected-note @below {{the scale is computed here}}
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    // expected-error @below {{breaks rule 'optimizer': its scale is not that of the norm}}
    fsdp.optimizer @a.flat, %o : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// zero3 has no collective of layouts in @update.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    // expected-error @below {{breaks rule 'update': the strategies of layouts and --reduce do not want it}}
    fsdp.gather_parameters [@a.flat]
    return
  }
}

// -----

// zero2 gathers the updated parameters.
module attributes {fsdp.options = {strategy = "zero2"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %f = fsdp.replicated @a.flat {fsdp.unit = @a} : tensor<16xf32>
    fsdp.enter @a
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  // expected-error @below {{breaks rule 'update': it has no 'fsdp.gather_parameters'}}
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

// It does so once,
module attributes {fsdp.options = {strategy = "zero2"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %f = fsdp.replicated @a.flat {fsdp.unit = @a} : tensor<16xf32>
    fsdp.enter @a
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    // expected-note @below {{the first is here}}
    fsdp.gather_parameters [@a.flat]
    // expected-error @below {{breaks rule 'update': it is the second one}}
    fsdp.gather_parameters [@a.flat]
    return
  }
}

// -----

// and after the optimizers.
module attributes {fsdp.options = {strategy = "zero2"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %f = fsdp.replicated @a.flat {fsdp.unit = @a} : tensor<16xf32>
    fsdp.enter @a
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    // expected-note @below {{which stands here}}
    fsdp.gather_parameters [@a.flat]
    // expected-error @below {{breaks rule 'update': it must stand before 'fsdp.gather_parameters'}}
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// ddp gathers the gradients before the optimizers.
module attributes {fsdp.options = {strategy = "ddp"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %f = fsdp.replicated @a.flat {fsdp.unit = @a} : tensor<16xf32>
    fsdp.enter @a
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    // expected-note @below {{which stands here}}
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    // expected-error @below {{breaks rule 'update': it must stand before 'fsdp.optimizer'}}
    fsdp.gather_gradients [@a.flat]
    return
  }
}

// -----

// Accumulated gradients are reduced before the norm is taken.
module attributes {fsdp.options = {reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["gradient"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    // expected-note @below {{which stands here}}
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    // expected-error @below {{breaks rule 'update': it must stand before 'fsdp.sum_squares'}}
    fsdp.reduce_gradients [@a.flat]
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// No rank communicates on a condition.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    "test.if"() ({
      // expected-error @below {{breaks rule 'symmetric': it stands in a region, which ranks may run differently}}
      %r2 = fsdp.all_reduce %s : tensor<1x16xf64>
    }) : () -> ()
    return
  }
}

// -----

// With several strategies each gather is of the layouts whose strategy wants it.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.parameter @u : tensor<16xf32> trainable unit @b
  // expected-note @below {{the layout}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b strategy "zero2" trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@u[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %h = fsdp.pack @b.flat(%x) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@b.flat], %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    // expected-error @below {{breaks rule 'update': it names layout 'a.flat', whose strategy 'zero3' does not want it}}
    fsdp.gather_parameters [@a.flat, @b.flat]
    return
  }
}

// -----

module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.parameter @u : tensor<16xf32> trainable unit @b
  fsdp.layout @a.flat of @a strategy "zero1" trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  // expected-note @below {{the layout}}
  fsdp.layout @b.flat of @b strategy "zero2" trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@u[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %h = fsdp.pack @b.flat(%x) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@b.flat], %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    // expected-error @below {{breaks rule 'update': it leaves out layout 'b.flat'}}
    fsdp.gather_parameters [@a.flat]
    return
  }
}
