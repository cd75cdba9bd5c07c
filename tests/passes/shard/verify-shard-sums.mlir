// The rule `sums` of verify-shard: what optimizers take of whole parameters.
// RUN: fsdpc-opt %s --verify-shard --verify-diagnostics --split-input-file

// Each optimizer takes the sums of its own members, over all ranks.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.parameter @w : tensor<8xf32> trainable unit @a
  fsdp.unit @b
  fsdp.parameter @x : tensor<16xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 24 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@w[16, 8] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1>, whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1>, whole = []}
  func.func @microbatch(%x: tensor<16xf32>, %y: tensor<8xf32>) {
    %g = fsdp.pack @a.flat(%x, %y) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>, tensor<8xf32>) -> tensor<24xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<24xf32>
    %h = fsdp.pack @b.flat(%x) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    %n = fsdp.member_sums [@a.flat, @b.flat], %c : tensor<f32> -> tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      %wide = arith.extf %p : f32 to f64
      fsdp.yield %wide : f64
    }
    %t = fsdp.all_reduce %n : tensor<3x16xf64>
    fsdp.optimizer @a.flat, %c sums %t[0] : tensor<f32>, tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c sums %t[2] : tensor<f32>, tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// Sums of one rank alone would give each rank other parameters.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.parameter @w : tensor<8xf32> trainable unit @a
  fsdp.unit @b
  fsdp.parameter @x : tensor<16xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 24 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@w[16, 8] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1>, whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1>, whole = []}
  func.func @microbatch(%x: tensor<16xf32>, %y: tensor<8xf32>) {
    %g = fsdp.pack @a.flat(%x, %y) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>, tensor<8xf32>) -> tensor<24xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<24xf32>
    %h = fsdp.pack @b.flat(%x) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    %n = fsdp.member_sums [@a.flat, @b.flat], %c : tensor<f32> -> tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      %wide = arith.extf %p : f32 to f64
      fsdp.yield %wide : f64
    }
    // expected-error @below {{breaks rule 'sums': its sums are not an 'fsdp.all_reduce' of 'fsdp.member_sums'}}
    // expected-note @below {{the optimizer that takes the sums}}
    fsdp.optimizer @a.flat, %c sums %n[0] : tensor<f32>, tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c sums %n[2] : tensor<f32>, tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// The sums of other members would be read.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.parameter @w : tensor<8xf32> trainable unit @a
  fsdp.unit @b
  fsdp.parameter @x : tensor<16xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 24 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@w[16, 8] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1>, whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1>, whole = []}
  func.func @microbatch(%x: tensor<16xf32>, %y: tensor<8xf32>) {
    %g = fsdp.pack @a.flat(%x, %y) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>, tensor<8xf32>) -> tensor<24xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<24xf32>
    %h = fsdp.pack @b.flat(%x) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    %n = fsdp.member_sums [@a.flat, @b.flat], %c : tensor<f32> -> tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      %wide = arith.extf %p : f32 to f64
      fsdp.yield %wide : f64
    }
    %t = fsdp.all_reduce %n : tensor<3x16xf64>
    // expected-error @below {{breaks rule 'sums': the sums of its layout begin at 0, not at 1}}
    // expected-note @below {{the optimizer that takes the sums}}
    fsdp.optimizer @a.flat, %c sums %t[1] : tensor<f32>, tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c sums %t[2] : tensor<f32>, tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// The layout is one of those that are summed.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.parameter @w : tensor<8xf32> trainable unit @a
  fsdp.unit @b
  fsdp.parameter @x : tensor<16xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 24 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@w[16, 8] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1>, whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1>, whole = []}
  func.func @microbatch(%x: tensor<16xf32>, %y: tensor<8xf32>) {
    %g = fsdp.pack @a.flat(%x, %y) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>, tensor<8xf32>) -> tensor<24xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<24xf32>
    %h = fsdp.pack @b.flat(%x) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    // expected-error @below {{breaks rule 'sums': it leaves out layout 'b.flat'}}
    %n = fsdp.member_sums [@a.flat], %c : tensor<f32> -> tensor<2x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      %wide = arith.extf %p : f32 to f64
      fsdp.yield %wide : f64
    }
    %t = fsdp.all_reduce %n : tensor<2x16xf64>
    // expected-note @below {{the optimizer that takes the sums}}
    fsdp.optimizer @b.flat, %c sums %t[0] : tensor<f32>, tensor<2x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @a.flat, %c sums %t[0] : tensor<f32>, tensor<2x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// An optimizer takes all sums of a member.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.parameter @w : tensor<8xf32> trainable unit @a
  fsdp.unit @b
  fsdp.parameter @x : tensor<16xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 24 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@w[16, 8] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1>, whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1>, whole = []}
  func.func @microbatch(%x: tensor<16xf32>, %y: tensor<8xf32>) {
    %g = fsdp.pack @a.flat(%x, %y) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>, tensor<8xf32>) -> tensor<24xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<24xf32>
    %h = fsdp.pack @b.flat(%x) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    // expected-error @below {{breaks rule 'sums': it yields 2 sums, and the optimizer takes 1}}
    %n = fsdp.member_sums [@a.flat, @b.flat], %c : tensor<f32> -> tensor<6x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      %wide = arith.extf %p : f32 to f64
      fsdp.yield %wide, %lr : f64, f64
    }
    %t = fsdp.all_reduce %n : tensor<6x16xf64>
    // expected-note @below {{the optimizer that takes the sums}}
    fsdp.optimizer @a.flat, %c sums %t[0] : tensor<f32>, tensor<6x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c sums %t[4] : tensor<f32>, tensor<6x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// The gradients are scaled as the optimizers have them.
