// --layout=parameter: each parameter is cut over ranks by itself, frozen ones too,
// and a unit has one gather and one reduction all the same.
// RUN: fsdpc-opt %s --shard-parameters | FileCheck %s
// RUN: fsdpc-opt %s --shard-parameters --build-update --materialize-collectives --fuse-small-collectives | FileCheck %s --check-prefix=JOINED

// CHECK: fsdp.layout @u.flat of @u trainable elements 16 {{.*}}@w[0, 16]
// CHECK: fsdp.layout @u.flat.part1 of @u trainable elements 64 {{.*}}@v[0, 64]
// CHECK: fsdp.layout @u.frozen of @u elements 64 {{.*}}@f[0, 64]
// CHECK: fsdp.pack @u.flat
// CHECK: fsdp.pack @u.flat.part1
// JOINED: fsdp.all_gather [@u.flat, @u.flat.part1, @u.frozen]
// JOINED-NOT: fsdp.all_gather
// JOINED: fsdp.reduce_scatter [@u.flat, @u.flat.part1]
// JOINED-NOT: fsdp.reduce_scatter
module attributes {fsdp.options = {layout = "parameter", optimizer = "sgd"}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @u
  fsdp.parameter @v : tensor<64xf32> trainable unit @u
  fsdp.parameter @f : tensor<64xf32> unit @u
  fsdp.unit @u
  func.func @microbatch(%x: tensor<16xf32>) {
    %w = fsdp.load @w {fsdp.unit = @u} : tensor<16xf32>
    %v = fsdp.load @v {fsdp.unit = @u} : tensor<64xf32>
    %f = fsdp.load @f {fsdp.unit = @u} : tensor<64xf32>
    %0 = nn.mul %w, %x {fsdp.unit = @u} : tensor<16xf32>
    %1 = nn.mul %v, %f {fsdp.unit = @u} : tensor<64xf32>
    fsdp.gradient @w, %0 {fsdp.unit = @u, fsdp.backward} : tensor<16xf32>
    fsdp.gradient @v, %1 {fsdp.unit = @u, fsdp.backward} : tensor<64xf32>
    return
  }
}
