// RUN: fsdpc-opt %s --fuse-small-collectives | FileCheck %s

fsdp.parameter @w : tensor<16xf32> trainable unit @u
fsdp.parameter @f : tensor<16xf32> unit @u
fsdp.parameter @z : tensor<16xf32> trainable unit @v
fsdp.parameter @large : tensor<524288xf32> trainable unit @big
fsdp.parameter @k : tensor<16xf32> unit @u
fsdp.parameter @l : tensor<16xf32> unit @v
fsdp.unit @u
fsdp.unit @v
fsdp.unit @big
fsdp.layout @u.flat of @u trainable elements 16 : f32 states 0 {
  members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
fsdp.layout @u.frozen of @u elements 16 : f32 states 0 {
  members = [#fsdp.member<@f[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
fsdp.layout @v.flat of @v trainable elements 16 : f32 states 0 {
  members = [#fsdp.member<@z[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
fsdp.layout @u.kept of @u elements 16 : f32 states 0 secondary {
  members = [#fsdp.member<@k[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
fsdp.layout @v.kept of @v elements 16 : f32 states 0 secondary {
  members = [#fsdp.member<@l[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
fsdp.layout @big.flat of @big trainable elements 524288 : f32 states 0 {
  members = [#fsdp.member<@large[0, 524288] rate 1.0 : f64 decay 0.0 : f64>], whole = []}

// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%x: tensor<16xf32>, %y: tensor<524288xf32>) {
  // Adjacent small collectives are fused, also with views between them.
  // CHECK-NEXT: %[[R:.*]]:3 = fsdp.all_gather [@u.flat, @u.frozen, @v.flat] {fsdp.unit = @u}
  // CHECK-NEXT: fsdp.view %[[R]]#0[@w at 0]
  // CHECK-NEXT: nn.mul
  %a = fsdp.all_gather [@u.flat] {fsdp.unit = @u} : tensor<16xf32>
  %b = fsdp.all_gather [@u.frozen] {fsdp.unit = @u} : tensor<16xf32>
  %w = fsdp.view %a[@w at 0] : tensor<16xf32> -> tensor<16xf32>
  %c = fsdp.all_gather [@v.flat] {fsdp.unit = @v} : tensor<16xf32>
  %p = nn.mul %w, %x : tensor<16xf32>
  // Not with compute between them.
  // CHECK: fsdp.all_gather [@v.flat] {fsdp.unit = @v}
  %d = fsdp.all_gather [@v.flat] {fsdp.unit = @v} : tensor<16xf32>
  // Not if they exceed 1 MiB together.
  // CHECK-NEXT: fsdp.all_gather [@big.flat]
  %e = fsdp.all_gather [@big.flat] {fsdp.unit = @big} : tensor<524288xf32>

  // One gather keeps the secondary shards of all its layouts, or of none.
  // CHECK: fsdp.all_gather [@u.kept, @v.kept] keep_secondary {fsdp.unit = @u}
  // CHECK-NEXT: fsdp.all_gather [@u.frozen] {fsdp.unit = @u}
  %m = nn.neg %x : tensor<16xf32>
  %i = fsdp.all_gather [@u.kept] keep_secondary {fsdp.unit = @u} : tensor<16xf32>
  %j = fsdp.all_gather [@v.kept] keep_secondary {fsdp.unit = @v} : tensor<16xf32>
  %k = fsdp.all_gather [@u.frozen] {fsdp.unit = @u} : tensor<16xf32>

  // Reductions with only packs and marks between them are fused, at the place
  // of the later one.
  // CHECK: %[[G:.*]] = fsdp.pack @u.flat
  // CHECK-NEXT: fsdp.exit @u backward
  // CHECK-NEXT: fsdp.enter @v backward
  // CHECK-NEXT: %[[H:.*]] = fsdp.pack @v.flat
  // CHECK-NEXT: fsdp.reduce_scatter [@u.flat, @v.flat], %[[G]], %[[H]] : tensor<16xf32>, tensor<16xf32>
  %n = nn.neg %x : tensor<16xf32>
  %g = fsdp.pack @u.flat(%p) : (tensor<16xf32>) -> tensor<16xf32>
  fsdp.reduce_scatter [@u.flat], %g : tensor<16xf32>
  fsdp.exit @u backward
  fsdp.enter @v backward
  %h = fsdp.pack @v.flat(%n) : (tensor<16xf32>) -> tensor<16xf32>
  fsdp.reduce_scatter [@v.flat], %h : tensor<16xf32>
  // CHECK-NEXT: fsdp.reduce_scatter [@big.flat]
  fsdp.reduce_scatter [@big.flat], %y : tensor<524288xf32>
  return
}
