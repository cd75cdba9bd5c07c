// Each rule of verify-grids, broken once, as an edit of a dump would.
// RUN: fsdpc-opt %s --verify-grids --verify-diagnostics --split-input-file

// Grids that compute their kernels are accepted, whatever the planner would
// choose: narrower vectors.
func.func private @narrow(%x: tensor<2048xf32>) -> tensor<2048xf32> attributes {nn.kernel, nn.grid = #nn.grid<blocks 4 threads 256 widths[2]>, nn.plan = #nn.kernel_plan<map rows 1 stages[2048] extent 1 grain 1>} {
  %y = nn.neg %x : tensor<2048xf32>
  return %y : tensor<2048xf32>
}

// -----

// Which threads share a row follows from the row: here a warp, not the block.
// expected-error@+1 {{kernel 'team' has 100 as 'blocks' in its grid, but needs 25}}
func.func private @team(%x: tensor<100x256xf32>) -> tensor<100x1xf32> attributes {nn.kernel, nn.grid = #nn.grid<blocks 100 threads 128 widths[4, 1] team 128>, nn.plan = #nn.kernel_plan<row rows 100 stages[256, 1] extent 100 grain 1>} {
  %y = nn.reduce sum %x [1] : tensor<100x256xf32> -> tensor<100x1xf32>
  return %y : tensor<100x1xf32>
}

// -----

// And so do the vectors that they add up.
// expected-error@+1 {{kernel 'vectors' has vectors in its grid that would add up a row in another order}}
func.func private @vectors(%x: tensor<100x256xf32>) -> tensor<100x1xf32> attributes {nn.kernel, nn.grid = #nn.grid<blocks 25 threads 128 widths[2, 1] team 32>, nn.plan = #nn.kernel_plan<row rows 100 stages[256, 1] extent 100 grain 1>} {
  %y = nn.reduce sum %x [1] : tensor<100x256xf32> -> tensor<100x1xf32>
  return %y : tensor<100x1xf32>
}

// -----

// A program for a GPU has grids.
module attributes {fsdp.options = {target = "cuda"}} {
  // expected-error@+1 {{kernel 'none' has no 'nn.grid'; run plan-grids first}}
  func.func private @none(%x: tensor<2048xf32>) -> tensor<2048xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 1 stages[2048] extent 1 grain 1>} {
    %y = nn.neg %x : tensor<2048xf32>
    return %y : tensor<2048xf32>
  }
}

// -----

// An emulated block is one thread.
module attributes {fsdp.options = {target = "cuda-emulation"}} {
  // expected-error@+1 {{kernel 'emulated' has 256 threads per block in its grid; an emulated block has 1}}
  func.func private @emulated(%x: tensor<2048xf32>) -> tensor<2048xf32> attributes {nn.kernel, nn.grid = #nn.grid<blocks 2 threads 256 widths[4]>, nn.plan = #nn.kernel_plan<map rows 1 stages[2048] extent 1 grain 1>} {
    %y = nn.neg %x : tensor<2048xf32>
    return %y : tensor<2048xf32>
  }
}

// -----

// Blocks cover the kernel.
// expected-error@+1 {{kernel 'blocks' has 1 as 'blocks' in its grid, but needs 2}}
func.func private @blocks(%x: tensor<2048xf32>) -> tensor<2048xf32> attributes {nn.kernel, nn.grid = #nn.grid<blocks 1 threads 256 widths[4]>, nn.plan = #nn.kernel_plan<map rows 1 stages[2048] extent 1 grain 1>} {
  %y = nn.neg %x : tensor<2048xf32>
  return %y : tensor<2048xf32>
}

// -----

// Vectors are aligned: rows of 67 elements begin anywhere.
// expected-error@+1 {{kernel 'odd' cannot compute vectors of 2 lanes in stage 0 of its grid; some access is not aligned to them}}
func.func private @odd(%x: tensor<6x67xf32>, %b: tensor<67xf32>) -> tensor<6x67xf32> attributes {nn.kernel, nn.grid = #nn.grid<blocks 1 threads 256 widths[2]>, nn.plan = #nn.kernel_plan<map rows 6 stages[67] extent 6 grain 1>} {
  %0 = nn.broadcast %b : tensor<67xf32> -> tensor<6x67xf32>
  %1 = nn.add %x, %0 : tensor<6x67xf32>
  return %1 : tensor<6x67xf32>
}

// -----

// There is a width per stage.
// expected-error@+1 {{kernel 'widths' has 1 widths in its grid for 2 stages}}
func.func private @widths(%x: tensor<100x256xf32>) -> tensor<100x1xf32> attributes {nn.kernel, nn.grid = #nn.grid<blocks 100 threads 128 widths[4] team 128>, nn.plan = #nn.kernel_plan<row rows 100 stages[256, 1] extent 100 grain 1>} {
  %y = nn.reduce sum %x [1] : tensor<100x256xf32> -> tensor<100x1xf32>
  return %y : tensor<100x1xf32>
}

// -----

// Blocks consist of whole warps.
// expected-error@+1 {{kernel 'threads' has 100 threads per block in its grid; it must be 1, or a power of two from 32 to 1024}}
func.func private @threads(%x: tensor<2048xf32>) -> tensor<2048xf32> attributes {nn.kernel, nn.grid = #nn.grid<blocks 6 threads 100 widths[4]>, nn.plan = #nn.kernel_plan<map rows 1 stages[2048] extent 1 grain 1>} {
  %y = nn.neg %x : tensor<2048xf32>
  return %y : tensor<2048xf32>
}

// -----

