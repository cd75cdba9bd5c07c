// RUN: fsdpc-opt %s --shard-parameters | FileCheck %s

// A unit has as many layouts as --layout-size asks for: members join the last
// layout while it has room, and a larger parameter has one of its own. Each is
// packed and reduced behind the last of its own gradients.
// CHECK: fsdp.layout @u.flat of @u trainable elements 20 {{.*}}[#fsdp.member<@a[0, 4]{{.*}}>, #fsdp.member<@b[16, 4]{{.*}}>]
// CHECK: fsdp.layout @u.flat.part1 of @u trainable elements 64 {{.*}}[#fsdp.member<@c[0, 64]{{.*}}>]
// CHECK: fsdp.layout @u.flat.part2 of @u trainable elements 4 {{.*}}[#fsdp.member<@d[0, 4]{{.*}}>]
// Frozen members are cut by themselves.
// CHECK: fsdp.layout @u.frozen of @u elements 8 {{.*}}[#fsdp.member<@f[0, 8]{{.*}}>]
// CHECK-NOT: fsdp.layout
module attributes {fsdp.options = {"layout-size" = 32 : i64}} {
  fsdp.parameter @a : tensor<4xf32> trainable unit @u
  fsdp.parameter @b : tensor<4xf32> trainable unit @u
  fsdp.parameter @c : tensor<64xf32> trainable unit @u
  fsdp.parameter @d : tensor<4xf32> trainable unit @u
  fsdp.parameter @f : tensor<8xf32> unit @u
  fsdp.unit @u
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<4xf32>, %y: tensor<64xf32>) {
    // CHECK: fsdp.pack @u.flat.part2(
    // CHECK-NEXT: fsdp.reduce @u.flat.part2,
    // CHECK: nn.neg %arg1
    // CHECK-NEXT: fsdp.pack @u.flat.part1(
    // CHECK-NEXT: fsdp.reduce @u.flat.part1,
    // CHECK: fsdp.pack @u.flat(
    // CHECK-NEXT: fsdp.reduce @u.flat,
    %d = nn.neg %x {fsdp.unit = @u} : tensor<4xf32>
    fsdp.gradient @d, %d {fsdp.unit = @u} : tensor<4xf32>
    %c = nn.neg %y {fsdp.unit = @u} : tensor<64xf32>
    fsdp.gradient @c, %c {fsdp.unit = @u} : tensor<64xf32>
    %b = nn.neg %x {fsdp.unit = @u} : tensor<4xf32>
    fsdp.gradient @b, %b {fsdp.unit = @u} : tensor<4xf32>
    %a = nn.neg %x {fsdp.unit = @u} : tensor<4xf32>
    fsdp.gradient @a, %a {fsdp.unit = @u} : tensor<4xf32>
    return
  }
}
