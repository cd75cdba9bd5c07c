// --keep-f32: what form-units marks.
// RUN: fsdpc-opt %s --form-units --split-input-file --verify-diagnostics | FileCheck %s

// A glob names modules by class, with or without the Python module, or by their
// path. An op is of all modules around it. A parameter that one marked op reads
// is marked, with all of its loads and transposes.
// CHECK: fsdp.parameter @n : tensor<8xf32> trainable unit @root {fsdp.keep_f32}
// CHECK: fsdp.parameter @w : tensor<8x8xf32> trainable unit @root{{$}}
// CHECK: fsdp.parameter @s : tensor<8x8xf32> trainable unit @root {fsdp.keep_f32}
module attributes {fsdp.options = {"param-dtype" = "bf16", "keep-f32" = ["*Norm", "head"], units = "whole"}} { // expected-warning {{all parameters are in one unit}}
  fsdp.parameter @n : tensor<8xf32> trainable
  fsdp.parameter @w : tensor<8x8xf32> trainable
  fsdp.parameter @s : tensor<8x8xf32> trainable
  func.func @microbatch(%x: tensor<8x8xf32>) {
    %n = fsdp.load @n : tensor<8xf32>
    // CHECK: nn.broadcast {{.*}}fsdp.keep_f32
    %b = nn.broadcast %n : tensor<8xf32> -> tensor<8x8xf32>
    // CHECK: nn.mul {{.*}}fsdp.keep_f32
    %y = nn.mul %x, %b {nn.modules = #nn.modules<"": "m.M", "a": "m.Block", "a.n": "m.LayerNorm">} : tensor<8x8xf32>
    // CHECK: fsdp.load @w {fsdp.unit = @root}
    %w = fsdp.load @w : tensor<8x8xf32>
    // CHECK: nn.matmul %{{.*}} {fsdp.unit = @root, nn.modules
    %z = nn.matmul %y, %w {nn.modules = #nn.modules<"": "m.M", "a": "m.Block">} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK: fsdp.load @s {fsdp.keep_f32
    %s = fsdp.load @s : tensor<8x8xf32>
    // CHECK: nn.transpose {{.*}}fsdp.keep_f32
    %t = nn.transpose %s [1, 0] : tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK: nn.matmul {{.*}}fsdp.keep_f32
    %h = nn.matmul %z, %t {nn.modules = #nn.modules<"": "m.M", "head": "m.Head", "head.fc": "m.Linear">} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK: nn.matmul %{{.*}} {fsdp.unit = @root, nn.modules
    %u = nn.matmul %h, %s {nn.modules = #nn.modules<"": "m.M", "a": "m.Block">} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    return
  }
}

// -----

// '*' matches the root, and so also ops of which the exporter wrote no module.
// CHECK: fsdp.parameter @w : tensor<8x8xf32> trainable unit @root {fsdp.keep_f32}
module attributes {fsdp.options = {"param-dtype" = "bf16", "keep-f32" = ["*"], units = "whole"}} { // expected-warning {{all parameters are in one unit}}
  fsdp.parameter @w : tensor<8x8xf32> trainable
  func.func @microbatch(%x: tensor<8x8xf32>) {
    %w = fsdp.load @w : tensor<8x8xf32>
    // CHECK: nn.matmul {{.*}}fsdp.keep_f32
    %y = nn.matmul %x, %w : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    return
  }
}

// -----

// A glob without a match is a misspelt one.
// expected-error@+1 {{--keep-f32 '*Nrom' matches no module; available: 'M', 'n', 'LayerNorm'}}
module attributes {fsdp.options = {"param-dtype" = "bf16", "keep-f32" = ["*Nrom"]}} {
  func.func @microbatch(%x: tensor<8xf32>) {
    %y = nn.neg %x {nn.modules = #nn.modules<"": "M", "n": "LayerNorm">} : tensor<8xf32>
    return
  }
}

// -----

// expected-error@+1 {{--keep-f32 '[' is not a valid glob pattern}}
module attributes {fsdp.options = {"param-dtype" = "bf16", "keep-f32" = ["["]}} {
  func.func @microbatch(%x: tensor<8xf32>) {
    return
  }
}

// -----

// In f32 there is nothing to keep.
// expected-error@+1 {{attribute 'fsdp.options': '--keep-f32' has no effect with '--param-dtype=f32'; it needs '--param-dtype=bf16' or '--param-dtype=f16'}}
module attributes {fsdp.options = {"keep-f32" = ["*"]}} {
}
