// The gathers of updated parameters on GPUs.
// RUN: fsdpc-opt %s --convert-to-rt --elide-events --verify-rt | FileCheck %s

// On a GPU what @update gathers at its end is gathered by the next forward: a
// unit's layouts together, in the order in which compute reads units, each of
// which waits in front of its first reader. A unit without a reader has no wait.
// CHECK-LABEL: func.func @microbatch()
// CHECK-NEXT: %[[B:.*]] = rt.pointer whole @b.flat + 0 bytes 64
// CHECK-NEXT: rt.all_gather [@b.flat] -> %[[B]] {fsdp.unit = @b}
// CHECK-NEXT: rt.event_record gather 0
// CHECK-NEXT: %[[A:.*]] = rt.pointer whole @a.flat + 0 bytes 64
// CHECK-NEXT: rt.all_gather [@a.flat] -> %[[A]] {fsdp.unit = @a}
// CHECK-NEXT: rt.event_record gather 1
// CHECK-NEXT: %[[C:.*]] = rt.pointer whole @c.flat + 0 bytes 64
// CHECK-NEXT: rt.all_gather [@c.flat] -> %[[C]] {fsdp.unit = @c}
// CHECK-NOT: rt.event_record
// CHECK: rt.event_wait compute 0
// CHECK-NEXT: rt.matmul
// CHECK: rt.event_wait compute 1
// CHECK-NEXT: rt.matmul
// CHECK-LABEL: func.func @update()
// CHECK-NEXT: return
module attributes {fsdp.arena = {bytes = 512 : i64}, fsdp.options = {"max-ranks" = 2 : i64, strategy = "zero2", target = "cuda-emulation"}} {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.unit @c
  fsdp.parameter @u : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @b
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @c
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@u[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.layout @c.flat of @c trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %b = fsdp.replicated @b.flat : tensor<16xf32>
    %v = fsdp.view %b[@v at 0] : tensor<16xf32> -> tensor<4x4xf32>
    %y = nn.matmul %x, %v {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %a = fsdp.replicated @a.flat : tensor<16xf32>
    %u = fsdp.view %a[@u at 0] : tensor<16xf32> -> tensor<4x4xf32>
    %z = nn.matmul %y, %u {fsdp.offsets = array<i64: 64>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
  func.func @update() {
    fsdp.gather_parameters [@a.flat, @b.flat, @c.flat]
    return
  }
}
