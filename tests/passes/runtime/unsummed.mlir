// RUN: fsdpc-opt %s --convert-to-rt --verify-rt | FileCheck %s

// The product writes a gradient to which nothing is added to the layout's
// memory, and the optimizer reads it there, in its type.
// CHECK-LABEL: func.func @microbatch()
// CHECK: %[[G:.*]] = rt.pointer gradient @a.flat + 0 bytes 32
// CHECK: rt.matmul {{.*}}%[[G]]
// CHECK: %[[P:.*]] = rt.pointer gradient @a.flat + 0 bytes 32
// CHECK: rt.reduce_scatter [@a.flat], %[[P]]
// CHECK-LABEL: func.func private @optimizer
// CHECK-SAME: nn.gradient = bf16
module attributes {fsdp.arena = {bytes = 512 : i64}, fsdp.options = {"max-accumulate" = 1 : i64, "max-ranks" = 1 : i64, "param-dtype" = "bf16"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : bf16 states 0 {
    fsdp.unsummed, members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xbf16> {fsdp.input = "x"}) {
    %w = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xbf16>, tensor<4x4xbf16> -> tensor<4x4xbf16>
    %g = fsdp.pack @a.flat(%w) {fsdp.offsets = array<i64: 0>} : (tensor<4x4xbf16>) -> tensor<16xbf16>
    %t = fsdp.reduce_scatter_start [@a.flat], %g : tensor<16xbf16>
    fsdp.reduce_scatter_wait %t
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] {fsdp.offsets = array<i64: 384>} : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {fsdp.offsets = array<i64: 0>, max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}
