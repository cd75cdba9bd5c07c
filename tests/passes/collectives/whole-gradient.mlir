// RUN: fsdpc-opt %s --materialize-collectives --verify-collectives --split-input-file | FileCheck %s

// With --max-accumulate=1 a rank keeps its part of a gradient under ddp as well,
// and each optimizer reads a whole one that is gathered directly before it. The
// layouts share one reduction, as under ddp without the flag.
module attributes {fsdp.options = {strategy = "ddp", "max-accumulate" = 1 : i64, "max-ranks" = 2 : i64}} {
  fsdp.parameter @wa : tensor<16xf32> trainable unit @a
  fsdp.parameter @wb : tensor<16xf32> trainable unit @b
  fsdp.unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "state"]}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wb[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "state"]}
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<16xf32>) {
    %fa = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<16xf32>
    %wa = fsdp.view %fa[@wa at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %da = nn.mul %x, %wa {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %ga = fsdp.pack @a.flat(%da) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %ga {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %gb = fsdp.pack @b.flat(%x) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %gb {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    // CHECK: fsdp.reduce_scatter [@a.flat, @b.flat]
    // CHECK-NEXT: return
    return
  }
  // CHECK-LABEL: func.func @update
  func.func @update() {
    // CHECK: %[[C:.*]] = fsdp.clip_scale
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    // The elements of the layout, and the padding of 2 shards of 32 elements.
    // CHECK-NEXT: %[[A:.*]] = fsdp.whole_gradient @a.flat : tensor<80xf32>
    // CHECK-NEXT: fsdp.optimizer @a.flat, %[[C]] gradient %[[A]] : tensor<80xf32> : tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    // CHECK: %[[B:.*]] = fsdp.whole_gradient @b.flat : tensor<80xf32>
    // CHECK-NEXT: fsdp.optimizer @b.flat, %[[C]] gradient %[[B]] : tensor<80xf32> : tensor<f32>
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    // CHECK-NOT: fsdp.gather
    return
  }
}

// -----

// A layout that --keep-f32 leaves in f32 is padded as those of the compute type:
// to 64 elements per shard beside bf16.
module attributes {fsdp.options = {strategy = "ddp", "max-accumulate" = 1 : i64, "max-ranks" = 2 : i64, "param-dtype" = "bf16", "keep-f32" = ["n"]}} {
  fsdp.parameter @n : tensor<16xf32> trainable unit @a {fsdp.keep_f32}
  fsdp.unit @a
  fsdp.layout @a.flat.f32 of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@n[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat.f32(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat.f32, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  // CHECK-LABEL: func.func @update
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat.f32] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat.f32], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    // CHECK: fsdp.whole_gradient @a.flat.f32 : tensor<144xf32>
    fsdp.optimizer @a.flat.f32, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}
