// A plan that somebody has edited is compiled as written. The planner would
// choose one run of 640 lanes.
// RUN: fsdpc-opt %s --verify-kernels --emit-kernels | FileCheck %s

// A step is one block of 64 lanes.
// CHECK: func.func @blocks
// CHECK: arith.constant 64 : i64
// CHECK: arith.muli
// CHECK: arith.minsi
// CHECK: arith.negf {{.*}} : vector<8xf32>
func.func private @blocks(%x: tensor<640xf32>) -> tensor<640xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 1 stages[640] extent 10 grain 1 blocks 10 block_lanes 64>} {
  %y = nn.neg %x : tensor<640xf32>
  return %y : tensor<640xf32>
}

// Runs of 20 lanes take the fewest steps in vectors of four.
// CHECK: func.func @runs
// CHECK: arith.negf {{.*}} : vector<4xf32>
// CHECK-NOT: arith.negf
// CHECK: return
func.func private @runs(%x: tensor<640xf32>) -> tensor<640xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 32 stages[20] extent 32 grain 1>} {
  %y = nn.neg %x : tensor<640xf32>
  return %y : tensor<640xf32>
}
