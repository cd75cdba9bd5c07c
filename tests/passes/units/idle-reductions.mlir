// RUN: fsdpc-opt %s --form-units | FileCheck %s

// A reduction that changes nothing is still the weight: each unit that reads it
// has its own, so that the weight stays in its unit when weigh-losses removes it.
fsdp.parameter @w : tensor<1x8xf32> trainable
fsdp.parameter @h.0.weight : tensor<8x8xf32> trainable
fsdp.parameter @h.1.weight : tensor<8x8xf32> trainable

// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%x: tensor<1x8xf32>) {
  %w = fsdp.load @w : tensor<1x8xf32>
  %max = nn.reduce max %w [0] {nn.modules = #nn.modules<"": "M">} : tensor<1x8xf32> -> tensor<1x8xf32>
  %w0 = fsdp.load @h.0.weight : tensor<8x8xf32>
  %w1 = fsdp.load @h.1.weight : tensor<8x8xf32>
  %x0 = nn.matmul %x, %w0 {nn.modules = #nn.modules<"": "M", "h.0": "Block">} : tensor<1x8xf32>, tensor<8x8xf32> -> tensor<1x8xf32>
  // CHECK: fsdp.load @w {fsdp.unit = @h.0}
  // CHECK-NEXT: nn.reduce max {{.*}}fsdp.unit = @h.0
  // CHECK-NEXT: nn.add {{.*}}fsdp.unit = @h.0
  %y0 = nn.add %x0, %max {nn.modules = #nn.modules<"": "M", "h.0": "Block">} : tensor<1x8xf32>
  %x1 = nn.matmul %y0, %w1 {nn.modules = #nn.modules<"": "M", "h.1": "Block">} : tensor<1x8xf32>, tensor<8x8xf32> -> tensor<1x8xf32>
  // CHECK: fsdp.load @w {fsdp.unit = @h.1}
  // CHECK-NEXT: nn.reduce max {{.*}}fsdp.unit = @h.1
  // CHECK-NEXT: nn.mul {{.*}}fsdp.unit = @h.1
  %y1 = nn.mul %x1, %max {nn.modules = #nn.modules<"": "M", "h.1": "Block">} : tensor<1x8xf32>
  %s = nn.reduce sum %y1 [0, 1] {nn.modules = #nn.modules<"": "M">} : tensor<1x8xf32> -> tensor<1x1xf32>
  %l = nn.reshape %s : tensor<1x1xf32> -> tensor<f32>
  fsdp.report_loss %l : tensor<f32>
  return
}
