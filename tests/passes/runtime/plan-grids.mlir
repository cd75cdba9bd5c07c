// How each template gets its grid, with 128 threads per block.
// RUN: fsdpc-opt %s --plan-kernels --plan-grids=threads=128 --verify-grids --split-input-file | FileCheck %s

// Vectors are as wide as the alignment of the buffers allows in every launch. An
// operand at byte 136 of the arena allows vectors of two f32, so all buffers
// use those.
// CHECK: func.func private @exp
// CHECK-SAME: nn.alignments = array<i64: 8, 16>, nn.grid = #nn.grid<blocks 1 threads 128 widths[2]>
module attributes {fsdp.arena = {bytes = 4096 : i64}} {
  func.func private @exp(%x: tensor<16xf32>) -> tensor<16xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<16xf32>
    return %y : tensor<16xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    %1 = rt.pointer arena + 64 bytes 64
    %2 = rt.pointer arena + 136 bytes 64
    rt.launch @exp(%0, %1)
    rt.launch @exp(%2, %0)
    return
  }
}

// -----

// A warp handles a short row, a block a long one. The stage with one element
// per row has no vectors.
// CHECK: func.func private @short
// CHECK-SAME: #nn.grid<blocks 25 threads 128 widths[4, 1] team 32>
func.func private @short(%x: tensor<100x256xf32>) -> tensor<100x1xf32> attributes {nn.kernel} {
  %y = nn.reduce sum %x [1] : tensor<100x256xf32> -> tensor<100x1xf32>
  return %y : tensor<100x1xf32>
}
// CHECK: func.func private @long
// CHECK-SAME: #nn.grid<blocks 100 threads 128 widths[4, 1] team 128>
func.func private @long(%x: tensor<100x4096xf32>) -> tensor<100x1xf32> attributes {nn.kernel} {
  %y = nn.reduce sum %x [1] : tensor<100x4096xf32> -> tensor<100x1xf32>
  return %y : tensor<100x1xf32>
}

// A block adds up 16 rows, and its threads keep the sums in registers.
// CHECK: func.func private @row_sums
// CHECK-SAME: #nn.grid<blocks 2 threads 128 widths[4] team 32 sums_in_registers true>
func.func private @row_sums(%x: tensor<2x16x512xf32>) -> (tensor<2x16x512xf32>, tensor<2x1x512xf32>) attributes {nn.kernel} {
  %y = nn.exp %x : tensor<2x16x512xf32>
  %s = nn.reduce sum %y [1] : tensor<2x16x512xf32> -> tensor<2x1x512xf32>
  return %y, %s : tensor<2x16x512xf32>, tensor<2x1x512xf32>
}

// Eight threads side by side fill a cache line; 16 of these lines share the rows.
// CHECK: func.func private @columns
// CHECK-SAME: #nn.grid<blocks 8 threads 128 widths[4] across 8>
func.func private @columns(%x: tensor<1000x256xf32>) -> tensor<1x256xf32> attributes {nn.kernel} {
  %y = nn.reduce sum %x [0] : tensor<1000x256xf32> -> tensor<1x256xf32>
  return %y : tensor<1x256xf32>
}

// A row of the table has a thread for each word, up to 512, and blocks own rows
// until there are as many threads as a GPU holds.
// CHECK: func.func private @embedding
// CHECK-SAME: #nn.grid<blocks 500 threads 256 widths[2] table_rows 2>
func.func private @embedding(%g: tensor<50x512xbf16>, %i: tensor<50xi64>) -> tensor<1000x512xbf16> attributes {nn.kernel} {
  %y = nn.embedding_grad %g, %i : tensor<50x512xbf16>, tensor<50xi64> -> tensor<1000x512xbf16>
  return %y : tensor<1000x512xbf16>
}

// The runtime decides how many blocks an optimizer has.
// CHECK: func.func private @sgd
// CHECK-SAME: #nn.grid<blocks 0 threads 128>
func.func private @sgd(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64) -> f32 attributes {nn.kernel, nn.optimizer} {
  return %p : f32
}
