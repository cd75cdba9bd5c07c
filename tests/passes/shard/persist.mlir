// RUN: fsdpc-opt %s --shard-parameters --verify-diagnostics --split-input-file | FileCheck %s

// In a unit of zero3, parameters below --persist have a layout of their own that
// stays whole, trainable and frozen ones apart, and ignored parameters one that
// is as under ddp. The unit's own layouts come first.
// CHECK: fsdp.layout @u.flat of @u trainable {{.*}}members = [#fsdp.member<@w[0, 16]{{.*}}>]{{.*}}, whole = []
// CHECK: fsdp.layout @u.flat.ddp of @u strategy "ddp" trainable {{.*}}members = [#fsdp.member<@i[0, 4]{{.*}}>]{{.*}}, whole = ["master", "compute", "gradient", "state"]
// CHECK: fsdp.layout @u.flat.zero2 of @u strategy "zero2" trainable {{.*}}members = [#fsdp.member<@b[0, 15]{{.*}}>, #fsdp.member<@c[16, 4]{{.*}}>]{{.*}}, whole = ["compute"]
// CHECK: fsdp.layout @u.frozen.zero2 of @u strategy "zero2" elements {{.*}}members = [#fsdp.member<@f[0, 8]{{.*}}>]{{.*}}, whole = ["compute"]
// A unit that is not gathered has nothing to keep.
// CHECK: fsdp.layout @v.flat of @v strategy "zero1" trainable {{.*}}members = [#fsdp.member<@d[0, 4]{{.*}}>]{{.*}}, whole = ["compute"]
// CHECK-NOT: fsdp.layout
module attributes {fsdp.options = {persist = 16 : i64, ignored = ["^i$"], "strategy-of" = ["v=zero1"]}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @u
  fsdp.parameter @b : tensor<15xf32> trainable unit @u
  fsdp.parameter @c : tensor<4xf32> trainable unit @u
  fsdp.parameter @i : tensor<4xf32> trainable unit @u
  fsdp.parameter @f : tensor<8xf32> unit @u
  fsdp.parameter @d : tensor<4xf32> trainable unit @v
  fsdp.unit @u
  fsdp.unit @v
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%dw: tensor<16xf32>, %db: tensor<15xf32>, %dc: tensor<4xf32>, %di: tensor<4xf32>, %dd: tensor<4xf32>) {
    // CHECK: fsdp.flat @u.flat.zero2
    // CHECK-NEXT: fsdp.view %{{.*}}[@b at 0]
    %b = fsdp.load @b {fsdp.unit = @u} : tensor<15xf32>
    %0 = nn.neg %dw {fsdp.unit = @u} : tensor<16xf32>
    %1 = nn.neg %db {fsdp.unit = @u} : tensor<15xf32>
    %2 = nn.neg %dc {fsdp.unit = @u} : tensor<4xf32>
    %3 = nn.neg %di {fsdp.unit = @u} : tensor<4xf32>
    %4 = nn.neg %dd {fsdp.unit = @v} : tensor<4xf32>
    fsdp.gradient @w, %0 {fsdp.unit = @u} : tensor<16xf32>
    fsdp.gradient @b, %1 {fsdp.unit = @u} : tensor<15xf32>
    fsdp.gradient @c, %2 {fsdp.unit = @u} : tensor<4xf32>
    fsdp.gradient @i, %3 {fsdp.unit = @u} : tensor<4xf32>
    fsdp.gradient @d, %4 {fsdp.unit = @v} : tensor<4xf32>
    // Layouts that are reduced at once are packed together, behind the last
    // gradient of both; others behind their own.
    // CHECK: fsdp.pack @u.flat(
    // CHECK-NEXT: fsdp.reduce @u.flat,
    // CHECK-NEXT: fsdp.pack @u.flat.zero2(
    // CHECK-NEXT: fsdp.reduce @u.flat.zero2,
    // CHECK-NEXT: fsdp.pack @u.flat.ddp(
    // CHECK-NEXT: fsdp.reduce @u.flat.ddp,
    // CHECK-NEXT: fsdp.pack @v.flat(
    // CHECK-NEXT: fsdp.reduce @v.flat,
    return
  }
}

// -----

// expected-error@+1 {{--ignored 'bias' matches no parameter; available: 'w'}}
module attributes {fsdp.options = {ignored = ["bias"]}} {
  fsdp.parameter @w : tensor<8xf32> unit @u
  fsdp.unit @u
  func.func @microbatch() {
    %w = fsdp.load @w : tensor<8xf32>
    return
  }
}
