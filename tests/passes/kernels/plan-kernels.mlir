// How each template is planned.
// RUN: fsdpc-opt %s --decompose-kernels --plan-kernels --verify-kernels | FileCheck %s

// A map of the outputs: all elements are one run of lanes.
// CHECK: func.func private @map
// CHECK-SAME: nn.plan = #nn.kernel_plan<map rows 1 stages[384] extent 1 grain 1>
func.func private @map(%x: tensor<8x48xf32>) -> tensor<8x48xf32> attributes {nn.kernel} {
  %y = nn.exp %x : tensor<8x48xf32>
  return %y : tensor<8x48xf32>
}

// A bias repeats every 48 elements, so that is how long a run of lanes with
// linear addresses is.
// CHECK: func.func private @bias
// CHECK-SAME: #nn.kernel_plan<map rows 8 stages[48] extent 8 grain 8>
func.func private @bias(%x: tensor<8x48xf32>, %b: tensor<48xf32>) -> tensor<8x48xf32> attributes {nn.kernel} {
  %0 = nn.broadcast %b : tensor<48xf32> -> tensor<8x48xf32>
  %1 = nn.add %x, %0 : tensor<8x48xf32>
  return %1 : tensor<8x48xf32>
}

// More than 4096 lanes are cut into blocks, which threads divide.
// CHECK: func.func private @long
// CHECK-SAME: #nn.kernel_plan<map rows 1 stages[10000] extent 5 grain {{[0-9]+}} blocks 5 block_lanes 2048>
func.func private @long(%x: tensor<10000xf32>) -> tensor<10000xf32> attributes {nn.kernel} {
  %y = nn.exp %x : tensor<10000xf32>
  return %y : tensor<10000xf32>
}

// The lanes of a transpose gather. The range visits a block of all rows first.
// CHECK: func.func private @transpose
// CHECK-SAME: #nn.kernel_plan<map rows 64 stages[2048] extent 2048 grain {{[0-9]+}} blocks 32 block_lanes 64 rows_inside true>
func.func private @transpose(%x: tensor<2048x64xf32>) -> tensor<64x2048xf32> attributes {nn.kernel} {
  %y = nn.transpose %x [1, 0] : tensor<2048x64xf32> -> tensor<64x2048xf32>
  return %y : tensor<64x2048xf32>
}

// A softmax needs three loops: the maximum, the sum, the quotient. The second
// keeps the exponentials for the third, in the memory of the result.
// CHECK: func.func private @softmax
// CHECK-SAME: #nn.kernel_plan<row rows 4 stages[256, 256, 256] extent 4 grain 4>
// CHECK: nn.exp {{.*}} {nn.kept}
func.func private @softmax(%x: tensor<4x256xf32>) -> tensor<4x256xf32> attributes {nn.kernel} {
  %y = nn.softmax %x : tensor<4x256xf32>
  return %y : tensor<4x256xf32>
}

// A result with one element per row is a stage of its own.
// CHECK: func.func private @row
// CHECK-SAME: #nn.kernel_plan<row rows 4 stages[256, 1] extent 4 grain 4>
func.func private @row(%x: tensor<4x256xf32>) -> tensor<4x1xf32> attributes {nn.kernel} {
  %y = nn.reduce sum %x [1] : tensor<4x256xf32> -> tensor<4x1xf32>
  return %y : tensor<4x1xf32>
}

// The lanes of a sum over leading axes are columns, in blocks of 64.
// CHECK: func.func private @column
// CHECK-SAME: #nn.kernel_plan<column rows 1 stages[1000 * 100] extent 2 grain 1 blocks 2 block_lanes 64>
func.func private @column(%x: tensor<1000x100xf32>) -> tensor<1x100xf32> attributes {nn.kernel} {
  %y = nn.reduce sum %x [0] : tensor<1000x100xf32> -> tensor<1x100xf32>
  return %y : tensor<1x100xf32>
}

// Rows are added up in blocks of 16 by the kernel that computes them: two steps.
// CHECK: func.func private @row_sums
// CHECK-SAME: #nn.kernel_plan<row rows 32 stages[512] extent 2 grain 1 rows_per_block 16>
func.func private @row_sums(%x: tensor<2x16x512xf32>) -> (tensor<2x16x512xf32>, tensor<2x1x512xf32>) attributes {nn.kernel} {
  %y = nn.exp %x : tensor<2x16x512xf32>
  %s = nn.reduce sum %y [1] : tensor<2x16x512xf32> -> tensor<2x1x512xf32>
  return %y, %s : tensor<2x16x512xf32>, tensor<2x1x512xf32>
}

// In bf16, the sums of a row and the lists of places lie on the stack:
// 4 · (96 columns + 10 rows + 50 ids) + 3 · 64 bytes.
// CHECK: func.func private @embedding
// CHECK-SAME: #nn.kernel_plan<embedding_grad rows 1 stages[50 * 96] extent 2 grain 2 blocks 2 block_lanes 64 stack 816>
func.func private @embedding(%g: tensor<50x96xbf16>, %i: tensor<50xi64>) -> tensor<10x96xbf16> attributes {nn.kernel} {
  %y = nn.embedding_grad %g, %i : tensor<50x96xbf16>, tensor<50xi64> -> tensor<10x96xbf16>
  return %y : tensor<10x96xbf16>
}

// The runtime calls an optimizer over a range that it alone knows: no plan.
// CHECK: func.func private @sgd
// CHECK-NOT: nn.plan
func.func private @sgd(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64) -> f32 attributes {nn.kernel, nn.optimizer} {
  return %p : f32
}

// A kernel that reduces rows adds them up even if they are one block and its
// only result.
// CHECK: func.func private @oneBlockOfRows
// CHECK-SAME: rows_per_block 3
func.func private @oneBlockOfRows(%x: tensor<3x9xf32>) -> tensor<1x1x9xf32> attributes {nn.kernel} {
  %0 = nn.reduce max %x [1] : tensor<3x9xf32> -> tensor<3x1xf32>
  %1 = nn.broadcast %0 : tensor<3x1xf32> -> tensor<3x9xf32>
  %2 = nn.sub %x, %1 : tensor<3x9xf32>
  %3 = nn.reshape %2 : tensor<3x9xf32> -> tensor<1x3x9xf32>
  %4 = nn.reduce sum %3 [1] : tensor<1x3x9xf32> -> tensor<1x1x9xf32>
  return %4 : tensor<1x1x9xf32>
}
