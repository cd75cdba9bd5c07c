// RUN: fsdpc-opt %s --materialize-collectives --fuse-small-collectives | FileCheck %s

// oss: gradients are reduced to the owners of their parameters, in buckets in
// program order. The next parameter that a bucket has no room for begins another
// one, and a parameter of more elements than a bucket is reduced alone. Small
// buckets are not joined. All parameters are gathered at the end of the step.
module attributes {fsdp.options = {"bucket-size" = 40 : i64, strategy = "oss"}} {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @w0 : tensor<16xf32> trainable unit @a
  fsdp.parameter @w1 : tensor<16xf32> trainable unit @a
  fsdp.parameter @w2 : tensor<16xf32> trainable unit @b
  fsdp.parameter @w3 : tensor<64xf32> trainable unit @b
  fsdp.parameter @w4 : tensor<16xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w0[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.layout @a.flat.part1 of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w1[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w2[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.layout @b.flat.part1 of @b trainable elements 64 : f32 states 0 {
    members = [#fsdp.member<@w3[0, 64] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.layout @b.flat.part2 of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w4[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<16xf32>, %y: tensor<64xf32>) {
    %f0 = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<16xf32>
    %d0 = nn.mul %x, %f0 {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %g0 = fsdp.pack @a.flat(%d0) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g0 {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %f1 = fsdp.flat @a.flat.part1 {fsdp.unit = @a} : tensor<16xf32>
    %d1 = nn.mul %x, %f1 {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %g1 = fsdp.pack @a.flat.part1(%d1) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat.part1, %g1 {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %f2 = fsdp.flat @b.flat {fsdp.unit = @b} : tensor<16xf32>
    %d2 = nn.mul %x, %f2 {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    %g2 = fsdp.pack @b.flat(%d2) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %g2 {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    %f3 = fsdp.flat @b.flat.part1 {fsdp.unit = @b} : tensor<64xf32>
    %d3 = nn.mul %y, %f3 {fsdp.unit = @b, fsdp.backward} : tensor<64xf32>
    %g3 = fsdp.pack @b.flat.part1(%d3) {fsdp.unit = @b, fsdp.backward} : (tensor<64xf32>) -> tensor<64xf32>
    fsdp.reduce @b.flat.part1, %g3 {fsdp.unit = @b, fsdp.backward} : tensor<64xf32>
    %f4 = fsdp.flat @b.flat.part2 {fsdp.unit = @b} : tensor<16xf32>
    %d4 = nn.mul %x, %f4 {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    %g4 = fsdp.pack @b.flat.part2(%d4) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat.part2, %g4 {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    // CHECK: fsdp.pack @a.flat(
    // CHECK-NOT: fsdp.reduce_scatter
    // CHECK: fsdp.pack @a.flat.part1
    // CHECK-NEXT: fsdp.reduce_scatter [@a.flat, @a.flat.part1], {{.*}} {fsdp.backward, fsdp.unit = @a}
    // CHECK: fsdp.pack @b.flat(
    // CHECK-NEXT: fsdp.reduce_scatter [@b.flat],
    // CHECK: fsdp.pack @b.flat.part1
    // CHECK-NEXT: fsdp.reduce_scatter [@b.flat.part1],
    // CHECK: fsdp.pack @b.flat.part2
    // CHECK-NEXT: fsdp.reduce_scatter [@b.flat.part2],
    return
  }
  func.func @update() {
    // CHECK: fsdp.gather_parameters [@a.flat, @a.flat.part1, @b.flat, @b.flat.part1, @b.flat.part2]
    return
  }
}
