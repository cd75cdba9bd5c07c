// Each rule of verify-kernels, broken once, as an edit of a dump would.
// RUN: fsdpc-opt %s --verify-kernels --verify-diagnostics --split-input-file

// An edited plan that describes loops of the body is accepted: two runs of 24
// lanes per row instead of one of 48, and a larger grain.
func.func private @edited(%x: tensor<8x48xf32>) -> tensor<8x48xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 16 stages[24] extent 16 grain 16>} {
  %y = nn.exp %x : tensor<8x48xf32>
  return %y : tensor<8x48xf32>
}
// So is another size of blocks.
func.func private @blocks(%x: tensor<640xf32>) -> tensor<640xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 1 stages[640] extent 5 grain 1 blocks 5 block_lanes 128>} {
  %y = nn.exp %x : tensor<640xf32>
  return %y : tensor<640xf32>
}
// And a row in runs of 64, whose vectors add up in the order of a run of 256.
func.func private @order(%x: tensor<4x256xf32>) -> tensor<4x1xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<row rows 4 stages[4 * 64, 1] extent 4 grain 4>} {
  %y = nn.reduce sum %x [1] : tensor<4x256xf32> -> tensor<4x1xf32>
  return %y : tensor<4x1xf32>
}
// And a sum of rows in blocks down columns: both add one row after the other.
func.func private @blocks_of_rows(%x: tensor<4x32x64xf32>) -> tensor<4x1x64xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<column rows 4 stages[32 * 64] extent 4 grain 1 blocks 1 block_lanes 64>} {
  %y = nn.reduce sum %x [1] : tensor<4x32x64xf32> -> tensor<4x1x64xf32>
  return %y : tensor<4x1x64xf32>
}

// -----

// A sum down columns is not one along rows, which would add up in another order.
// expected-error@+1 {{kernel 'template' cannot be computed by the template 'row' of its plan; plan-kernels chooses one that fits}}
func.func private @template(%x: tensor<32x16xf32>) -> tensor<1x16xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<row rows 16 stages[32, 1] extent 16 grain 1>} {
  %y = nn.reduce sum %x [0] : tensor<32x16xf32> -> tensor<1x16xf32>
  return %y : tensor<1x16xf32>
}

// -----

// Shorter runs would add up a row in another order.
// expected-error@+1 {{kernel 'runs' has 32 lanes in stage 0 of its plan, which would add up a row in another order; runs of 256 elements are cut at multiples of 64 or not at all}}
func.func private @runs(%x: tensor<4x256xf32>) -> tensor<4x1xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<row rows 4 stages[8 * 32, 1] extent 4 grain 4>} {
  %y = nn.reduce sum %x [1] : tensor<4x256xf32> -> tensor<4x1xf32>
  return %y : tensor<4x1xf32>
}

// -----

// Every op of @microbatch is a library call, a view or a launch.
func.func @microbatch(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{is not a library call, view or launch; outline-kernels puts it into a kernel}}
  %y = nn.exp %x : tensor<4x4xf32>
  return
}

// -----

// A kernel consists of primitives.
func.func private @composite(%x: tensor<4x6xf32>) -> tensor<4x6xf32> attributes {nn.kernel} {
  // expected-error@+1 {{is a composite in kernel 'composite'; run decompose-kernels first}}
  %y = nn.softmax %x : tensor<4x6xf32>
  return %y : tensor<4x6xf32>
}

// -----

// A kernel has a plan.
// expected-error@+1 {{kernel 'unplanned' has no 'nn.plan'; run plan-kernels first}}
func.func private @unplanned(%x: tensor<4xf32>) -> tensor<4xf32> attributes {nn.kernel} {
  %y = nn.exp %x : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

// The template can compute the body.
// expected-error@+1 {{kernel 'sum' cannot be computed by the template 'map' of its plan}}
func.func private @sum(%x: tensor<4x6xf32>) -> tensor<4x1xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 4 stages[6] extent 4 grain 1>} {
  %y = nn.reduce sum %x [1] : tensor<4x6xf32> -> tensor<4x1xf32>
  return %y : tensor<4x1xf32>
}

// -----

// Lanes divide the elements of their stage.
// expected-error@+1 {{kernel 'lanes' has 500 lanes in stage 0 of its plan, which do not divide the stage's 768 elements}}
func.func private @lanes(%x: tensor<768xf32>) -> tensor<768xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 1 stages[500] extent 1 grain 1>} {
  %y = nn.exp %x : tensor<768xf32>
  return %y : tensor<768xf32>
}

// -----

// All stages are there: here the one that stores the sum is missing.
// expected-error@+1 {{kernel 'stages' has 1 stages in its plan, but its loops have 2}}
func.func private @stages(%x: tensor<4x6xf32>) -> tensor<4x1xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<row rows 4 stages[6] extent 4 grain 1>} {
  %y = nn.reduce sum %x [1] : tensor<4x6xf32> -> tensor<4x1xf32>
  return %y : tensor<4x1xf32>
}

// -----

// A loop around the lanes runs as often as the elements need.
// expected-error@+1 {{kernel 'outer' has 2 * 12 iterations in stage 0 of its plan, but its loops have 1 * 12}}
func.func private @outer(%x: tensor<4x12xf32>) -> tensor<4x1xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<row rows 4 stages[2 * 12, 1] extent 4 grain 1>} {
  %y = nn.reduce sum %x [1] : tensor<4x12xf32> -> tensor<4x1xf32>
  return %y : tensor<4x1xf32>
}

