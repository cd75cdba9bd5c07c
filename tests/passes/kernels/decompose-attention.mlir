// Attention as products around one row kernel.
// RUN: fsdpc-opt %s --decompose-attention | FileCheck %s
// RUN: fsdpc-opt %s --decompose-attention --outline-kernels | FileCheck %s --check-prefix=KERNELS

// Two query heads share a key head: they are the rows of one product, and nothing
// is copied for them. The key that row t sees last is t + (S - T) = t + 2. What is
// saved for the backward is the log-sum-exp alone.
// CHECK-LABEL: func.func @microbatch
// CHECK: %[[Q:.*]] = nn.reshape %arg0 {{.*}} : tensor<1x2x4x8xf32> -> tensor<1x1x8x8xf32>
// CHECK: nn.matmul %[[Q]], %arg1 {{.*}}transpose_b{{.*}} -> tensor<1x1x8x6xf32>
// CHECK: nn.iota {axis = 2
// CHECK: nn.iota {axis = 3
// CHECK: nn.constant {{.*}}dense<2> : tensor<1x2x4x6xi32>
// CHECK: nn.select
// CHECK: nn.reduce max
// CHECK: nn.reduce sum
// CHECK: %[[P:.*]] = nn.reshape %{{.*}} : tensor<1x2x4x6xf32> -> tensor<1x1x8x6xf32>
// CHECK: nn.matmul %[[P]], %arg2
// CHECK-NOT: nn.attention

// The rows between the products are one kernel of unit a, which gives the
// probabilities and the log-sum-exp.
// KERNELS-LABEL: func.func @microbatch
// KERNELS: nn.matmul
// KERNELS-NEXT: nn.reshape
// KERNELS-NEXT: nn.launch @{{.*}} {fsdp.unit = @a} : (tensor<1x2x4x6xf32>) -> (tensor<1x2x4x6xf32>, tensor<1x2x4x1xf32>)
// KERNELS-NOT: nn.launch
// KERNELS: return
module {
  fsdp.unit @a
  func.func @microbatch(%q: tensor<1x2x4x8xf32> {fsdp.input = "q"}, %k: tensor<1x1x6x8xf32> {fsdp.input = "k"}, %v: tensor<1x1x6x8xf32> {fsdp.input = "v"}) {
    %o, %lse = nn.attention %q, %k, %v {causal, fsdp.unit = @a, scale = 0.5 : f64}
      : tensor<1x2x4x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x6x8xf32> -> tensor<1x2x4x8xf32>, tensor<1x2x4xf32>
    %z = nn.reshape %o : tensor<1x2x4x8xf32> -> tensor<8x8xf32>
    %y = nn.matmul %z, %z : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %l = nn.reshape %lse : tensor<1x2x4xf32> -> tensor<1x8xf32>
    %s = nn.matmul %l, %y : tensor<1x8xf32>, tensor<8x8xf32> -> tensor<1x8xf32>
    return
  }
}
