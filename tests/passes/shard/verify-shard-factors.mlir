// The rule `factors` of verify-shard: averages of rows and columns of parameters.
// RUN: fsdpc-opt %s --verify-shard --verify-diagnostics --split-input-file

// Each optimizer takes the factors of its own members, from the sums of all ranks.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<2x8xf32> trainable unit @a
  fsdp.buffer @v.row_var : tensor<2x1xf32> state {rule = "zeros"}
  fsdp.buffer @v.col_var : tensor<1x8xf32> state {rule = "zeros"}
  fsdp.unit @b
  fsdp.parameter @x : tensor<16xf32> trainable unit @b
  fsdp.buffer @x.variance : tensor<16xf32> state {rule = "zeros"}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1, factored = true>, whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1, factored = true>, whole = []}
  func.func @microbatch(%x: tensor<2x8xf32>, %y: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<2x8xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %h = fsdp.pack @b.flat(%y) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    %n = fsdp.factor_sums [@a.flat, @b.flat], %c {clip_value = 0.0 : f64} : tensor<f32> -> tensor<32xf64>
    %t = fsdp.all_reduce %n : tensor<32xf64>
    %f = fsdp.update_factors [@a.flat, @b.flat], %t {eps = 0.0 : f64, power = -1.0 : f64} : tensor<32xf64> -> tensor<26xf64>
    %m = fsdp.member_sums [@a.flat, @b.flat], %c factors %f : tensor<f32>, tensor<26xf64> -> tensor<2x16xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %decay : f64
    }
    %u = fsdp.all_reduce %m : tensor<2x16xf64>
    fsdp.optimizer @a.flat, %c sums %u[0] factors %f[0] : tensor<f32>, tensor<2x16xf64>, tensor<26xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c sums %u[1] factors %f[10] : tensor<f32>, tensor<2x16xf64>, tensor<26xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// Sums of one rank alone would give each rank other parameters.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<2x8xf32> trainable unit @a
  fsdp.buffer @v.row_var : tensor<2x1xf32> state {rule = "zeros"}
  fsdp.buffer @v.col_var : tensor<1x8xf32> state {rule = "zeros"}
  fsdp.unit @b
  fsdp.parameter @x : tensor<16xf32> trainable unit @b
  fsdp.buffer @x.variance : tensor<16xf32> state {rule = "zeros"}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1, factored = true>, whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1, factored = true>, whole = []}
  func.func @microbatch(%x: tensor<2x8xf32>, %y: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<2x8xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %h = fsdp.pack @b.flat(%y) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    %n = fsdp.factor_sums [@a.flat, @b.flat], %c {clip_value = 0.0 : f64} : tensor<f32> -> tensor<32xf64>
    // expected-error@+1 {{breaks rule 'factors': its sums are not an 'fsdp.all_reduce' of 'fsdp.factor_sums'}}
    %f = fsdp.update_factors [@a.flat, @b.flat], %n {eps = 0.0 : f64, power = -1.0 : f64} : tensor<32xf64> -> tensor<26xf64>
    %m = fsdp.member_sums [@a.flat, @b.flat], %c factors %f : tensor<f32>, tensor<26xf64> -> tensor<2x16xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %decay : f64
    }
    %u = fsdp.all_reduce %m : tensor<2x16xf64>
    // expected-note@+1 {{the op that takes the factors}}
    fsdp.optimizer @a.flat, %c sums %u[0] factors %f[0] : tensor<f32>, tensor<2x16xf64>, tensor<26xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c sums %u[1] factors %f[10] : tensor<f32>, tensor<2x16xf64>, tensor<26xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// The sums themselves are no averages, though those of vectors are as many.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.buffer @v.variance : tensor<16xf32> state {rule = "zeros"}
  fsdp.unit @b
  fsdp.parameter @x : tensor<16xf32> trainable unit @b
  fsdp.buffer @x.variance : tensor<16xf32> state {rule = "zeros"}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1, factored = true>, whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1, factored = true>, whole = []}
  func.func @microbatch(%x: tensor<16xf32>, %y: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %h = fsdp.pack @b.flat(%y) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    %n = fsdp.factor_sums [@a.flat, @b.flat], %c {clip_value = 0.0 : f64} : tensor<f32> -> tensor<32xf64>
    %f = fsdp.all_reduce %n : tensor<32xf64>
    %m = fsdp.member_sums [@a.flat, @b.flat], %c factors %f : tensor<f32>, tensor<32xf64> -> tensor<2x16xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %decay : f64
    }
    %u = fsdp.all_reduce %m : tensor<2x16xf64>
    // expected-error@+2 {{breaks rule 'factors': its factors are not an 'fsdp.update_factors'}}
    // expected-note@+1 {{the op that takes the factors}}
    fsdp.optimizer @a.flat, %c sums %u[0] factors %f[0] : tensor<f32>, tensor<2x16xf64>, tensor<32xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c sums %u[1] factors %f[16] : tensor<f32>, tensor<2x16xf64>, tensor<32xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// Factors lie in the order of the sums.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<2x8xf32> trainable unit @a
  fsdp.buffer @v.row_var : tensor<2x1xf32> state {rule = "zeros"}
  fsdp.buffer @v.col_var : tensor<1x8xf32> state {rule = "zeros"}
  fsdp.unit @b
  fsdp.parameter @x : tensor<16xf32> trainable unit @b
  fsdp.buffer @x.variance : tensor<16xf32> state {rule = "zeros"}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1, factored = true>, whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1, factored = true>, whole = []}
  func.func @microbatch(%x: tensor<2x8xf32>, %y: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<2x8xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %h = fsdp.pack @b.flat(%y) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    %n = fsdp.factor_sums [@a.flat, @b.flat], %c {clip_value = 0.0 : f64} : tensor<f32> -> tensor<32xf64>
    %t = fsdp.all_reduce %n : tensor<32xf64>
    // expected-error@+1 {{breaks rule 'factors': it does not have the layouts of its sums in their order}}
    %f = fsdp.update_factors [@b.flat, @a.flat], %t {eps = 0.0 : f64, power = -1.0 : f64} : tensor<32xf64> -> tensor<26xf64>
    %m = fsdp.member_sums [@a.flat, @b.flat], %c factors %f : tensor<f32>, tensor<26xf64> -> tensor<2x16xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %decay : f64
    }
    %u = fsdp.all_reduce %m : tensor<2x16xf64>
    // expected-note@+1 {{the op that takes the factors}}
    fsdp.optimizer @a.flat, %c sums %u[0] factors %f[0] : tensor<f32>, tensor<2x16xf64>, tensor<26xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c sums %u[1] factors %f[10] : tensor<f32>, tensor<2x16xf64>, tensor<26xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// An optimizer that took those of another layout would read other parameters' averages.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<2x8xf32> trainable unit @a
  fsdp.buffer @v.row_var : tensor<2x1xf32> state {rule = "zeros"}
  fsdp.buffer @v.col_var : tensor<1x8xf32> state {rule = "zeros"}
  fsdp.unit @b
  fsdp.parameter @x : tensor<16xf32> trainable unit @b
  fsdp.buffer @x.variance : tensor<16xf32> state {rule = "zeros"}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1, factored = true>, whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1, factored = true>, whole = []}
  func.func @microbatch(%x: tensor<2x8xf32>, %y: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<2x8xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %h = fsdp.pack @b.flat(%y) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    %n = fsdp.factor_sums [@a.flat, @b.flat], %c {clip_value = 0.0 : f64} : tensor<f32> -> tensor<32xf64>
    %t = fsdp.all_reduce %n : tensor<32xf64>
    %f = fsdp.update_factors [@a.flat, @b.flat], %t {eps = 0.0 : f64, power = -1.0 : f64} : tensor<32xf64> -> tensor<26xf64>
    %m = fsdp.member_sums [@a.flat, @b.flat], %c factors %f : tensor<f32>, tensor<26xf64> -> tensor<2x16xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %decay : f64
    }
    %u = fsdp.all_reduce %m : tensor<2x16xf64>
    // expected-error@+1 {{breaks rule 'factors': the factors of its layout begin at 0, not at 10}}
    fsdp.optimizer @a.flat, %c sums %u[0] factors %f[10] : tensor<f32>, tensor<2x16xf64>, tensor<26xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c sums %u[1] factors %f[10] : tensor<f32>, tensor<2x16xf64>, tensor<26xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// A second update of the averages would forget twice.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<2x8xf32> trainable unit @a
  fsdp.buffer @v.row_var : tensor<2x1xf32> state {rule = "zeros"}
  fsdp.buffer @v.col_var : tensor<1x8xf32> state {rule = "zeros"}
  fsdp.unit @b
  fsdp.parameter @x : tensor<16xf32> trainable unit @b
  fsdp.buffer @x.variance : tensor<16xf32> state {rule = "zeros"}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1, factored = true>, whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = [], sums = 1, factored = true>, whole = []}
  func.func @microbatch(%x: tensor<2x8xf32>, %y: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<2x8xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %h = fsdp.pack @b.flat(%y) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %h {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    %n = fsdp.factor_sums [@a.flat, @b.flat], %c {clip_value = 0.0 : f64} : tensor<f32> -> tensor<32xf64>
    %t = fsdp.all_reduce %n : tensor<32xf64>
    %f = fsdp.update_factors [@a.flat, @b.flat], %t {eps = 0.0 : f64, power = -1.0 : f64} : tensor<32xf64> -> tensor<26xf64>
    %m = fsdp.member_sums [@a.flat, @b.flat], %c factors %f : tensor<f32>, tensor<26xf64> -> tensor<2x16xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %decay : f64
    }
    %u = fsdp.all_reduce %m : tensor<2x16xf64>
    fsdp.optimizer @a.flat, %c sums %u[0] factors %f[0] : tensor<f32>, tensor<2x16xf64>, tensor<26xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c sums %u[1] factors %f[10] : tensor<f32>, tensor<2x16xf64>, tensor<26xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
      fsdp.yield %p : f32
    }
    %n2 = fsdp.factor_sums [@a.flat, @b.flat], %c {clip_value = 0.0 : f64} : tensor<f32> -> tensor<32xf64>
    %t2 = fsdp.all_reduce %n2 : tensor<32xf64>
    // expected-error@+1 {{breaks rule 'factors': it updates those of layout 'a.flat' a second time}}
    %f2 = fsdp.update_factors [@a.flat, @b.flat], %t2 {eps = 0.0 : f64, power = -1.0 : f64} : tensor<32xf64> -> tensor<26xf64>
    return
  }
}
