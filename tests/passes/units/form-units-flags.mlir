// RUN: fsdpc-opt %s --form-units --split-input-file --verify-diagnostics | FileCheck %s

// A class glob selects the innermost module of a matching class, by full or
// last name. Together with a scope, the deeper of both is taken. A weight that
// two units read is loaded and transposed in each; the first unit owns it.
// CHECK: fsdp.parameter @s : tensor<8x8xf32> trainable unit @a
// CHECK: fsdp.unit @a {module_class = "m.Block", scope = "a"}
// CHECK: fsdp.unit @b.fc {module_class = "m.Linear", scope = "b.fc"}
module attributes {fsdp.options = {"unit-class" = ["Block"], "unit-scope" = ["^b\\.fc$"]}} {
  fsdp.parameter @s : tensor<8x8xf32> trainable
  func.func @microbatch(%x: tensor<8x8xf32>) {
    // CHECK: fsdp.load @s {fsdp.unit = @a}
    %s = fsdp.load @s : tensor<8x8xf32>
    // CHECK-NEXT: nn.transpose {{.*}}fsdp.unit = @a
    %t = nn.transpose %s [1, 0] : tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK-NEXT: nn.matmul {{.*}}fsdp.unit = @a
    %y = nn.matmul %x, %t {nn.modules = #nn.modules<"": "m.M", "a": "m.Block", "a.fc": "m.Linear">} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK-NEXT: fsdp.load @s {fsdp.unit = @b.fc}
    // CHECK-NEXT: nn.transpose {{.*}}fsdp.unit = @b.fc
    // CHECK-NEXT: nn.matmul {{.*}}fsdp.unit = @b.fc
    %z = nn.matmul %y, %t {nn.modules = #nn.modules<"": "m.M", "b": "m.Block", "b.fc": "m.Linear">} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    return
  }
}

// -----

// A size cuts the root where another module begins. A module that is called
// twice ("a@1") counts as one module.
// CHECK: fsdp.parameter @a : tensor<8x8xf32> trainable unit @root
// CHECK: fsdp.parameter @b : tensor<8x8xf32> trainable unit @root.1
module attributes {fsdp.options = {"unit-size" = 64 : i64}} {
  fsdp.parameter @a : tensor<8x8xf32> trainable
  fsdp.parameter @b : tensor<8x8xf32> trainable
  func.func @microbatch(%x: tensor<8x8xf32>) {
    %a = fsdp.load @a : tensor<8x8xf32>
    %y = nn.matmul %x, %a {nn.modules = #nn.modules<"": "M", "a": "Linear">} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %z = nn.matmul %y, %a {nn.modules = #nn.modules<"": "M", "a@1": "Linear">} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %b = fsdp.load @b : tensor<8x8xf32>
    // CHECK: nn.matmul {{.*}}fsdp.unit = @root.1
    %u = nn.matmul %z, %b {nn.modules = #nn.modules<"": "M", "b": "Linear">} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    return
  }
}

// -----

// One unit saves nothing, which is worth a warning.
// expected-warning@+1 {{all parameters are in one unit}}
module attributes {fsdp.options = {units = "whole"}} {
  fsdp.parameter @h.0.w : tensor<8x8xf32> trainable
  fsdp.parameter @h.1.w : tensor<8x8xf32> trainable
  func.func @microbatch(%x: tensor<8x8xf32>) {
    %a = fsdp.load @h.0.w : tensor<8x8xf32>
    %y = nn.matmul %x, %a {nn.modules = #nn.modules<"": "M", "h.0": "Linear">} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %b = fsdp.load @h.1.w : tensor<8x8xf32>
    %z = nn.matmul %y, %b {nn.modules = #nn.modules<"": "M", "h.1": "Linear">} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    return
  }
}

// -----

// expected-error@+1 {{--unit-class '*Blok' matches no class; available: 'gpt.Block', 'gpt.GPT'}}
module attributes {fsdp.options = {"unit-class" = ["*Blok"]}} {
  fsdp.parameter @w : tensor<8x8xf32> trainable
  func.func @microbatch(%x: tensor<8x8xf32>) {
    %a = fsdp.load @w : tensor<8x8xf32>
    %y = nn.matmul %x, %a {nn.modules = #nn.modules<"": "gpt.GPT", "h.0": "gpt.Block">} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    return
  }
}

// -----

// expected-error@+1 {{--unit-scope 'layer' matches no module scope; available:}}
module attributes {fsdp.options = {"unit-scope" = ["layer"]}} {
  fsdp.parameter @w : tensor<8x8xf32> trainable
  func.func @microbatch(%x: tensor<8x8xf32>) {
    %a = fsdp.load @w : tensor<8x8xf32>
    %y = nn.matmul %x, %a {nn.modules = #nn.modules<"": "gpt.GPT", "h.0": "gpt.Block">} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    return
  }
}
