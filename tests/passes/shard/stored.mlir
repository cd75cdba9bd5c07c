// RUN: fsdpc-opt %s --shard-parameters --mixed-precision | FileCheck %s

// Stored parameters have a layout of bytes, of their own types and at multiples
// of 64 bytes. Mixed precision leaves them: what is computed from them meets
// bf16 in the product.
// CHECK: fsdp.layout @u.flat of @u trainable elements 64 : bf16
// CHECK: fsdp.layout @u.frozen.bytes of @u elements 96 : ui8 states 0
// CHECK-SAME: members = [#fsdp.member<@codes[0, 64] {{.*}}, #fsdp.member<@scales[64, 32] {{.*}}]
module attributes {fsdp.options = {"param-dtype" = "bf16"}} {
  fsdp.parameter @codes : tensor<8x8xi8> stored unit @u
  fsdp.parameter @scales : tensor<8x1xf32> stored unit @u
  fsdp.parameter @w : tensor<8x8xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch(%x: tensor<4x8xf32> {fsdp.input = "x"}) {
    // CHECK: %[[A:.*]] = fsdp.flat @u.frozen.bytes {{.*}} : tensor<96xui8>
    // CHECK-NEXT: %[[Q:.*]] = fsdp.view %[[A]][@codes at 0] {{.*}} : tensor<96xui8> -> tensor<8x8xi8>
    %q = fsdp.load @codes {fsdp.unit = @u} : tensor<8x8xi8>
    // CHECK: %[[B:.*]] = fsdp.flat @u.frozen.bytes
    // CHECK-NEXT: %[[S:.*]] = fsdp.view %[[B]][@scales at 64] {{.*}} : tensor<96xui8> -> tensor<8x1xf32>
    %s = fsdp.load @scales {fsdp.unit = @u} : tensor<8x1xf32>
    // CHECK: nn.cast %[[Q]] {{.*}} : tensor<8x8xi8> -> tensor<8x8xf32>
    %f = nn.cast %q {fsdp.unit = @u} : tensor<8x8xi8> -> tensor<8x8xf32>
    %r = nn.broadcast %s {fsdp.unit = @u} : tensor<8x1xf32> -> tensor<8x8xf32>
    // CHECK: %[[D:.*]] = nn.mul {{.*}} : tensor<8x8xf32>
    %d = nn.mul %f, %r {fsdp.unit = @u} : tensor<8x8xf32>
    %w = fsdp.load @w {fsdp.unit = @u} : tensor<8x8xf32>
    %y = nn.matmul %x, %w {fsdp.unit = @u} : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    // CHECK: nn.cast %[[D]] {{.*}} : tensor<8x8xf32> -> tensor<8x8xbf16>
    %z = nn.matmul %y, %d {fsdp.unit = @u} : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    %t = nn.reduce sum %z [0, 1] {fsdp.unit = @u} : tensor<4x8xf32> -> tensor<1x1xf32>
    %l = nn.reshape %t {fsdp.unit = @u} : tensor<1x1xf32> -> tensor<f32>
    fsdp.report_loss %l {fsdp.unit = @u} : tensor<f32>
    %g = nn.constant {fsdp.backward, fsdp.unit = @u} dense<0.0> : tensor<8x8xf32>
    fsdp.gradient @w, %g {fsdp.backward, fsdp.unit = @u} : tensor<8x8xf32>
    return
  }
}
