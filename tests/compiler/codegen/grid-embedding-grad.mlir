// embedding_grad on a grid of threads.
// RUN: fsdpc-opt %s --decompose-kernels --plan-kernels --plan-grids=threads=128 --emit-grids | FileCheck %s

// The block's shared memory holds the keys of 64 places (50, and up to a power
// of two), their number, and where those of two rows begin and end.
// CHECK: @embedding.shared() {{.*}} !llvm.array<304 x i8>
// 256 threads have a word of 512 columns each. A block has every 500th row.
// CHECK: gpu.func @embedding({{.*}}known_block_size = array<i32: 256, 1, 1>, known_grid_size = array<i32: 500, 1, 1>
// CHECK: scf.while
// A thread loads eight ids before it lists the first. The counter of the list
// is the only memory that is updated atomically.
// CHECK: gpu.barrier
// CHECK: scf.for
// CHECK-COUNT-8: llvm.load {{.*}} {alignment = 8 : i64} : !llvm.ptr -> i64
// CHECK-COUNT-8: llvm.atomicrmw add {{.*}} i32
// CHECK-NOT: atomicrmw
// CHECK: gpu.barrier
// A bitonic sort of the list.
// CHECK: llvm.intr.ctlz
// CHECK: scf.while
// CHECK: scf.for
// CHECK: arith.minsi
// CHECK: arith.maxsi
// CHECK: gpu.barrier
// The block's vectors, in turn. A list that does not hold all places of a row
// is filled again in this loop.
// CHECK: scf.for
// CHECK: %[[SUM:.*]] = scf.for {{.*}} -> (vector<2xf32>)
// CHECK: scf.if
// CHECK-COUNT-8: llvm.atomicrmw add
// CHECK-NOT: atomicrmw
// 32 gradients are loaded before the first is added, and the rest by four.
// CHECK: scf.for {{.*}} -> (vector<2xf32>)
// CHECK-COUNT-32: llvm.load {{.*}} {alignment = 4 : i64} : !llvm.ptr -> vector<2xi16>
// CHECK-COUNT-32: arith.addf
// CHECK: scf.yield
// CHECK: scf.for {{.*}} -> (vector<2xf32>)
// CHECK-COUNT-4: llvm.load {{.*}} {alignment = 4 : i64} : !llvm.ptr -> vector<2xi16>
// CHECK-COUNT-4: arith.addf
// CHECK-NOT: arith.addf
// The row is rounded once.
// CHECK: arith.truncf %[[SUM]]
// CHECK-NOT: arith.truncf
// CHECK: llvm.store
func.func private @embedding(%g: tensor<50x512xbf16>, %i: tensor<50xi64>) -> tensor<1000x512xbf16> attributes {nn.kernel} {
  %y = nn.embedding_grad %g, %i : tensor<50x512xbf16>, tensor<50xi64> -> tensor<1000x512xbf16>
  return %y : tensor<1000x512xbf16>
}

// A list has 32 KiB at most, and a block 1024 rows, however many ids and rows
// there are.
// CHECK: @large.shared() {{.*}} !llvm.array<40976 x i8>
// CHECK: gpu.func @large({{.*}}known_grid_size = array<i32: 4096, 1, 1>
func.func private @large(%g: tensor<20000x64xf32>, %i: tensor<20000xi64>) -> tensor<4194304x64xf32> attributes {nn.kernel} {
  %y = nn.embedding_grad %g, %i : tensor<20000x64xf32>, tensor<20000xi64> -> tensor<4194304x64xf32>
  return %y : tensor<4194304x64xf32>
}
