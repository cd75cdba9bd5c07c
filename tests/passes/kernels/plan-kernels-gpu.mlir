// A thread of a GPU computes a costly value again: nothing is kept.
// RUN: fsdpc-opt %s --decompose-kernels --plan-kernels --verify-kernels | FileCheck %s

// CHECK: #nn.kernel_plan<row rows 4 stages[256, 256, 256] extent 4 grain 4>
// CHECK-NOT: nn.kept
module attributes {fsdp.options = {target = "cuda"}} {
  func.func private @softmax(%x: tensor<4x256xf32>) -> tensor<4x256xf32> attributes {nn.kernel} {
    %y = nn.softmax %x : tensor<4x256xf32>
    return %y : tensor<4x256xf32>
  }
}
