// RUN: fsdpc-opt %s --convert-to-rt --verify-rt --split-input-file --verify-diagnostics | FileCheck %s

// The gather waits for compute, which may still read the memory that it fills,
// and the optimizer for the gather.
// CHECK-LABEL: func.func @update()
// CHECK: rt.clip
// CHECK-NEXT: rt.event_record compute 2
// CHECK-NEXT: rt.event_wait gather 2
// CHECK-NEXT: %[[G:.*]] = rt.pointer arena + 64 bytes 320
// CHECK-NEXT: rt.whole_gradient @a.flat -> %[[G]]
// CHECK-NEXT: rt.event_record gather 3
// CHECK-NEXT: rt.event_wait compute 3
// CHECK: rt.optimizer @{{.*}}(@a.flat, %{{.*}}) gradient %{{.*}}
module attributes {fsdp.arena = {bytes = 512 : i64}, fsdp.options = {strategy = "ddp", "max-accumulate" = 1 : i64, "max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "state"]}
  func.func @microbatch() { return }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] {fsdp.offsets = array<i64: 384>} : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {fsdp.offsets = array<i64: 0>, max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    %w = fsdp.whole_gradient @a.flat {fsdp.offsets = array<i64: 64>} : tensor<80xf32>
    fsdp.optimizer @a.flat, %c gradient %w : tensor<80xf32> : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// The padding of --max-ranks shards counts: here it leaves the arena.
module attributes {fsdp.arena = {bytes = 256 : i64}, fsdp.options = {strategy = "ddp", "max-accumulate" = 1 : i64, "max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "state"]}
  func.func @microbatch() { return }
  func.func @update() {
    // expected-error @below {{accesses memory up to byte 320 of an arena of 256 bytes}}
    %w = fsdp.whole_gradient @a.flat {fsdp.offsets = array<i64: 0>} : tensor<80xf32>
    return
  }
}
