// --keep-f32 between form-units, which marks ops and parameters, and the types.
// RUN: fsdpc-opt %s --shard-parameters --split-input-file | FileCheck %s --check-prefix=LAYOUT
// RUN: fsdpc-opt %s --shard-parameters --mixed-precision --split-input-file | FileCheck %s

// A unit has a layout per type. The marked op is f32, between casts: of what it
// reads, and of its result, which its neighbour takes in bf16. The gradient of
// its parameter stays f32 up to the reduction.
// LAYOUT: fsdp.layout @u.flat of @u trainable elements 64 : f32
// LAYOUT-SAME: @w[0, 64]
// LAYOUT: fsdp.layout @u.flat.f32 of @u trainable elements 8 : f32
// LAYOUT-SAME: @n[0, 8]
// CHECK: fsdp.layout @u.flat of @u trainable elements 64 : bf16
// CHECK: fsdp.layout @u.flat.f32 of @u trainable elements 8 : f32
// CHECK-LABEL: func.func @microbatch
module attributes {fsdp.options = {"param-dtype" = "bf16", "keep-f32" = ["n"]}} {
  fsdp.parameter @w : tensor<8x8xf32> trainable unit @u
  fsdp.parameter @n : tensor<1x8xf32> trainable unit @u {fsdp.keep_f32}
  fsdp.unit @u
  func.func @microbatch(%x: tensor<4x8xf32>) {
    // CHECK: %[[Y:.*]] = nn.matmul {{.*}} -> tensor<4x8xbf16>
    %w = fsdp.load @w {fsdp.unit = @u} : tensor<8x8xf32>
    %y = nn.matmul %x, %w {fsdp.unit = @u} : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    // CHECK: fsdp.flat @u.flat.f32 {fsdp.unit = @u} : tensor<8xf32>
    %n = fsdp.load @n {fsdp.unit = @u, fsdp.keep_f32} : tensor<1x8xf32>
    %b = nn.broadcast %n {fsdp.unit = @u, fsdp.keep_f32} : tensor<1x8xf32> -> tensor<4x8xf32>
    // CHECK: %[[YC:.*]] = nn.cast %[[Y]] {fsdp.unit = @u} : tensor<4x8xbf16> -> tensor<4x8xf32>
    // CHECK: %[[Z:.*]] = nn.mul %[[YC]], %{{.*}} {fsdp.unit = @u} : tensor<4x8xf32>
    %z = nn.mul %y, %b {fsdp.unit = @u, fsdp.keep_f32} : tensor<4x8xf32>
    // CHECK: %[[ZC:.*]] = nn.cast %[[Z]] {fsdp.unit = @u} : tensor<4x8xf32> -> tensor<4x8xbf16>
    // CHECK: nn.matmul %[[ZC]], %{{.*}} -> tensor<4x8xbf16>
    %a = nn.matmul %z, %w {fsdp.unit = @u} : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    // CHECK: %[[AC:.*]] = nn.cast %{{.*}} {fsdp.backward, fsdp.unit = @u} : tensor<4x8xbf16> -> tensor<4x8xf32>
    // CHECK: %[[YB:.*]] = nn.cast %[[Y]] {fsdp.backward, fsdp.unit = @u} : tensor<4x8xbf16> -> tensor<4x8xf32>
    // CHECK: %[[P:.*]] = nn.mul %[[AC]], %[[YB]] {{.*}} : tensor<4x8xf32>
    %p = nn.mul %a, %y {fsdp.unit = @u, fsdp.backward, fsdp.keep_f32} : tensor<4x8xf32>
    // CHECK: %[[DN:.*]] = nn.reduce sum %[[P]] {{.*}} : tensor<4x8xf32> -> tensor<1x8xf32>
    %dn = nn.reduce sum %p [0] {fsdp.unit = @u, fsdp.backward, fsdp.keep_f32} : tensor<4x8xf32> -> tensor<1x8xf32>
    fsdp.gradient @n, %dn {fsdp.unit = @u, fsdp.backward} : tensor<1x8xf32>
    // CHECK: %[[PC:.*]] = nn.cast %[[P]] {fsdp.backward, fsdp.unit = @u} : tensor<4x8xf32> -> tensor<4x8xbf16>
    // CHECK: nn.matmul %{{.*}}, %[[PC]] {{.*}} -> tensor<8x8xbf16>
    %dw = nn.matmul %x, %p {transpose_a, fsdp.unit = @u, fsdp.backward} : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<8x8xf32>
    fsdp.gradient @w, %dw {fsdp.unit = @u, fsdp.backward} : tensor<8x8xf32>
    // CHECK-DAG: fsdp.pack @u.flat({{.*}}) {{.*}} : (tensor<8x8xbf16>) -> tensor<64xbf16>
    // CHECK-DAG: fsdp.pack @u.flat.f32(%[[DN]]) {{.*}} : (tensor<1x8xf32>) -> tensor<8xf32>
    // CHECK-DAG: fsdp.reduce @u.flat.f32, {{.*}} : tensor<8xf32>
    return
  }
}
