// Layouts without masters, from the option to the optimizer.
// RUN: fsdpc-opt %s --shard-parameters --mixed-precision --build-update --verify-shard | FileCheck %s

// The layouts in bf16, frozen ones too, lose their masters; that of a module of
// --keep-f32 has one, like its optimizer. The new parameter is rounded with the
// element's word before it enters the average.
// CHECK: fsdp.layout @a.flat of @a trainable elements 16 : bf16 no_master states 1 average {
// CHECK: fsdp.layout @a.flat.f32 of @a trainable elements 16 : f32 states 1 average {
// CHECK: fsdp.layout @a.frozen of @a elements 16 : bf16 no_master states 0 {
// CHECK: fsdp.optimizer @a.flat, %{{.*}} : tensor<f32> {
// CHECK-NEXT: ^bb0(%[[P:.*]]: f32, %{{.*}}: f32, %{{.*}}: f32, %{{.*}}: f64, %{{.*}}: f64, %{{.*}}: f64, %[[WORD:.*]]: i32):
// CHECK: %[[NEW:.*]] = arith.addf %[[P]],
// CHECK: %[[ROUNDED:.*]] = nn.round_stochastic %[[NEW]], %[[WORD]] : f32, i32
// CHECK: arith.subf %[[ROUNDED]],
// CHECK: fsdp.yield %[[ROUNDED]], %{{.*}} : f32, f32
// CHECK: fsdp.optimizer @a.flat.f32
// CHECK-NOT: round_stochastic
module attributes {fsdp.options = {"param-dtype" = "bf16", "master" = "none", "optimizer" = "sgd", "ema" = 0.9 : f64}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.parameter @n : tensor<16xf32> trainable unit @a {fsdp.keep_f32}
  fsdp.parameter @f : tensor<16xf32> unit @a
  fsdp.unit @a
  func.func @microbatch(%x: tensor<16xf32>) {
    %w = fsdp.load @w {fsdp.unit = @a} : tensor<16xf32>
    %n = fsdp.load @n {fsdp.unit = @a, fsdp.keep_f32} : tensor<16xf32>
    %f = fsdp.load @f {fsdp.unit = @a} : tensor<16xf32>
    %0 = nn.mul %w, %f {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %1 = nn.neg %n {fsdp.unit = @a, fsdp.backward, fsdp.keep_f32} : tensor<16xf32>
    fsdp.gradient @w, %0 {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.gradient @n, %1 {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
}
