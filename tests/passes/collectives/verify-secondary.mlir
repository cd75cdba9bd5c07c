// The rule `secondary` of verify-collectives: what a gather reads of secondary
// shards, an earlier gather of the same microbatch has kept.
// RUN: fsdpc-opt %s --verify-collectives --verify-diagnostics --split-input-file

// Kept in the forward, read in the backward.
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @w : tensor<16xf32> unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @b
  fsdp.layout @a.frozen of @a elements 16 : f32 states 0 secondary {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.frozen] keep_secondary {fsdp.unit = @a} : tensor<16xf32>
    %y = nn.mul %x, %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @b
    %g = fsdp.all_gather [@b.flat] {fsdp.unit = @b} : tensor<16xf32>
    %z = nn.mul %y, %g {fsdp.unit = @b} : tensor<16xf32>
    fsdp.free %g {fsdp.unit = @b} : tensor<16xf32>
    fsdp.exit @b
    fsdp.enter @b backward
    %p = fsdp.pack @b.flat(%z) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@b.flat], %p {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    fsdp.exit @b backward
    fsdp.enter @a backward
    %h = fsdp.all_gather [@a.frozen] from_secondary {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %d = nn.mul %z, %h {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.free %h {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@b.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@b.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// Read, and never kept.
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @w : tensor<16xf32> unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @b
  fsdp.layout @a.frozen of @a elements 16 : f32 states 0 secondary {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.frozen] {fsdp.unit = @a} : tensor<16xf32>
    %y = nn.mul %x, %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @b
    %g = fsdp.all_gather [@b.flat] {fsdp.unit = @b} : tensor<16xf32>
    %z = nn.mul %y, %g {fsdp.unit = @b} : tensor<16xf32>
    fsdp.free %g {fsdp.unit = @b} : tensor<16xf32>
    fsdp.exit @b
    fsdp.enter @b backward
    %p = fsdp.pack @b.flat(%z) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@b.flat], %p {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    fsdp.exit @b backward
    fsdp.enter @a backward
    // expected-error @below {{breaks rule 'secondary': no earlier gather keeps the secondary shard of layout 'a.frozen' that it reads}}
    %h = fsdp.all_gather [@a.frozen] from_secondary {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %d = nn.mul %z, %h {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.free %h {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@b.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@b.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// Kept too late: the shard is of the microbatch before, or of none.
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @w : tensor<16xf32> unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @b
  fsdp.layout @a.frozen of @a elements 16 : f32 states 0 secondary {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    // expected-error @below {{breaks rule 'secondary': no earlier gather keeps}}
    %f = fsdp.all_gather [@a.frozen] from_secondary {fsdp.unit = @a} : tensor<16xf32>
    %y = nn.mul %x, %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @b
    %g = fsdp.all_gather [@b.flat] {fsdp.unit = @b} : tensor<16xf32>
    %z = nn.mul %y, %g {fsdp.unit = @b} : tensor<16xf32>
    fsdp.free %g {fsdp.unit = @b} : tensor<16xf32>
    fsdp.exit @b
    fsdp.enter @b backward
    %p = fsdp.pack @b.flat(%z) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@b.flat], %p {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    fsdp.exit @b backward
    fsdp.enter @a backward
    %h = fsdp.all_gather [@a.frozen] keep_secondary {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %d = nn.mul %z, %h {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.free %h {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@b.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@b.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// Planned, and not kept.
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @w : tensor<16xf32> unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @b
  // expected-error @below {{breaks rule 'secondary': no gather of '@microbatch' keeps the secondary shard of layout 'a.frozen'}}
  fsdp.layout @a.frozen of @a elements 16 : f32 states 0 secondary {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.frozen] {fsdp.unit = @a} : tensor<16xf32>
    %y = nn.mul %x, %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @b
    %g = fsdp.all_gather [@b.flat] {fsdp.unit = @b} : tensor<16xf32>
    %z = nn.mul %y, %g {fsdp.unit = @b} : tensor<16xf32>
    fsdp.free %g {fsdp.unit = @b} : tensor<16xf32>
    fsdp.exit @b
    fsdp.enter @b backward
    %p = fsdp.pack @b.flat(%z) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@b.flat], %p {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    fsdp.exit @b backward
    fsdp.enter @a backward
    %h = fsdp.all_gather [@a.frozen] {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %d = nn.mul %z, %h {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.free %h {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@b.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@b.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// Only zero3 is cut over all ranks and gathered again.
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @w : tensor<16xf32> unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @b
  // expected-note @below {{the layout}}
  fsdp.layout @a.frozen of @a strategy "hybrid" elements 16 : f32 states 0 secondary {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    // expected-error @below {{breaks rule 'secondary': layout 'a.frozen' has a secondary shard, but is not gathered from all ranks}}
    %f = fsdp.all_gather [@a.frozen] keep_secondary {fsdp.unit = @a} : tensor<16xf32>
    %y = nn.mul %x, %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @b
    %g = fsdp.all_gather [@b.flat] {fsdp.unit = @b} : tensor<16xf32>
    %z = nn.mul %y, %g {fsdp.unit = @b} : tensor<16xf32>
    fsdp.free %g {fsdp.unit = @b} : tensor<16xf32>
    fsdp.exit @b
    fsdp.enter @b backward
    %p = fsdp.pack @b.flat(%z) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@b.flat], %p {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    fsdp.exit @b backward
    fsdp.enter @a backward
    %h = fsdp.all_gather [@a.frozen] from_secondary {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %d = nn.mul %z, %h {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.free %h {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@b.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@b.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}
