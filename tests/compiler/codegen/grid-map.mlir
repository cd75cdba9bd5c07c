// The map template on a grid of threads.
// RUN: fsdpc-opt %s --decompose-kernels --plan-kernels --plan-grids=threads=128 --emit-grids | FileCheck %s
// RUN: fsdpc-opt %s --decompose-kernels --plan-kernels --plan-grids=threads=1 --emit-grids | FileCheck %s --check-prefix=ONE

// Eight bf16 are 16 bytes: 1024 · 24 / 8 vectors, one per thread. The number of
// a vector fits 32 bits; only its row and lane are divided out.
// CHECK: gpu.func @bias({{.*}}) kernel attributes {known_block_size = array<i32: 128, 1, 1>, known_grid_size = array<i32: 24, 1, 1>}
// CHECK: %[[FLAT:.*]] = arith.addi {{.*}} : i32
// CHECK: %[[PER_ROW:.*]] = arith.constant 3 : i32
// CHECK: arith.divui %[[FLAT]], %[[PER_ROW]] : i32
// CHECK: arith.remui %[[FLAT]], %[[PER_ROW]] : i32
// CHECK-NOT: scf
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<8xi16>
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<8xi16>
// CHECK: llvm.store {{.*}} {alignment = 16 : i64} : vector<8xi16>
// CHECK: gpu.return
//
// With one thread per block, it takes 256 vectors in a loop.
// ONE: gpu.func @bias({{.*}}known_grid_size = array<i32: 12, 1, 1>
// ONE-NOT: gpu.thread_id
// ONE: scf.for
// ONE: llvm.load {{.*}} vector<8xi16>
func.func private @bias(%x: tensor<1024x24xbf16>, %b: tensor<24xbf16>) -> tensor<1024x24xbf16> attributes {nn.kernel} {
  %0 = nn.broadcast %b : tensor<24xbf16> -> tensor<1024x24xbf16>
  %1 = nn.add %x, %0 : tensor<1024x24xbf16>
  return %1 : tensor<1024x24xbf16>
}

// With 500 vectors of four f32, some threads of the last block are idle.
// CHECK: gpu.func @tail
// CHECK: %[[TOTAL:.*]] = arith.constant 500 : i32
// CHECK: %[[IS_INSIDE:.*]] = arith.cmpi ult, {{.*}}, %[[TOTAL]] : i32
// CHECK: scf.if %[[IS_INSIDE]] {
// CHECK: llvm.load {{.*}} vector<4xf32>
func.func private @tail(%x: tensor<2000xf32>) -> tensor<2000xf32> attributes {nn.kernel} {
  %0 = nn.neg %x : tensor<2000xf32>
  return %0 : tensor<2000xf32>
}

// Rows of 67 elements begin at any address, so lanes are single elements.
// CHECK: gpu.func @odd
// CHECK-NOT: vector<
// CHECK: gpu.return
func.func private @odd(%x: tensor<6x67xf32>, %b: tensor<67xf32>) -> tensor<6x67xf32> attributes {nn.kernel} {
  %0 = nn.broadcast %b : tensor<67xf32> -> tensor<6x67xf32>
  %1 = nn.add %x, %0 : tensor<6x67xf32>
  return %1 : tensor<6x67xf32>
}

// A vector lies within one part of a concat. Each part has its own branch.
// CHECK: gpu.func @parts
// CHECK: scf.if
// CHECK: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
// CHECK: llvm.store
// CHECK: }
// CHECK: scf.if
// CHECK: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
// CHECK: llvm.store
// CHECK: gpu.return
func.func private @parts(%x: tensor<64x8xf32>, %y: tensor<64x16xf32>) -> tensor<64x24xf32> attributes {nn.kernel} {
  %0 = nn.concat %x, %y {axis = 1} : (tensor<64x8xf32>, tensor<64x16xf32>) -> tensor<64x24xf32>
  return %0 : tensor<64x24xf32>
}
