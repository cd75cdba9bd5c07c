// RUN: fsdpc-opt %s --materialize-collectives --split-input-file | FileCheck %s

// With --reshard-to the first gather of a layout keeps secondary shards, and
// the later ones of the microbatch read them. Unit b turns from forward to
// backward with one gather, which needs none.
// CHECK: fsdp.layout @a.flat of @a trainable elements 64 : f32 states 0 secondary
// CHECK: fsdp.layout @b.flat of @b trainable elements 64 : f32 states 0 {
// CHECK-LABEL: func.func @microbatch
// CHECK: fsdp.all_gather [@a.flat] keep_secondary {fsdp.unit = @a}
// CHECK: fsdp.all_gather [@b.flat] {fsdp.unit = @b}
// CHECK: fsdp.all_gather [@a.flat] from_secondary {fsdp.backward, fsdp.unit = @a}

// An evaluation has no later gather.
// CHECK-LABEL: func.func @evaluate
// CHECK: fsdp.all_gather [@a.flat] {fsdp.unit = @a}
module attributes {fsdp.options = {"reshard-to" = 2 : i64}} {
  fsdp.parameter @wa : tensor<8x8xf32> trainable unit @a
  fsdp.parameter @wb : tensor<8x8xf32> trainable unit @b
  fsdp.unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 64 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 64] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 64 : f32 states 0 {
    members = [#fsdp.member<@wb[0, 64] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<8x8xf32>) {
    %fa = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<64xf32>
    %wa = fsdp.view %fa[@wa at 0] {fsdp.unit = @a} : tensor<64xf32> -> tensor<8x8xf32>
    %fb = fsdp.flat @b.flat {fsdp.unit = @b} : tensor<64xf32>
    %wb = fsdp.view %fb[@wb at 0] {fsdp.unit = @b} : tensor<64xf32> -> tensor<8x8xf32>
    %h = nn.mul %x, %wa {fsdp.unit = @a} : tensor<8x8xf32>
    %y = nn.mul %h, %wb {fsdp.unit = @b} : tensor<8x8xf32>
    %dh = nn.mul %y, %wb {fsdp.unit = @b, fsdp.backward} : tensor<8x8xf32>
    %dx = nn.mul %dh, %wa {fsdp.unit = @a, fsdp.backward} : tensor<8x8xf32>
    return
  }
  func.func @evaluate(%x: tensor<8x8xf32>) {
    %fa = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<64xf32>
    %wa = fsdp.view %fa[@wa at 0] {fsdp.unit = @a} : tensor<64xf32> -> tensor<8x8xf32>
    %h = nn.mul %x, %wa {fsdp.unit = @a} : tensor<8x8xf32>
    return
  }
  func.func @update() { return }
}

// -----

// A hybrid layout is gathered in its group anyway.
// CHECK: fsdp.layout @a.frozen of @a strategy "hybrid" elements 64 : f32 states 0 {
// CHECK: fsdp.all_gather [@a.frozen] {fsdp.unit = @a}
// CHECK: fsdp.all_gather [@b.frozen] keep_secondary {fsdp.unit = @b}
// CHECK: fsdp.all_gather [@a.frozen] {fsdp.backward, fsdp.unit = @a}
// CHECK: fsdp.all_gather [@b.frozen] from_secondary {fsdp.backward, fsdp.unit = @b}
module attributes {fsdp.options = {"reshard-to" = 2 : i64}} {
  fsdp.parameter @wa : tensor<8x8xf32> unit @a
  fsdp.parameter @wb : tensor<8x8xf32> unit @b
  fsdp.unit @a
  fsdp.unit @b
  fsdp.layout @a.frozen of @a strategy "hybrid" elements 64 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 64] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.frozen of @b elements 64 : f32 states 0 {
    members = [#fsdp.member<@wb[0, 64] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<8x8xf32>) {
    %fa = fsdp.flat @a.frozen {fsdp.unit = @a} : tensor<64xf32>
    %wa = fsdp.view %fa[@wa at 0] {fsdp.unit = @a} : tensor<64xf32> -> tensor<8x8xf32>
    %fb = fsdp.flat @b.frozen {fsdp.unit = @b} : tensor<64xf32>
    %wb = fsdp.view %fb[@wb at 0] {fsdp.unit = @b} : tensor<64xf32> -> tensor<8x8xf32>
    %h = nn.mul %x, %wa {fsdp.unit = @a} : tensor<8x8xf32>
    %y = nn.mul %h, %wb {fsdp.unit = @b} : tensor<8x8xf32>
    %dy = nn.mul %y, %wa {fsdp.unit = @a, fsdp.backward} : tensor<8x8xf32>
    %dx = nn.mul %dy, %wb {fsdp.unit = @b, fsdp.backward} : tensor<8x8xf32>
    return
  }
  func.func @update() { return }
}
