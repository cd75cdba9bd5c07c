// The row template on a grid of threads.
// RUN: fsdpc-opt %s --decompose-kernels --plan-kernels --plan-grids=threads=128 --emit-grids | FileCheck %s
// RUN: fsdpc-opt %s --decompose-kernels --plan-kernels --plan-grids=threads=1 --emit-grids | FileCheck %s --check-prefix=ONE

module attributes {fsdp.options = {target = "cuda"}} {

// A warp handles a short row: four rows per block of 128 threads. Its sums take
// five shuffles and no shared memory.
// CHECK: gpu.func @short({{.*}}known_grid_size = array<i32: 25, 1, 1>
// CHECK: scf.for {{.*}} -> (vector<4xf32>)
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK-NOT: gpu.shuffle
// CHECK-NOT: gpu.barrier
// CHECK: gpu.return
//
// With one thread per block nothing is exchanged.
// ONE-NOT: gpu.shuffle
// ONE-NOT: gpu.barrier
// ONE-NOT: nvvm
func.func private @short(%x: tensor<100x256xf32>) -> tensor<100x1xf32> attributes {nn.kernel} {
  %y = nn.reduce sum %x [1] : tensor<100x256xf32> -> tensor<100x1xf32>
  return %y : tensor<100x1xf32>
}

// A block handles a long row: each warp's sum goes through shared memory, and
// every thread adds up the four in order.
// CHECK: llvm.mlir.global internal @long.shared() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<32 x i8>
// CHECK: gpu.func @long({{.*}}known_grid_size = array<i32: 100, 1, 1>
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: llvm.store {{.*}} : f32
// CHECK: gpu.barrier
// CHECK-COUNT-4: llvm.load {{.*}} -> f32
// One thread stores the row's element.
// CHECK: scf.if
// CHECK: llvm.store
func.func private @long(%x: tensor<100x4096xf32>) -> tensor<100x1xf32> attributes {nn.kernel} {
  %y = nn.reduce sum %x [1] : tensor<100x4096xf32> -> tensor<100x1xf32>
  return %y : tensor<100x1xf32>
}

// exp is recomputed where it is stored, not kept in memory. The row's threads
// wait between loops that read a row and a loop that may overwrite it.
// CHECK: gpu.func @softmax
// CHECK: scf.for
// CHECK: nvvm.bar.warp.sync
// CHECK: scf.for
// CHECK: nvvm.bar.warp.sync
// CHECK: scf.for
// CHECK: llvm.load
// CHECK: llvm.store
// CHECK-NOT: nvvm
// CHECK: gpu.return
func.func private @softmax(%x: tensor<100x256xf32>) -> tensor<100x256xf32> attributes {nn.kernel} {
  %y = nn.softmax %x : tensor<100x256xf32>
  return %y : tensor<100x256xf32>
}

// A long row's maximum and its sum of exponentials take one loop, and a second
// one reads the row again and stores. The sum of a thread is scaled when its
// maximum grows, and once more when the block agrees on a maximum.
// CHECK: gpu.func @long_softmax
// CHECK: scf.for {{.*}} -> (f32, vector<8xf32>)
// CHECK-COUNT-2: math.exp
// CHECK: scf.yield
// CHECK: gpu.barrier
// CHECK: math.exp
// CHECK: gpu.barrier
// CHECK: scf.for
// CHECK: llvm.store
// CHECK-NOT: scf.for
// CHECK: gpu.return
func.func private @long_softmax(%x: tensor<100x4096xf32>) -> tensor<100x4096xf32> attributes {nn.kernel} {
  %y = nn.softmax %x : tensor<100x4096xf32>
  return %y : tensor<100x4096xf32>
}

// Rows that are summed in blocks: a block of threads takes 16 rows, each warp
// every fourth of them. A thread keeps the sums of its four vectors of columns
// in registers. At the end the first warp adds up those of all warps in order.
// CHECK: gpu.func @row_sums({{.*}}known_grid_size = array<i32: 2, 1, 1>
// CHECK: scf.for {{.*}} -> (vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>)
// CHECK-COUNT-4: llvm.store
// CHECK: scf.yield
// CHECK-COUNT-4: llvm.store
// CHECK: gpu.barrier
// CHECK: scf.if
// CHECK-COUNT-12: llvm.load
// CHECK-COUNT-4: llvm.store
// CHECK-NOT: llvm.store
//
// With one thread the sums are kept in memory: it owns too many columns.
// ONE: gpu.func @row_sums
// ONE: %[[IS_FIRST:.*]] = arith.cmpi eq
// ONE: arith.select %[[IS_FIRST]], {{.*}} : vector<
func.func private @row_sums(%x: tensor<2x16x512xf32>) -> (tensor<2x16x512xf32>, tensor<2x1x512xf32>) attributes {nn.kernel} {
  %y = nn.exp %x : tensor<2x16x512xf32>
  %s = nn.reduce sum %y [1] : tensor<2x16x512xf32> -> tensor<2x1x512xf32>
  return %y, %s : tensor<2x16x512xf32>, tensor<2x1x512xf32>
}

}
