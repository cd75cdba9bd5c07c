// RUN: fsdpc-opt %s --grad --split-input-file --verify-diagnostics | FileCheck %s

// The gradient of the loss is the scale of the step, in the type of the loss.
module attributes {fsdp.options = {"loss-scale" = "1024"}} {
  fsdp.parameter @w : tensor<1xf32> trainable
  // CHECK-LABEL: func.func @microbatch
  // CHECK-SAME: %[[X:.*]]: tensor<1xf32>
  func.func @microbatch(%x: tensor<1xf32>) {
    %w = fsdp.load @w : tensor<1xf32>
    %l = nn.mul %x, %w : tensor<1xf32>
    // CHECK: %[[SCALE:.*]] = fsdp.loss_scale : tensor<f32>
    // CHECK: fsdp.report_loss
    fsdp.report_loss %l : tensor<1xf32>
    // CHECK: %[[SEED:.*]] = nn.reshape %[[SCALE]] {fsdp.backward} : tensor<f32> -> tensor<1xf32>
    // CHECK: %[[G:.*]] = nn.mul {{.*}}%[[SEED]]{{.*}} : tensor<1xf32>
    // CHECK: fsdp.gradient @w, %[[G]]
    return
  }
}

// -----

// A loss that computes its gradients in the forward scales them there, so that
// they are not rounded before. The backward has nothing left to multiply.
module attributes {fsdp.options = {"param-dtype" = "f16"}} {
  fsdp.parameter @w : tensor<9x4xf32> trainable
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<5x4xf32>, %y: tensor<5xi64>) {
    %w = fsdp.load @w : tensor<9x4xf32>
    // CHECK: %[[SCALE:.*]] = fsdp.loss_scale : tensor<f32>
    // CHECK: %[[L:.*]], %{{.*}}, %{{.*}}, %[[DW:.*]] = nn.linear_cross_entropy mean {{.*}} scale %[[SCALE]]
    %loss, %valid, %dx, %dw = nn.linear_cross_entropy mean %x, %w, %y {transpose_weight}
      : tensor<5x4xf32>, tensor<9x4xf32>, tensor<5xi64> -> tensor<f32>, tensor<f32>
    fsdp.report_loss %loss : tensor<f32>
    // CHECK-NOT: nn.mul
    // CHECK: fsdp.gradient @w, %[[DW]]
    return
  }
}

// -----

// Between that loss and the one that is reported, the chain rule goes on.
module attributes {fsdp.options = {"loss-scale" = "dynamic,init=8"}} {
  fsdp.parameter @w : tensor<9x4xf32> trainable
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<5x4xf32>, %y: tensor<5xi64>) {
    %w = fsdp.load @w : tensor<9x4xf32>
    // CHECK: %[[SCALE:.*]] = fsdp.loss_scale : tensor<f32>
    %loss, %valid, %dx, %dw = nn.linear_cross_entropy mean %x, %w, %y {transpose_weight}
      : tensor<5x4xf32>, tensor<9x4xf32>, tensor<5xi64> -> tensor<f32>, tensor<f32>
    %half = nn.mul %loss, %loss : tensor<f32>
    fsdp.report_loss %half : tensor<f32>
    // CHECK: %[[D:.*]] = nn.add {{.*}} {fsdp.backward} : tensor<f32>
    // CHECK: %[[RATIO:.*]] = nn.div %[[D]], %[[SCALE]] {fsdp.backward} : tensor<f32>
    // CHECK: nn.broadcast
    // CHECK: nn.mul
    return
  }
}

// -----

// Without a scale most small gradients are lost in f16.
// expected-warning @+1 {{f16 has no numbers below 6e-8, so small gradients become 0 with '--loss-scale=none'; omit it for a dynamic scale}}
module attributes {fsdp.options = {"param-dtype" = "f16", "loss-scale" = "none"}} {
  fsdp.parameter @w : tensor<f32> trainable
  // CHECK-LABEL: func.func @microbatch
  // CHECK-NOT: fsdp.loss_scale
  func.func @microbatch(%x: tensor<f32>) {
    %w = fsdp.load @w : tensor<f32>
    %l = nn.mul %x, %w : tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}
