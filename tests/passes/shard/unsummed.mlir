// Which gradients nothing is added to, so that they stay as they were computed.
// RUN: fsdpc-opt %s --shard-parameters --split-input-file | FileCheck %s

// There is one microbatch and one rank. A module that stays in f32 would be
// rounded on a wire of bf16, and ddp gathers gradients in f32.
// CHECK: fsdp.layout @u.flat of @u trainable elements 16 : f32 states 2 {fsdp.unsummed
// CHECK: fsdp.layout @u.flat.f32 of @u trainable elements 8 : f32 states 2 {members
// CHECK: fsdp.layout @u.flat.ddp of @u strategy "ddp" trainable elements 8 : f32 states 2 {members
module attributes {fsdp.options = {"max-ranks" = 1 : i64, "max-accumulate" = 1 : i64, "param-dtype" = "bf16", "reduce-dtype" = "bf16", "keep-f32" = ["n"], ignored = ["b"]}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @u
  fsdp.parameter @n : tensor<8xf32> trainable unit @u {fsdp.keep_f32}
  fsdp.parameter @b : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch(%x: tensor<16xf32>, %z: tensor<8xf32>) {
    fsdp.gradient @w, %x {fsdp.unit = @u, fsdp.backward} : tensor<16xf32>
    fsdp.gradient @n, %z {fsdp.unit = @u, fsdp.backward, fsdp.keep_f32} : tensor<8xf32>
    fsdp.gradient @b, %z {fsdp.unit = @u, fsdp.backward} : tensor<8xf32>
    return
  }
}

// -----

// Sums over whole parameters are of all layouts at once, and read f32.
// CHECK: fsdp.layout @u.flat of @u trainable elements 16 : f32 states 2 {members
module attributes {fsdp.options = {"max-ranks" = 1 : i64, "max-accumulate" = 1 : i64, optimizer = "lamb"}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.gradient @w, %x {fsdp.unit = @u, fsdp.backward} : tensor<16xf32>
    return
  }
}

// -----

// Another rank, or microbatch, would add its own.
// CHECK: fsdp.layout @u.flat of @u trainable elements 16 : f32 states 2 {members
module attributes {fsdp.options = {"max-ranks" = 2 : i64, "max-accumulate" = 1 : i64}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.gradient @w, %x {fsdp.unit = @u, fsdp.backward} : tensor<16xf32>
    return
  }
}
