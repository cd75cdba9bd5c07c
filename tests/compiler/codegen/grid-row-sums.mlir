// Sums over blocks of rows in shared memory.
// RUN: fsdpc-opt %s --plan-kernels --plan-grids=threads=256 --emit-grids | FileCheck %s

// The first stage sums vectors of 4, the last one vectors of 8. All sums of a
// round have slots of its widest one, and together at most 40 KiB: four vectors
// of 4 and one of 8 take that, and the second one of 8 has a round of its own.
// CHECK: llvm.mlir.global {{.*}} : !llvm.array<40960 x i8>
// CHECK: gpu.func @widths
// LLVM must not know that the row is a loop's counter (loop strength reduction).
// CHECK: scf.for
// CHECK-NEXT: llvm.inline_asm "", "=r,0"
func.func private @widths(%x: tensor<8192x512xbf16>) -> (tensor<128x1x512xf32>, tensor<8192x512xbf16>, tensor<128x1x512xf32>) attributes {nn.kernel} {
  %0 = nn.cast %x : tensor<8192x512xbf16> -> tensor<8192x512xf32>
  %1 = nn.reshape %0 : tensor<8192x512xf32> -> tensor<128x64x512xf32>
  %2 = nn.reduce sum %1 [1] : tensor<128x64x512xf32> -> tensor<128x1x512xf32>
  %3 = nn.reduce sum %0 [1] : tensor<8192x512xf32> -> tensor<8192x1xf32>
  %4 = nn.broadcast %3 : tensor<8192x1xf32> -> tensor<8192x512xf32>
  %5 = nn.sub %0, %4 : tensor<8192x512xf32>
  %6 = nn.cast %5 : tensor<8192x512xf32> -> tensor<8192x512xbf16>
  %7 = nn.cast %6 : tensor<8192x512xbf16> -> tensor<8192x512xf32>
  %8 = nn.reshape %7 : tensor<8192x512xf32> -> tensor<128x64x512xf32>
  %9 = nn.reduce sum %8 [1] : tensor<128x64x512xf32> -> tensor<128x1x512xf32>
  return %2, %6, %9 : tensor<128x1x512xf32>, tensor<8192x512xbf16>, tensor<128x1x512xf32>
}
