// The row template as loops.
// RUN: fsdpc-opt %s --decompose-kernels --plan-kernels --emit-kernels | FileCheck %s

// Three loops per row. The second stores the exponentials in the result, and
// the third reads them back.
// CHECK: func.func @softmax
// CHECK: scf.for
// CHECK: scf.for {{.*}} iter_args
// CHECK: arith.maximumf
// CHECK: scf.for {{.*}} iter_args
// CHECK: math.exp
// CHECK: arith.addf
// CHECK: llvm.store
// CHECK: scf.for
// CHECK-NOT: math.exp
// CHECK: llvm.store
// CHECK: return
func.func private @softmax(%x: tensor<4x256xf32>) -> tensor<4x256xf32> attributes {nn.kernel} {
  %y = nn.softmax %x : tensor<4x256xf32>
  return %y : tensor<4x256xf32>
}

// The running values of a vector are combined in halves, in a fixed order.
// CHECK: func.func @sum
// CHECK: scf.for {{.*}} iter_args
// CHECK: arith.addf {{.*}} : vector<32xf32>
// CHECK: vector.shuffle
// CHECK: arith.addf {{.*}} : vector<16xf32>
// CHECK: vector.extract
// CHECK: llvm.store {{.*}} : f32
func.func private @sum(%x: tensor<4x256xf32>) -> tensor<4x1xf32> attributes {nn.kernel} {
  %y = nn.reduce sum %x [1] : tensor<4x256xf32> -> tensor<4x1xf32>
  return %y : tensor<4x1xf32>
}

// Rows that are added up in blocks: the sums are set to 0, then each of 16 rows
// is added where they lie, in the loop that computes it.
// CHECK: func.func @row_sums
// CHECK: scf.for
// CHECK: "llvm.intr.memset"
// CHECK: scf.for
// CHECK: scf.for
// CHECK: math.exp
// CHECK: llvm.store
// CHECK: arith.addf
// CHECK: llvm.store
func.func private @row_sums(%x: tensor<2x16x512xf32>) -> (tensor<2x16x512xf32>, tensor<2x1x512xf32>) attributes {nn.kernel} {
  %y = nn.exp %x : tensor<2x16x512xf32>
  %s = nn.reduce sum %y [1] : tensor<2x16x512xf32> -> tensor<2x1x512xf32>
  return %y, %s : tensor<2x16x512xf32>, tensor<2x1x512xf32>
}
