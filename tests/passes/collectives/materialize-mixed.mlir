// RUN: fsdpc-opt %s --materialize-collectives --verify-collectives --split-input-file | FileCheck %s

// Units of four strategies in one program.
module {
  fsdp.parameter @wa : tensor<16xf32> trainable unit @a
  fsdp.parameter @wb : tensor<16xf32> trainable unit @b
  fsdp.parameter @wc : tensor<16xf32> trainable unit @c
  fsdp.parameter @wd : tensor<16xf32> trainable unit @d
  fsdp.unit @a
  fsdp.unit @b
  fsdp.unit @c
  fsdp.unit @d
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b strategy "zero2" trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wb[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.layout @c.flat of @c strategy "zero1" trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wc[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.layout @d.flat of @d strategy "ddp" trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wd[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<16xf32>) {
    %fa = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<16xf32>
    %wa = fsdp.view %fa[@wa at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %ya = nn.mul %x, %wa {fsdp.unit = @a} : tensor<16xf32>
    %fb = fsdp.flat @b.flat {fsdp.unit = @b} : tensor<16xf32>
    %wb = fsdp.view %fb[@wb at 0] {fsdp.unit = @b} : tensor<16xf32> -> tensor<16xf32>
    %yb = nn.mul %ya, %wb {fsdp.unit = @b} : tensor<16xf32>
    %fc = fsdp.flat @c.flat {fsdp.unit = @c} : tensor<16xf32>
    %wc = fsdp.view %fc[@wc at 0] {fsdp.unit = @c} : tensor<16xf32> -> tensor<16xf32>
    %yc = nn.mul %yb, %wc {fsdp.unit = @c} : tensor<16xf32>
    %fd = fsdp.flat @d.flat {fsdp.unit = @d} : tensor<16xf32>
    %wd = fsdp.view %fd[@wd at 0] {fsdp.unit = @d} : tensor<16xf32> -> tensor<16xf32>
    %yd = nn.mul %yc, %wd {fsdp.unit = @d} : tensor<16xf32>
    %dd = nn.mul %yd, %wd {fsdp.unit = @d, fsdp.backward} : tensor<16xf32>
    %gd = fsdp.pack @d.flat(%dd) {fsdp.unit = @d, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @d.flat, %gd {fsdp.unit = @d, fsdp.backward} : tensor<16xf32>
    %dc = nn.mul %dd, %wc {fsdp.unit = @c, fsdp.backward} : tensor<16xf32>
    %gc = fsdp.pack @c.flat(%dc) {fsdp.unit = @c, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @c.flat, %gc {fsdp.unit = @c, fsdp.backward} : tensor<16xf32>
    %db = nn.mul %dc, %wb {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    %gb = fsdp.pack @b.flat(%db) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %gb {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    %da = nn.mul %db, %wa {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %ga = fsdp.pack @a.flat(%da) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %ga {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    // Only zero3's weights are gathered: once in the forward, once in the backward.
    // CHECK: fsdp.all_gather [@a.flat]
    // CHECK: fsdp.free
    // CHECK: fsdp.replicated @b.flat
    // CHECK: fsdp.replicated @c.flat
    // CHECK: fsdp.replicated @d.flat
    // CHECK: %[[GD:.*]] = fsdp.pack @d.flat
    // CHECK: %[[GC:.*]] = fsdp.pack @c.flat
    // zero2 and zero3 reduce a unit's gradients when they are packed.
    // CHECK: %[[GB:.*]] = fsdp.pack @b.flat
    // CHECK-NEXT: fsdp.reduce_scatter [@b.flat], %[[GB]] {fsdp.backward, fsdp.unit = @b}
    // CHECK: fsdp.all_gather [@a.flat]
    // CHECK: %[[GA:.*]] = fsdp.pack @a.flat
    // CHECK-NEXT: fsdp.reduce_scatter [@a.flat], %[[GA]] {fsdp.backward, fsdp.unit = @a}
    // zero1 and ddp share one reduction at the end.
    // CHECK-NEXT: fsdp.exit @a backward
    // CHECK-NEXT: fsdp.reduce_scatter [@d.flat, @c.flat], %[[GD]], %[[GC]] :
    // CHECK-NEXT: return
    return
  }
  // CHECK-LABEL: func.func @update
  func.func @update() {
    // Each gather of @update is of the layouts whose strategy wants it.
    // CHECK-NEXT: fsdp.sum_squares
    // CHECK: fsdp.gather_gradients [@d.flat]
    // CHECK-NEXT: fsdp.optimizer @a.flat
    // CHECK: fsdp.optimizer @d.flat
    // CHECK: fsdp.gather_parameters [@b.flat, @c.flat]
    // CHECK-NEXT: return
    %s = fsdp.sum_squares [@a.flat, @b.flat, @c.flat, @d.flat] : tensor<4x16xf64>
    %r = fsdp.all_reduce %s : tensor<4x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat, @c.flat, @d.flat], %r {max_norm = 0.0 : f64} : tensor<4x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @c.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @d.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// With --reduce=step all of them are reduced once a step.
module attributes {fsdp.options = {reduce = "step"}} {
  fsdp.parameter @wa : tensor<16xf32> trainable unit @a
  fsdp.parameter @wb : tensor<16xf32> trainable unit @b
  fsdp.parameter @wc : tensor<16xf32> trainable unit @c
  fsdp.parameter @wd : tensor<16xf32> trainable unit @d
  fsdp.unit @a
  fsdp.unit @b
  fsdp.unit @c
  fsdp.unit @d
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["gradient"]}
  fsdp.layout @b.flat of @b strategy "zero2" trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wb[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute", "gradient"]}
  fsdp.layout @c.flat of @c strategy "zero1" trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wc[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute", "gradient"]}
  fsdp.layout @d.flat of @d strategy "ddp" trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wd[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<16xf32>) {
    %fa = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<16xf32>
    %wa = fsdp.view %fa[@wa at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %ya = nn.mul %x, %wa {fsdp.unit = @a} : tensor<16xf32>
    %fb = fsdp.flat @b.flat {fsdp.unit = @b} : tensor<16xf32>
    %wb = fsdp.view %fb[@wb at 0] {fsdp.unit = @b} : tensor<16xf32> -> tensor<16xf32>
    %yb = nn.mul %ya, %wb {fsdp.unit = @b} : tensor<16xf32>
    %fc = fsdp.flat @c.flat {fsdp.unit = @c} : tensor<16xf32>
    %wc = fsdp.view %fc[@wc at 0] {fsdp.unit = @c} : tensor<16xf32> -> tensor<16xf32>
    %yc = nn.mul %yb, %wc {fsdp.unit = @c} : tensor<16xf32>
    %fd = fsdp.flat @d.flat {fsdp.unit = @d} : tensor<16xf32>
    %wd = fsdp.view %fd[@wd at 0] {fsdp.unit = @d} : tensor<16xf32> -> tensor<16xf32>
    %yd = nn.mul %yc, %wd {fsdp.unit = @d} : tensor<16xf32>
    %dd = nn.mul %yd, %wd {fsdp.unit = @d, fsdp.backward} : tensor<16xf32>
    %gd = fsdp.pack @d.flat(%dd) {fsdp.unit = @d, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @d.flat, %gd {fsdp.unit = @d, fsdp.backward} : tensor<16xf32>
    %dc = nn.mul %dd, %wc {fsdp.unit = @c, fsdp.backward} : tensor<16xf32>
    %gc = fsdp.pack @c.flat(%dc) {fsdp.unit = @c, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @c.flat, %gc {fsdp.unit = @c, fsdp.backward} : tensor<16xf32>
    %db = nn.mul %dc, %wb {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    %gb = fsdp.pack @b.flat(%db) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %gb {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    %da = nn.mul %db, %wa {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %ga = fsdp.pack @a.flat(%da) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %ga {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    // CHECK: fsdp.all_gather [@a.flat]
    // CHECK-NOT: fsdp.reduce_scatter
    // CHECK: fsdp.accumulate @d.flat
    // CHECK: fsdp.accumulate @c.flat
    // CHECK: fsdp.accumulate @b.flat
    // CHECK: fsdp.accumulate @a.flat
    // CHECK-NOT: fsdp.reduce_scatter
    return
  }
  // CHECK-LABEL: func.func @update
  func.func @update() {
    // CHECK-NEXT: fsdp.reduce_gradients [@a.flat, @b.flat, @c.flat, @d.flat]
    // CHECK-NEXT: fsdp.sum_squares
    // CHECK: fsdp.gather_gradients [@d.flat]
    // CHECK: fsdp.gather_parameters [@b.flat, @c.flat]
    %s = fsdp.sum_squares [@a.flat, @b.flat, @c.flat, @d.flat] : tensor<4x16xf64>
    %r = fsdp.all_reduce %s : tensor<4x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat, @c.flat, @d.flat], %r {max_norm = 0.0 : f64} : tensor<4x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @c.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    fsdp.optimizer @d.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}
