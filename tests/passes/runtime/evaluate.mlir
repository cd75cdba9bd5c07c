// @evaluate reads the inputs and the constants of @microbatch: there is one
// symbol of each. An output has the plan that names it, also one that lies in an
// input.
// RUN: fsdpc-opt %s --convert-to-rt --verify-rt | FileCheck %s

// CHECK-COUNT-1: rt.constant
// CHECK-NOT: rt.constant
// CHECK-COUNT-1: rt.input @x
// CHECK-NOT: rt.input
// CHECK-LABEL: func.func @microbatch()
// CHECK: rt.pointer constant @[[C:.*]] +
// CHECK-LABEL: func.func @evaluate()
// CHECK: rt.pointer constant @[[C]] +
// CHECK: rt.matmul
// CHECK-NEXT: %[[Y:.*]] = rt.pointer arena + 0 bytes 64
// CHECK-NEXT: rt.report_output <"y", tensor<4x4xf32>> %[[Y]]
// CHECK: %[[X:.*]] = rt.pointer input @x + 0 bytes 64
// CHECK: rt.report_output <"x", tensor<4x4xf32>> %[[X]]
module attributes {fsdp.arena = {bytes = 64 : i64}, fsdp.options = {"max-ranks" = 2 : i64}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %c = nn.constant dense<2.0> : tensor<4x4xf32>
    %y = nn.matmul %x, %c {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
  func.func @update() { return }
  func.func @evaluate(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %c = nn.constant dense<2.0> : tensor<4x4xf32>
    %y = nn.matmul %x, %c {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.report_output "y" %y : tensor<4x4xf32>
    fsdp.report_output "x" %x : tensor<4x4xf32>
    return
  }
}
