// The form of gradients of the model's own, and what their verifier refuses.
// RUN: fsdpc-opt %s --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @forms
func.func @forms(%x: tensor<4xf32>, %y: tensor<f32>) {
  // CHECK: nn.cotangent 0 of %arg1 : tensor<f32>
  %g = nn.cotangent 0 of %y : tensor<f32>
  // CHECK: nn.custom_gradient values(%arg1 : tensor<f32>) cotangents(%{{.*}} : tensor<f32>) inputs(%arg0 : tensor<4xf32>) gradients(%arg0 : tensor<4xf32>) -> tensor<f32>
  %r = nn.custom_gradient values(%y : tensor<f32>) cotangents(%g : tensor<f32>) inputs(%x : tensor<4xf32>) gradients(%x : tensor<4xf32>) -> tensor<f32>
  // CHECK: inputs() gradients() -> tensor<f32>
  %s = nn.custom_gradient values(%y : tensor<f32>) cotangents(%g : tensor<f32>) inputs() gradients() -> tensor<f32>
  return
}

// -----

func.func @other_type(%x: tensor<4xf32>, %y: tensor<f32>) {
  %g = nn.cotangent 0 of %y : tensor<f32>
  // expected-error @+1 {{gradients must have the types of the inputs}}
  %r = nn.custom_gradient values(%y : tensor<f32>) cotangents(%g : tensor<f32>) inputs(%x : tensor<4xf32>) gradients(%y : tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @other_results(%x: tensor<4xf32>, %y: tensor<f32>) {
  %g = nn.cotangent 0 of %y : tensor<f32>
  // expected-error @+1 {{values and cotangents must have the types of the results}}
  %r = nn.custom_gradient values(%y : tensor<f32>) cotangents(%g : tensor<f32>) inputs() gradients() -> tensor<4xf32>
  return
}

// -----

// A cotangent knows the result that it belongs to.
func.func @other_result(%y: tensor<f32>) {
  %g = nn.cotangent 1 of %y : tensor<f32>
  // expected-error @+1 {{cotangent 0 must be 'nn.cotangent 0'}}
  %r = nn.custom_gradient values(%y : tensor<f32>) cotangents(%g : tensor<f32>) inputs() gradients() -> tensor<f32>
  return
}