// -----

// Blocks consist of whole vectors.
// expected-error@+1 {{kernel 'vectors' has blocks of 100 lanes in its plan; vectors need multiples of 64}}
func.func private @vectors(%x: tensor<768xf32>) -> tensor<768xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 1 stages[768] extent 8 grain 1 blocks 8 block_lanes 100>} {
  %y = nn.exp %x : tensor<768xf32>
  return %y : tensor<768xf32>
}

// -----

// Blocks cover the lanes.
// expected-error@+1 {{kernel 'cover' has 5 as 'blocks' in its plan, but its loops have 6}}
func.func private @cover(%x: tensor<768xf32>) -> tensor<768xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 1 stages[768] extent 5 grain 1 blocks 5 block_lanes 128>} {
  %y = nn.exp %x : tensor<768xf32>
  return %y : tensor<768xf32>
}

// -----

// The extent follows from rows and blocks.
// expected-error@+1 {{kernel 'extent' has 7 as 'extent' in its plan, but its loops have 8}}
func.func private @extent(%x: tensor<8x48xf32>) -> tensor<8x48xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 8 stages[48] extent 7 grain 1>} {
  %y = nn.exp %x : tensor<8x48xf32>
  return %y : tensor<8x48xf32>
}

// -----

// Rows follow from the body.
// expected-error@+1 {{kernel 'rows' has 4 as 'rows' in its plan, but its loops have 8}}
func.func private @rows(%x: tensor<8x48xf32>) -> tensor<8x48xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 4 stages[48] extent 4 grain 1>} {
  %y = nn.exp %x : tensor<8x48xf32>
  return %y : tensor<8x48xf32>
}

// -----

// Blocks of rows are those of the sum.
// expected-error@+1 {{kernel 'row_blocks' has 8 as 'rows_per_block' in its plan, but its loops have 16}}
func.func private @row_blocks(%x: tensor<2x16x512xf32>) -> (tensor<2x16x512xf32>, tensor<2x1x512xf32>) attributes {nn.kernel, nn.plan = #nn.kernel_plan<row rows 32 stages[512] extent 4 grain 1 rows_per_block 8>} {
  %y = nn.exp %x : tensor<2x16x512xf32>
  %s = nn.reduce sum %y [1] : tensor<2x16x512xf32> -> tensor<2x1x512xf32>
  return %y, %s : tensor<2x16x512xf32>, tensor<2x1x512xf32>
}

// -----

// Only maps visit a block of all rows first.
// expected-error@+1 {{kernel 'inside' has 1 as 'rows_inside' in its plan, but its loops have 0}}
func.func private @inside(%x: tensor<100x128xf32>) -> tensor<1x128xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<column rows 1 stages[100 * 128] extent 2 grain 1 blocks 2 block_lanes 64 rows_inside true>} {
  %y = nn.reduce sum %x [0] : tensor<100x128xf32> -> tensor<1x128xf32>
  return %y : tensor<1x128xf32>
}

// -----

// A thread cannot take more steps at a time than there are.
// expected-error@+1 {{kernel 'grain' has grain 9 in its plan, more than its extent of 8}}
func.func private @grain(%x: tensor<8x48xf32>) -> tensor<8x48xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 8 stages[48] extent 8 grain 9>} {
  %y = nn.exp %x : tensor<8x48xf32>
  return %y : tensor<8x48xf32>
}

// -----

// The stack holds what a call keeps.
// expected-error@+1 {{kernel 'stack' has 100 bytes of stack in its plan, but needs 816}}
func.func private @stack(%g: tensor<50x96xbf16>, %i: tensor<50xi64>) -> tensor<10x96xbf16> attributes {nn.kernel, nn.plan = #nn.kernel_plan<embedding_grad rows 1 stages[50 * 96] extent 2 grain 2 blocks 2 block_lanes 64 stack 100>} {
  %y = nn.embedding_grad %g, %i : tensor<50x96xbf16>, tensor<50xi64> -> tensor<10x96xbf16>
  return %y : tensor<10x96xbf16>
}

// -----

// A value is kept for a later stage. A map has one.
func.func private @kept(%x: tensor<8x48xf32>) -> tensor<8x48xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 8 stages[48] extent 8 grain 1>} {
  // expected-error@+1 {{is marked 'nn.kept', but kernel 'kept' cannot keep it: it must be a row of f32 that a later stage reads}}
  %y = nn.exp %x {nn.kept} : tensor<8x48xf32>
  return %y : tensor<8x48xf32>
}

// -----

// The sum of a row is read by that row alone: here every row reads row 0's.
func.func private @other_row(%x: tensor<4x6xf32>) -> tensor<4x6xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<row rows 4 stages[6, 6] extent 4 grain 1>} {
  // expected-error@+1 {{is read by another row of its kernel 'other_row'}}
  %s = nn.reduce sum %x [1] : tensor<4x6xf32> -> tensor<4x1xf32>
  %0 = nn.slice %s [0, 0] by [1, 1] : tensor<4x1xf32> -> tensor<1x1xf32>
  %1 = nn.broadcast %0 : tensor<1x1xf32> -> tensor<4x6xf32>
  return %1 : tensor<4x6xf32>
}