module attributes {fsdp.options = {"loss-scale" = "1024"}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.parameter @w : tensor<8xf32> trainable unit @a
  fsdp.unit @b
  fsdp.parameter @x : tensor<16xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 24 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@w[16, 8] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1>, whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1>, whole = []}
  func.func @microbatch(%x: tensor<16xf32>, %y: tensor<8xf32>) {
    %g = fsdp.pack @a.flat(%x, %y) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>, tensor<8xf32>) -> tensor<24xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<24xf32>
    %h = fsdp.pack @b.flat(%x) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    %o = fsdp.loss_scale : tensor<f32>
    // expected-error @below {{breaks rule 'sums': its scale is not that of the norm}}
    %n = fsdp.member_sums [@a.flat, @b.flat], %o : tensor<f32> -> tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      %wide = arith.extf %p : f32 to f64
      fsdp.yield %wide : f64
    }
    %t = fsdp.all_reduce %n : tensor<3x16xf64>
    // expected-note @below {{the optimizer that takes the sums}}
    fsdp.optimizer @a.flat, %c sums %t[0] : tensor<f32>, tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c sums %t[2] : tensor<f32>, tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// No sums are left over.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.parameter @w : tensor<8xf32> trainable unit @a
  fsdp.unit @b
  fsdp.parameter @x : tensor<16xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 24 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@w[16, 8] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1>, whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>, %y: tensor<8xf32>) {
    %g = fsdp.pack @a.flat(%x, %y) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>, tensor<8xf32>) -> tensor<24xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<24xf32>
    %h = fsdp.pack @b.flat(%x) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    // expected-error @below {{breaks rule 'sums': no optimizer takes its sums of layout 'b.flat', or it names the layout twice}}
    %n = fsdp.member_sums [@a.flat, @b.flat], %c : tensor<f32> -> tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      %wide = arith.extf %p : f32 to f64
      fsdp.yield %wide : f64
    }
    %t = fsdp.all_reduce %n : tensor<3x16xf64>
    fsdp.optimizer @a.flat, %c sums %t[0] : tensor<f32>, tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// They are added up over the ranks once.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.parameter @w : tensor<8xf32> trainable unit @a
  fsdp.unit @b
  fsdp.parameter @x : tensor<16xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 24 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@w[16, 8] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1>, whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1>, whole = []}
  func.func @microbatch(%x: tensor<16xf32>, %y: tensor<8xf32>) {
    %g = fsdp.pack @a.flat(%x, %y) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>, tensor<8xf32>) -> tensor<24xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<24xf32>
    %h = fsdp.pack @b.flat(%x) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    // expected-error @below {{breaks rule 'sums': its only use is not an 'fsdp.all_reduce'}}
    %n = fsdp.member_sums [@a.flat, @b.flat], %c : tensor<f32> -> tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      %wide = arith.extf %p : f32 to f64
      fsdp.yield %wide : f64
    }
    %t = fsdp.all_reduce %n : tensor<3x16xf64>
    %u = fsdp.all_reduce %n : tensor<3x16xf64>
    fsdp.optimizer @a.flat, %c sums %t[0] : tensor<f32>, tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c sums %t[2] : tensor<f32>, tensor<3x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// The memory plan and the runtime ask the layout what its optimizer takes.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  // expected-note @below {{the layout}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 2>, whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    %n = fsdp.member_sums [@a.flat], %c : tensor<f32> -> tensor<1x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      %wide = arith.extf %p : f32 to f64
      fsdp.yield %wide : f64
    }
    %t = fsdp.all_reduce %n : tensor<1x16xf64>
    // expected-error @below {{breaks rule 'optimizer': it takes 1 sums of a parameter, but the 'optimizer' of layout 'a.flat' says 2 sums}}
    fsdp.optimizer @a.flat, %c sums %t[0] : tensor<f32>, tensor<1x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// One that says nothing takes nothing, and one that takes nothing says so.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<2x8xf32> trainable unit @a
  // expected-note @below {{the layout}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = ["m"], orthogonal = true>, whole = []}
  func.func @microbatch(%x: tensor<2x8xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<2x8xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    // expected-error @below {{breaks rule 'optimizer': it takes 0 sums of a parameter, but the 'optimizer' of layout 'a.flat' says 0 sums, updates}}
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %m0: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p, %m0 : f32, f32
    }
    return
  }
}
