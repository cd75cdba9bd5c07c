// embedding_grad on a grid of threads.
// RUN: fsdpc-opt %s --decompose-kernels --plan-kernels --plan-grids=threads=128 --emit-grids | FileCheck %s

// A block owns 16 rows of the table. Its threads search all ids for the first
// occurrence of their rows. In each turn they agree on the least, add its
// gradient to a sum in registers, and the thread that found it searches for its
// next.
// CHECK: gpu.func @embedding({{.*}}known_grid_size = array<i32: 63, 1, 1>
// CHECK: scf.for {{.*}} -> (i32)
// CHECK: scf.for
// CHECK: scf.while
// CHECK: gpu.shuffle
// CHECK: gpu.barrier
// CHECK: scf.condition
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<8xi16>
// CHECK: arith.addf {{.*}} : vector<8xf32>
// CHECK: scf.if
// CHECK: scf.for
// The row is rounded once.
// CHECK: arith.truncf
// CHECK-NOT: arith.truncf
// CHECK: llvm.store
// CHECK-NOT: atomic
func.func private @embedding(%g: tensor<50x512xbf16>, %i: tensor<50xi64>) -> tensor<1000x512xbf16> attributes {nn.kernel} {
  %y = nn.embedding_grad %g, %i : tensor<50x512xbf16>, tensor<50xi64> -> tensor<1000x512xbf16>
  return %y : tensor<1000x512xbf16>
}

// Each thread has eight of 1024 ids, which it loads before it looks at the
// first.
// CHECK: gpu.func @even
// CHECK: scf.for
// CHECK-COUNT-8: arith.minsi
// CHECK-NOT: arith.minsi
// CHECK: scf.yield
func.func private @even(%g: tensor<1024x512xbf16>, %i: tensor<1024xi64>) -> tensor<1000x512xbf16> attributes {nn.kernel} {
  %y = nn.embedding_grad %g, %i : tensor<1024x512xbf16>, tensor<1024xi64> -> tensor<1000x512xbf16>
  return %y : tensor<1000x512xbf16>
}
