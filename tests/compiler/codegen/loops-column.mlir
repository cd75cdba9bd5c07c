// The column template and embedding_grad as loops.
// RUN: fsdpc-opt %s --plan-kernels --emit-kernels | FileCheck %s

// Lanes are columns. Blocks of 256 rows are added up, then the sums of blocks.
// CHECK: func.func @column
// CHECK: arith.constant 256 : i64
// CHECK: scf.for {{.*}} iter_args({{.*}}) -> (vector<[[WIDTH:[0-9]+]]xf32>)
// CHECK: scf.for {{.*}} iter_args({{.*}}) -> (vector<[[WIDTH]]xf32>)
// CHECK: llvm.load {{.*}} -> vector<[[WIDTH]]xf32>
// CHECK: arith.addf {{.*}} : vector<[[WIDTH]]xf32>
// CHECK: arith.addf {{.*}} : vector<[[WIDTH]]xf32>
// CHECK-NOT: vector.shuffle
// CHECK: llvm.store {{.*}} : vector<[[WIDTH]]xf32>
func.func private @column(%x: tensor<1000x128xf32>) -> tensor<1x128xf32> attributes {nn.kernel} {
  %y = nn.reduce sum %x [0] : tensor<1000x128xf32> -> tensor<1x128xf32>
  return %y : tensor<1x128xf32>
}

// Each id's gradient is added to its row of the table, in the order of the ids.
// CHECK: func.func @embedding
// CHECK: scf.for
// CHECK: llvm.load {{.*}} -> i64
// CHECK: arith.addf
// CHECK: llvm.store
func.func private @embedding(%g: tensor<50x96xf32>, %i: tensor<50xi64>) -> tensor<10x96xf32> attributes {nn.kernel} {
  %y = nn.embedding_grad %g, %i : tensor<50x96xf32>, tensor<50xi64> -> tensor<10x96xf32>
  return %y : tensor<10x96xf32>
}
