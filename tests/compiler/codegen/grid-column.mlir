// The column template on a grid of threads.
// RUN: fsdpc-opt %s --decompose-kernels --plan-kernels --plan-grids=threads=128 --emit-grids | FileCheck %s

// 64 vectors of columns, eight threads side by side. Of 16 threads per column
// each takes every sixteenth row, and the first adds up their sums in order.
// CHECK: gpu.func @columns({{.*}}known_block_size = array<i32: 128, 1, 1>, known_grid_size = array<i32: 8, 1, 1>
// CHECK: scf.for {{.*}} -> (vector<4xf32>)
// CHECK: llvm.store {{.*}} {alignment = 16 : i64} : vector<4xf32>
// CHECK: gpu.barrier
// CHECK: scf.if
// CHECK-COUNT-15: llvm.load {{.*}} -> vector<4xf32>
// CHECK-NOT: llvm.load
// CHECK: llvm.store
// CHECK-NOT: atomic
func.func private @columns(%x: tensor<1000x256xf32>) -> tensor<1x256xf32> attributes {nn.kernel} {
  %y = nn.reduce sum %x [0] : tensor<1000x256xf32> -> tensor<1x256xf32>
  return %y : tensor<1x256xf32>
}
