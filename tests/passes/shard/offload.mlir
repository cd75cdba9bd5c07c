// RUN: fsdpc-opt %s --shard-parameters --split-input-file --verify-diagnostics | FileCheck %s

// With --offload=optimizer the layouts that have states are offloaded. A frozen
// layout has none, and neither has the group of plain SGD.
// CHECK: fsdp.layout @a.flat of @a trainable elements 16 : f32 states 2 offloaded {
// CHECK: fsdp.layout @a.flat.group1 of @a group 1 trainable elements 16 : f32 states 0 {
// CHECK: fsdp.layout @a.frozen of @a elements 16 : f32 states 0 {
module attributes {fsdp.options = {"offload" = "optimizer", "group" = ["v: optimizer=sgd lr=0.1"]}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.parameter @f : tensor<16xf32> unit @a
  fsdp.unit @a
  func.func @microbatch(%x: tensor<16xf32>) {
    %w = fsdp.load @w {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.load @v {fsdp.unit = @a} : tensor<16xf32>
    %f = fsdp.load @f {fsdp.unit = @a} : tensor<16xf32>
    %0 = nn.mul %w, %f {fsdp.unit = @a} : tensor<16xf32>
    %1 = nn.neg %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.gradient @w, %0 {fsdp.unit = @a} : tensor<16xf32>
    fsdp.gradient @v, %1 {fsdp.unit = @a} : tensor<16xf32>
    return
  }
}

// -----

// The average of --ema is a state.
// CHECK: fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 average offloaded {
module attributes {fsdp.options = {"offload" = "optimizer", "optimizer" = "sgd", "ema" = 0.9 : f64}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @a
  func.func @microbatch(%x: tensor<16xf32>) {
    %w = fsdp.load @w {fsdp.unit = @a} : tensor<16xf32>
    %0 = nn.neg %w {fsdp.unit = @a} : tensor<16xf32>
    fsdp.gradient @w, %0 {fsdp.unit = @a} : tensor<16xf32>
    return
  }
}

// -----

// expected-error @below {{--offload has no effect: the optimizer keeps no states}}
module attributes {fsdp.options = {"offload" = "optimizer", "optimizer" = "sgd"}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @a
  func.func @microbatch(%x: tensor<16xf32>) {
    %w = fsdp.load @w {fsdp.unit = @a} : tensor<16xf32>
    %0 = nn.neg %w {fsdp.unit = @a} : tensor<16xf32>
    fsdp.gradient @w, %0 {fsdp.unit = @a} : tensor<16xf32>
    return
  }
}
