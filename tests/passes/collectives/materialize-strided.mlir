// RUN: fsdpc-opt %s --materialize-collectives | FileCheck %s

// The attention reads the weight through a strided transpose, which has no memory of its own: the weight is freed after it.
module {
  fsdp.parameter @w : tensor<2x4x3x8xf32> trainable unit @a
  fsdp.unit @a
  fsdp.layout @a.flat of @a trainable elements 192 : f32 states 0 {
    members = [#fsdp.member<@w[0, 192] rate 1.0 : f64 decay 0.0 : f64>], whole = []}

  // CHECK-LABEL: func.func @microbatch
  // CHECK: %[[FLAT:.*]] = fsdp.all_gather [@a.flat]
  // CHECK: nn.transpose
  // CHECK: nn.attention
  // CHECK-NEXT: fsdp.free %[[FLAT]]
  func.func @microbatch(%x: tensor<2x3x4x8xf32>) {
    %f = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<192xf32>
    %w = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<192xf32> -> tensor<2x4x3x8xf32>
    %t = nn.transpose %w [0, 2, 1, 3] {fsdp.unit = @a, nn.strided = "operand"} : tensor<2x4x3x8xf32> -> tensor<2x3x4x8xf32>
    %y, %lse = nn.attention %t, %x, %x {fsdp.unit = @a, scale = 0.5 : f64} : tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32> -> tensor<2x3x4x8xf32>, tensor<2x3x4xf32>
    %z = nn.neg %y {fsdp.unit = @a} : tensor<2x3x4x8xf32>
    return
  }
  func.func @update() {
    return
  }
}
