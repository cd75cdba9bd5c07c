// RUN: fsdpc-opt %s --shard-parameters | FileCheck %s

// Under oss each trainable parameter is a layout, so that one rank can own it.
// Each is packed behind its own gradient. Frozen ones have nothing to own.
// CHECK: fsdp.layout @u.flat of @u trainable elements 4 {{.*}}[#fsdp.member<@a[0, 4]{{.*}}>], {{.*}}whole = ["compute"]
// CHECK: fsdp.layout @u.flat.part1 of @u trainable elements 64 {{.*}}[#fsdp.member<@b[0, 64]{{.*}}>], {{.*}}whole = ["compute"]
// CHECK: fsdp.layout @u.frozen of @u elements 24 {{.*}}[#fsdp.member<@f[0, 8]{{.*}}>, #fsdp.member<@g[16, 8]{{.*}}>], whole = ["compute"]
// CHECK-NOT: fsdp.layout
module attributes {fsdp.options = {strategy = "oss"}} {
  fsdp.parameter @a : tensor<4xf32> trainable unit @u
  fsdp.parameter @b : tensor<64xf32> trainable unit @u
  fsdp.parameter @f : tensor<8xf32> unit @u
  fsdp.parameter @g : tensor<8xf32> unit @u
  fsdp.unit @u
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<4xf32>, %y: tensor<64xf32>) {
    // CHECK: fsdp.pack @u.flat.part1(
    // CHECK-NEXT: fsdp.reduce @u.flat.part1,
    // CHECK: nn.neg %arg0
    // CHECK-NEXT: fsdp.pack @u.flat(
    // CHECK-NEXT: fsdp.reduce @u.flat,
    %b = nn.neg %y {fsdp.unit = @u} : tensor<64xf32>
    fsdp.gradient @b, %b {fsdp.unit = @u} : tensor<64xf32>
    %a = nn.neg %x {fsdp.unit = @u} : tensor<4xf32>
    fsdp.gradient @a, %a {fsdp.unit = @u} : tensor<4xf32>
    return
  }
}
