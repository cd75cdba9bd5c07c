// A reduction is read in the same runs in every kernel, whatever else the kernel
// computes, since they decide the order in which it adds up.
// RUN: fsdpc-opt %s --plan-kernels --verify-kernels | FileCheck %s
// RUN: fsdpc-opt %s --plan-kernels --plan-grids=threads=256 --verify-grids | FileCheck %s --check-prefix=GRID

// Alone, the 240 elements of a row are one run of lanes.
// CHECK: func.func private @alone
// CHECK-SAME: #nn.kernel_plan<row rows 5 stages[240, 1]
// GRID: func.func private @alone
// GRID-SAME: widths[4, 1] team 32
func.func private @alone(%x: tensor<5x12x20xf32>) -> tensor<5x1x1xf32> attributes {nn.kernel} {
  %s = nn.reduce sum %x [1, 2] : tensor<5x12x20xf32> -> tensor<5x1x1xf32>
  return %s : tensor<5x1x1xf32>
}

// A factor that changes every 20 elements would cut the lanes there. The loop
// that reduces keeps its run and looks the factors up lane by lane.
// CHECK: func.func private @beside
// CHECK-SAME: #nn.kernel_plan<row rows 5 stages[240, 1]
// GRID: func.func private @beside
// GRID-SAME: widths[4, 1] team 32
func.func private @beside(%x: tensor<5x12x20xf32>, %b: tensor<12x1xf32>) -> (tensor<5x1x1xf32>, tensor<5x12x20xf32>) attributes {nn.kernel} {
  %s = nn.reduce sum %x [1, 2] : tensor<5x12x20xf32> -> tensor<5x1x1xf32>
  %0 = nn.broadcast %b : tensor<12x1xf32> -> tensor<5x12x20xf32>
  %y = nn.mul %x, %0 : tensor<5x12x20xf32>
  return %s, %y : tensor<5x1x1xf32>, tensor<5x12x20xf32>
}

// The loop is cut where the order does not notice: at multiples of 64.
// CHECK: func.func private @whole
// CHECK-SAME: #nn.kernel_plan<row rows 5 stages[3 * 128, 1]
func.func private @whole(%x: tensor<5x3x128xf32>, %b: tensor<3x1xf32>) -> (tensor<5x1x1xf32>, tensor<5x3x128xf32>) attributes {nn.kernel} {
  %s = nn.reduce sum %x [1, 2] : tensor<5x3x128xf32> -> tensor<5x1x1xf32>
  %0 = nn.broadcast %b : tensor<3x1xf32> -> tensor<5x3x128xf32>
  %y = nn.mul %x, %0 : tensor<5x3x128xf32>
  return %s, %y : tensor<5x1x1xf32>, tensor<5x3x128xf32>
}

// On a GPU, values of two bytes would allow vectors of 8, but what adds up a row
// of f32 elsewhere has 4.
// GRID: func.func private @bf16
// GRID-SAME: widths[4, 1] team 32
func.func private @bf16(%x: tensor<100x256xbf16>) -> tensor<100x1xf32> attributes {nn.kernel} {
  %0 = nn.cast %x : tensor<100x256xbf16> -> tensor<100x256xf32>
  %y = nn.reduce sum %0 [1] : tensor<100x256xf32> -> tensor<100x1xf32>
  return %y : tensor<100x1xf32>
}

// One block of rows alone is a sum down columns. Its lines share the rows as the
// teams do in a kernel that also visits the rows.
// GRID: func.func private @columns
// GRID-SAME: across 128
func.func private @columns(%x: tensor<1x60x768xf32>) -> tensor<1x1x768xf32> attributes {nn.kernel} {
  %s = nn.reduce sum %x [1] : tensor<1x60x768xf32> -> tensor<1x1x768xf32>
  return %s : tensor<1x1x768xf32>
}
// GRID: func.func private @teams
// GRID-SAME: team 128 sums_in_registers true
func.func private @teams(%x: tensor<1x60x768xf32>) -> (tensor<1x1x768xf32>, tensor<1x60x768xf32>) attributes {nn.kernel} {
  %s = nn.reduce sum %x [1] : tensor<1x60x768xf32> -> tensor<1x1x768xf32>
  %y = nn.exp %x : tensor<1x60x768xf32>
  return %s, %y : tensor<1x1x768xf32>, tensor<1x60x768xf32>
}
