// An optimizer on a grid of threads. Buffers: the parameter, the gradient, the
// states, scale, segments and rates.
// RUN: fsdpc-opt %s --decompose-kernels --plan-kernels --plan-grids=threads=128 --emit-grids | FileCheck %s

// Block b updates segment b, whose third number selects the rates. The number
// of blocks is only known at run time.
// CHECK: gpu.func @sgd(%[[P:.*]]: !llvm.ptr, %[[G:.*]]: !llvm.ptr, %[[SCALE:.*]]: !llvm.ptr, %[[SEGMENTS:.*]]: !llvm.ptr, %[[RATES:.*]]: !llvm.ptr)
// CHECK: llvm.load %[[SCALE]]
// CHECK: %[[SEGMENT:.*]] = arith.muli {{.*}}, %c3_i64
// CHECK-COUNT-3: llvm.getelementptr %[[SEGMENTS]]
// CHECK: llvm.getelementptr %[[RATES]]
// Values that all elements share are computed before the loops.
// CHECK: arith.truncf {{.*}} : f64 to f32
// Single elements up to the first full vector, then vectors, then single ones.
// CHECK: scf.for
// CHECK: llvm.load {{.*}} -> f32
// CHECK: scf.for
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
// CHECK: llvm.store {{.*}} {alignment = 16 : i64} : vector<4xf32>
// CHECK: scf.for
func.func private @sgd(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64) -> f32 attributes {nn.kernel, nn.optimizer} {
  %0 = arith.truncf %lr : f64 to f32
  %1 = arith.mulf %g, %0 : f32
  %2 = arith.subf %p, %1 : f32
  return %2 : f32
}

// A program whose results are summed: a thread takes 16 elements at a time, and
// block b writes its sums from b * 256 on.
// CHECK: gpu.func @squares(%[[P:.*]]: !llvm.ptr, %[[G:.*]]: !llvm.ptr, %[[SCALE:.*]]: !llvm.ptr, %[[SEGMENTS:.*]]: !llvm.ptr, %[[RATES:.*]]: !llvm.ptr, %[[SUMS:.*]]: !llvm.ptr)
// CHECK: arith.muli {{.*}}, %c256_i64
// CHECK: %[[OWN:.*]] = llvm.getelementptr %[[SUMS]]
// CHECK: scf.for
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<16xf32>
// CHECK: %[[PLACE:.*]] = llvm.getelementptr %[[OWN]]
// CHECK: llvm.store {{.*}}, %[[PLACE]] : f64
func.func private @squares(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64) -> f64 attributes {nn.kernel, nn.optimizer} {
  %wide = arith.extf %p : f32 to f64
  %square = arith.mulf %wide, %wide : f64
  return %square : f64
}

// A program that takes such a sum reads that of its segment's member.
// CHECK: gpu.func @normed(%[[P:.*]]: !llvm.ptr, %[[G:.*]]: !llvm.ptr, %[[SCALE:.*]]: !llvm.ptr, %[[SEGMENTS:.*]]: !llvm.ptr, %[[RATES:.*]]: !llvm.ptr, %[[SUMS:.*]]: !llvm.ptr)
// CHECK: %[[MEMBER:.*]] = arith.muli {{.*}}, %c1_i64
// CHECK: llvm.getelementptr %[[SUMS]][%[[MEMBER]]]
func.func private @normed(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64) -> f32 attributes {nn.kernel, nn.optimizer} {
  %0 = arith.divf %lr, %sum : f64
  %1 = arith.truncf %0 : f64 to f32
  %2 = arith.mulf %g, %1 : f32
  %3 = arith.subf %p, %2 : f32
  return %3 : f32
}
