// The row template on a grid of threads.
// RUN: emit_grid %s 128 | FileCheck %s
// RUN: emit_grid %s 1 | FileCheck %s --check-prefix=ONE

// A short row is a warp's: four rows a block of 128 threads. Its sums take five
// shuffles and no shared memory.
// CHECK: // short: 25 : i64 blocks of 128 : i64
// CHECK: // long: 100 : i64 blocks of 128 : i64
// CHECK: gpu.func @short
// CHECK: scf.for {{.*}} -> (vector<4xf32>)
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK-NOT: gpu.shuffle
// CHECK-NOT: gpu.barrier
// CHECK: gpu.return
//
// One thread exchanges with nobody.
// ONE-NOT: gpu.shuffle
// ONE-NOT: gpu.barrier
// ONE-NOT: nvvm
func.func private @short(%x: tensor<100x256xf32>) -> tensor<100x1xf32> attributes {nn.kernel} {
  %y = nn.reduce sum %x [1] : tensor<100x256xf32> -> tensor<100x1xf32>
  return %y : tensor<100x1xf32>
}

// A long row is a block's: each warp's sum goes through shared memory, and every
// thread adds the four up in their order.
// CHECK: llvm.mlir.global internal @long.shared() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<32 x i8>
// CHECK: gpu.func @long
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: llvm.store {{.*}} : f32
// CHECK: gpu.barrier
// CHECK-COUNT-4: llvm.load {{.*}} -> f32
// One of them stores the row's element.
// CHECK: scf.if
// CHECK: llvm.store
func.func private @long(%x: tensor<100x4096xf32>) -> tensor<100x1xf32> attributes {nn.kernel} {
  %y = nn.reduce sum %x [1] : tensor<100x4096xf32> -> tensor<100x1xf32>
  return %y : tensor<100x1xf32>
}

// exp is computed again where it is stored, not kept in memory. Between loops
// that read a row and one that may store over it, the row's threads wait.
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

// Rows that are added up in blocks: a block of threads takes 16 rows, each warp
// every fourth of them. A thread keeps the sums of its four vectors of columns in
// registers; at the end the first warp adds those of all warps in their order.
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
// One thread adds to the result in memory: it owns too many columns.
// ONE: gpu.func @row_sums
// ONE: %[[IS_FIRST:.*]] = arith.cmpi eq
// ONE: arith.select %[[IS_FIRST]], {{.*}} : vector<
func.func private @row_sums(%x: tensor<2x16x512xf32>) -> (tensor<2x16x512xf32>, tensor<2x1x512xf32>) attributes {nn.kernel} {
  %y = nn.exp %x : tensor<2x16x512xf32>
  %s = nn.reduce sum %y [1] : tensor<2x16x512xf32> -> tensor<2x1x512xf32>
  return %y, %s : tensor<2x16x512xf32>, tensor<2x1x512xf32>
}
