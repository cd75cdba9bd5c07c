// Optimizers of whole parameters whose layouts have no masters.
// RUN: fsdpc-opt %s --shard-parameters --mixed-precision --build-update --verify-shard | FileCheck %s

// A program of sums reads parameters as they are in memory, so the layouts with
// masters and those without have sums of their own, and an all-reduce each.
// CHECK: %[[F32:.*]] = fsdp.member_sums [@a.flat.f32], %{{.*}} {
// CHECK-NEXT: ^bb0(%{{.*}}: f32, %{{.*}}: f32,
// CHECK: %[[ALL_F32:.*]] = fsdp.all_reduce %[[F32]]
// CHECK: %[[BF16:.*]] = fsdp.member_sums [@a.flat], %{{.*}} {
// CHECK-NEXT: ^bb0(%[[P:.*]]: bf16, %{{.*}}: f32,
// CHECK-NEXT: arith.extf %[[P]] : bf16 to f32
// CHECK: %[[ALL_BF16:.*]] = fsdp.all_reduce %[[BF16]]
// CHECK: fsdp.optimizer @a.flat, %{{.*}} sums %[[ALL_BF16]][0]
// CHECK-NEXT: ^bb0(%{{.*}}: f32, {{.*}}: i32):
// CHECK: fsdp.optimizer @a.flat.f32, %{{.*}} sums %[[ALL_F32]][0]
module attributes {fsdp.options = {"param-dtype" = "bf16", "master" = "none", "optimizer" = "lars"}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.parameter @n : tensor<16xf32> trainable unit @a {fsdp.keep_f32}
  fsdp.unit @a
  func.func @microbatch(%x: tensor<16xf32>) {
    %w = fsdp.load @w {fsdp.unit = @a} : tensor<16xf32>
    %n = fsdp.load @n {fsdp.unit = @a, fsdp.keep_f32} : tensor<16xf32>
    %0 = nn.neg %w {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %1 = nn.neg %n {fsdp.unit = @a, fsdp.backward, fsdp.keep_f32} : tensor<16xf32>
    fsdp.gradient @w, %0 {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.gradient @n, %1 {fsdp.unit = @a, fsdp.backward, fsdp.keep_f32} : tensor<16xf32>
    return
  }
}
