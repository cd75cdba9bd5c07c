// Hooks that say what a reduction sends. With --reduce-hook=top-k each rank sends a share of the layout's elements, rounded
// up, and no op stands before the pack.
// RUN: fsdpc-opt %s --shard-parameters --split-input-file | FileCheck %s

// CHECK: fsdp.layout @u.flat of @u trainable elements 80 : f32 top_k 2 states 2
// CHECK: fsdp.layout @u.frozen of @u elements 8 : f32 states 0
// CHECK-NOT: fsdp.hook
module attributes {fsdp.options = {"reduce-hook" = ["top-k=2%"]}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @u
  fsdp.parameter @v : tensor<64xf32> trainable unit @u
  fsdp.parameter @f : tensor<8xf32> unit @u
  fsdp.unit @u
  func.func @microbatch(%x: tensor<16xf32>, %y: tensor<64xf32>) {
    fsdp.gradient @w, %x {fsdp.unit = @u, fsdp.backward} : tensor<16xf32>
    fsdp.gradient @v, %y {fsdp.unit = @u, fsdp.backward} : tensor<64xf32>
    return
  }
}

// -----

// Every rank receives the whole sum, so ddp keeps memory for it also where a step
// has one microbatch.
// CHECK: fsdp.layout @u.flat of @u trainable elements 16 : f32 top_k 16 states 2 {{.*}}whole = ["master", "compute", "gradient", "state"]
module attributes {fsdp.options = {"reduce-hook" = ["top-k=100%"], strategy = "ddp", "max-accumulate" = 1}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.gradient @w, %x {fsdp.unit = @u, fsdp.backward} : tensor<16xf32>
    return
  }
}

// -----

// --reduce-hook=power-sgd: a layout sends factors if those of one of its members
// have less than half of its elements.
// CHECK: fsdp.layout @u.flat of @u trainable elements 288 : f32 power_sgd 2 states 2
// CHECK: fsdp.layout @v.flat of @v trainable elements 64 : f32 states 2
module attributes {fsdp.options = {"reduce-hook" = ["power-sgd=2"]}} {
  fsdp.parameter @w : tensor<16x16xf32> trainable unit @u
  fsdp.parameter @b : tensor<32xf32> trainable unit @u
  fsdp.parameter @small : tensor<8x8xf32> trainable unit @v
  fsdp.unit @u
  fsdp.unit @v
  func.func @microbatch(%x: tensor<16x16xf32>, %y: tensor<32xf32>, %z: tensor<8x8xf32>) {
    fsdp.gradient @w, %x {fsdp.unit = @u, fsdp.backward} : tensor<16x16xf32>
    fsdp.gradient @b, %y {fsdp.unit = @u, fsdp.backward} : tensor<32xf32>
    fsdp.gradient @small, %z {fsdp.unit = @v, fsdp.backward} : tensor<8x8xf32>
    return
  }
}

// -----

// --reduce-hook=one-bit: a layout sends a scale per block and a bit per element
// if these are fewer words than its elements.
// CHECK: fsdp.layout @u.flat of @u trainable elements 1024 : f32 one_bit 64 states 2
// CHECK: fsdp.layout @v.flat of @v trainable elements 1 : f32 states 2
module attributes {fsdp.options = {"reduce-hook" = ["one-bit=64"]}} {
  fsdp.parameter @w : tensor<32x32xf32> trainable unit @u
  fsdp.parameter @scale : tensor<f32> trainable unit @v
  fsdp.unit @u
  fsdp.unit @v
  func.func @microbatch(%x: tensor<32x32xf32>, %y: tensor<f32>) {
    fsdp.gradient @w, %x {fsdp.unit = @u, fsdp.backward} : tensor<32x32xf32>
    fsdp.gradient @scale, %y {fsdp.unit = @v, fsdp.backward} : tensor<f32>
    return
  }
}