// The lines that share a sum of columns follow from it: 16 lines would share 9
// rows.
// expected-error@+1 {{kernel 'lines' has 8 as 'blocks' in its grid, but needs 4}}
func.func private @lines(%x: tensor<9x256xf32>) -> tensor<1x256xf32> attributes {nn.kernel, nn.grid = #nn.grid<blocks 8 threads 128 widths[4] across 8>, nn.plan = #nn.kernel_plan<column rows 1 stages[9 * 256] extent 4 grain 1 blocks 4 block_lanes 64>} {
  %y = nn.reduce sum %x [0] : tensor<9x256xf32> -> tensor<1x256xf32>
  return %y : tensor<1x256xf32>
}

// -----

// Only registers hold the sums of several teams.
// expected-error@+1 {{kernel 'registers' has 0 as 'sums_in_registers' in its grid, but needs 1}}
func.func private @registers(%x: tensor<2x16x512xf32>) -> (tensor<2x16x512xf32>, tensor<2x1x512xf32>) attributes {nn.kernel, nn.grid = #nn.grid<blocks 2 threads 128 widths[4] team 32>, nn.plan = #nn.kernel_plan<row rows 32 stages[512] extent 2 grain 1 rows_per_block 16>} {
  %y = nn.exp %x : tensor<2x16x512xf32>
  %s = nn.reduce sum %y [1] : tensor<2x16x512xf32> -> tensor<2x1x512xf32>
  return %y, %s : tensor<2x16x512xf32>, tensor<2x1x512xf32>
}

// -----

// Registers are few: each thread of the block would own 128 columns.
// expected-error@+1 {{kernel 'many' adds up 128 sums per thread in registers in its grid; more than 64 do not fit}}
func.func private @many(%x: tensor<2x16x16384xf32>) -> (tensor<2x16x16384xf32>, tensor<2x1x16384xf32>) attributes {nn.kernel, nn.grid = #nn.grid<blocks 2 threads 128 widths[4] team 128 sums_in_registers true>, nn.plan = #nn.kernel_plan<row rows 32 stages[16384] extent 2 grain 1 rows_per_block 16>} {
  %y = nn.exp %x : tensor<2x16x16384xf32>
  %s = nn.reduce sum %y [1] : tensor<2x16x16384xf32> -> tensor<2x1x16384xf32>
  return %y, %s : tensor<2x16x16384xf32>, tensor<2x1x16384xf32>
}

// -----

// The rows of a table that a block owns are few.
// expected-error@+1 {{kernel 'table' has 2000 rows of the table per block in its grid; at most 1024 fit}}
func.func private @table(%g: tensor<50x512xbf16>, %i: tensor<50xi64>) -> tensor<4000x512xbf16> attributes {nn.kernel, nn.grid = #nn.grid<blocks 2 threads 128 widths[8] table_rows 2000>, nn.plan = #nn.kernel_plan<embedding_grad rows 1 stages[50 * 512] extent 8 grain 1 blocks 8 block_lanes 64 stack 19000>} {
  %y = nn.embedding_grad %g, %i : tensor<50x512xbf16>, tensor<50xi64> -> tensor<4000x512xbf16>
  return %y : tensor<4000x512xbf16>
}

// -----

// A thread keeps no values in memory.
// expected-error@+1 {{kernel 'kept' keeps values ('nn.kept'), which a grid cannot do}}
func.func private @kept(%x: tensor<4x256xf32>) -> tensor<4x256xf32> attributes {nn.kernel, nn.grid = #nn.grid<blocks 4 threads 128 widths[4, 4] team 128>, nn.plan = #nn.kernel_plan<row rows 4 stages[256, 256] extent 4 grain 1>} {
  %e = nn.exp %x {nn.kept} : tensor<4x256xf32>
  %s = nn.reduce sum %e [1] : tensor<4x256xf32> -> tensor<4x1xf32>
  %b = nn.broadcast %s : tensor<4x1xf32> -> tensor<4x256xf32>
  %y = nn.div %e, %b : tensor<4x256xf32>
  return %y : tensor<4x256xf32>
}

// -----

// Alignments hold in every launch.
module attributes {fsdp.arena = {bytes = 4096 : i64}} {
  // expected-error@+1 {{kernel 'exp' has 16 in 'nn.alignments' for buffer 0, but a launch passes an address that only 8 divides}}
  func.func private @exp(%x: tensor<16xf32>) -> tensor<16xf32> attributes {nn.kernel, nn.alignments = array<i64: 16, 16>, nn.grid = #nn.grid<blocks 1 threads 256 widths[4]>, nn.plan = #nn.kernel_plan<map rows 1 stages[16] extent 1 grain 1>} {
    %y = nn.exp %x : tensor<16xf32>
    return %y : tensor<16xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    %1 = rt.pointer arena + 136 bytes 64
    rt.launch @exp(%1, %0)
    return
  }
}

// -----

// There is an alignment per buffer.
module attributes {fsdp.arena = {bytes = 4096 : i64}} {
  // expected-error@+1 {{kernel 'exp' has 1 numbers in 'nn.alignments' for 2 buffers}}
  func.func private @exp(%x: tensor<16xf32>) -> tensor<16xf32> attributes {nn.kernel, nn.alignments = array<i64: 16>, nn.grid = #nn.grid<blocks 1 threads 256 widths[4]>, nn.plan = #nn.kernel_plan<map rows 1 stages[16] extent 1 grain 1>} {
    %y = nn.exp %x : tensor<16xf32>
    return %y : tensor<16xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    %1 = rt.pointer arena + 64 bytes 64
    rt.launch @exp(%1, %0)
    return
  }
}
