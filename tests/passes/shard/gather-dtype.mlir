// --gather-dtype: which layouts travel in blocks, and where their members begin.
// RUN: fsdpc-opt %s --shard-parameters --split-input-file | FileCheck %s

// A block has elements of one parameter: members begin at multiples of 256. The
// layout of ddp is never gathered, and that of a module in f32 travels in f32.
// CHECK: fsdp.layout @u.flat of @u trainable elements 320 : f32 wire i8 states 2
// CHECK-SAME: #fsdp.member<@w[0, 16]{{.*}}#fsdp.member<@v[256, 64]
// CHECK: fsdp.layout @u.flat.f32 of @u trainable elements 8 : f32 states 2
// CHECK: fsdp.layout @u.flat.ddp of @u strategy "ddp" trainable elements 8 : f32 states 2
module attributes {fsdp.options = {"param-dtype" = "bf16", "keep-f32" = ["n"], ignored = ["b"], "gather-dtype" = "i8"}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @u
  fsdp.parameter @v : tensor<64xf32> trainable unit @u
  fsdp.parameter @n : tensor<8xf32> trainable unit @u {fsdp.keep_f32}
  fsdp.parameter @b : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch(%x: tensor<16xf32>, %y: tensor<64xf32>, %z: tensor<8xf32>) {
    fsdp.gradient @w, %x {fsdp.unit = @u, fsdp.backward} : tensor<16xf32>
    fsdp.gradient @v, %y {fsdp.unit = @u, fsdp.backward} : tensor<64xf32>
    fsdp.gradient @n, %z {fsdp.unit = @u, fsdp.backward, fsdp.keep_f32} : tensor<8xf32>
    fsdp.gradient @b, %z {fsdp.unit = @u, fsdp.backward} : tensor<8xf32>
    return
  }
}

// -----

// Gradients in blocks align members too; the layout is gathered in its type.
// CHECK: fsdp.layout @u.flat of @u trainable elements 320 : f32 states 2
// CHECK-SAME: #fsdp.member<@w[0, 16]{{.*}}#fsdp.member<@v[256, 64]
module attributes {fsdp.options = {"reduce-dtype" = "f8e4m3"}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @u
  fsdp.parameter @v : tensor<64xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch(%x: tensor<16xf32>, %y: tensor<64xf32>) {
    fsdp.gradient @w, %x {fsdp.unit = @u, fsdp.backward} : tensor<16xf32>
    fsdp.gradient @v, %y {fsdp.unit = @u, fsdp.backward} : tensor<64xf32>
    return
  }
}
