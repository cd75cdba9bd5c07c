// RUN: fsdpc-opt %s | fsdpc-opt | FileCheck %s

// A parameter has an owner, other names and a place in a file.
// CHECK: fsdp.parameter @h.0.weight : tensor<8x4xf32> trainable unit @h.0
// CHECK-SAME: aliases = ["wte.weight"]
// CHECK-SAME: source = #fsdp.source<file = "gpt.onnx.data", offset = 128, length = 128, dtype = "float32", hash = "00112233">
fsdp.parameter @h.0.weight : tensor<8x4xf32> trainable unit @h.0
  {aliases = ["wte.weight"],
   source = #fsdp.source<file = "gpt.onnx.data", offset = 128, length = 128, dtype = "float32", hash = "00112233">}
// CHECK: fsdp.parameter @h.0.bias : tensor<4xf32> unit @h.0 {rule = "zeros"}
fsdp.parameter @h.0.bias : tensor<4xf32> unit @h.0 {rule = "zeros"}
fsdp.parameter @h.0.scale : tensor<8xf32> trainable unit @h.0
// CHECK: fsdp.buffer @bn.running_mean : tensor<4xf32>
fsdp.buffer @bn.running_mean : tensor<4xf32>
// CHECK: fsdp.buffer @bn.num_batches_tracked : tensor<i64> counts
fsdp.buffer @bn.num_batches_tracked : tensor<i64> counts
// CHECK: fsdp.unit @h.0 {module_class = "gpt.Block", scope = "h.0"}
fsdp.unit @h.0 {module_class = "gpt.Block", scope = "h.0"}
// CHECK: fsdp.layout @h.0.flat of @h.0 trainable elements 32 : bf16 states 2
// CHECK-SAME: #fsdp.member<@h.0.weight[0, 32] rate 1.000000e+00 : f64 decay 1.000000e-02 : f64>
// CHECK-SAME: optimizer = #fsdp.optimizer<states = ["exp_avg", "exp_avg_sq"], sums = 2>
// CHECK-SAME: whole = ["compute"]
fsdp.layout @h.0.flat of @h.0 trainable elements 32 : bf16 states 2 {
  members = [#fsdp.member<@h.0.weight[0, 32] rate 1.0 : f64 decay 0.01 : f64>],
  optimizer = #fsdp.optimizer<states = ["exp_avg", "exp_avg_sq"], sums = 2>, whole = ["compute"]}
// The optimizer of a group, and the average of the parameters as the last state.
// CHECK: fsdp.layout @h.0.flat.group2 of @h.0 group 2 trainable elements 8 : f32 states 3 average
fsdp.layout @h.0.flat.group2 of @h.0 group 2 trainable elements 8 : f32 states 3 average {
  members = [#fsdp.member<@h.0.scale[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}

// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%loss: tensor<f32>, %mean: tensor<4xf32>, %dw: tensor<8x4xf32>) {
  // CHECK: fsdp.load @h.0.bias : tensor<4xf32>
  %b = fsdp.load @h.0.bias : tensor<4xf32>
  // CHECK: fsdp.gradient @h.0.weight, %{{.*}} : tensor<8x4xf32>
  fsdp.gradient @h.0.weight, %dw : tensor<8x4xf32>
  // CHECK: fsdp.update_statistics @bn.running_mean, %{{.*}} {momentum = 1.000000e-01 : f64} : tensor<4xf32>
  fsdp.update_statistics @bn.running_mean, %mean {momentum = 0.1 : f64} : tensor<4xf32>
  // CHECK: fsdp.update_statistics @bn.running_mean, %{{.*}} {mode = "average", momentum = 1.000000e-01 : f64} : tensor<4xf32>
  fsdp.update_statistics @bn.running_mean, %mean {mode = "average", momentum = 0.1 : f64} : tensor<4xf32>
  // CHECK: fsdp.random : tensor<4xi32>
  %r = fsdp.random : tensor<4xi32>
  // CHECK: fsdp.loss_scale : tensor<f32>
  %s = fsdp.loss_scale : tensor<f32>
  // CHECK: fsdp.report_loss %{{.*}} valid %{{.*}} : tensor<f32>, tensor<f32>
  fsdp.report_loss %loss valid %loss : tensor<f32>, tensor<f32>
  // CHECK: fsdp.report_output "mean" %{{.*}} : tensor<4xf32>
  fsdp.report_output "mean" %mean : tensor<4xf32>
  return
}
