// A program whose results are summed works on groups of 16 elements on every
// processor, so that the order of additions does not depend on its vectors.
// RUN: fsdpc-opt %s --emit-kernels=lanes=8 | FileCheck %s

// The last group may reach past the parameter's end: elements from there on do
// not count. Halves are added until one number is left.
// CHECK-LABEL: func.func @sums(
// CHECK-SAME: %[[BEGIN:.*]]: i64, %[[END:.*]]: i64
// CHECK: scf.for %[[I:.*]] = %[[BEGIN]] to %[[END]] step
// CHECK: %[[LEFT:.*]] = arith.subi %[[END]], %[[I]]
// CHECK: arith.cmpi slt
// CHECK: llvm.load {{.*}} -> vector<16xf32>
// CHECK: arith.mulf {{.*}} : vector<16xf64>
// CHECK: arith.select {{.*}} : vector<16xi1>, vector<16xf64>
// CHECK: vector.shuffle {{.*}} [0, 1, 2, 3, 4, 5, 6, 7]
// CHECK: vector.shuffle {{.*}} [8, 9, 10, 11, 12, 13, 14, 15]
// CHECK: arith.addf {{.*}} : vector<8xf64>
// CHECK: arith.addf {{.*}} : vector<1xf64>
// CHECK: llvm.store {{.*}} : f64
// CHECK-NOT: llvm.store
func.func private @sums(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64) -> f64 attributes {nn.kernel, nn.optimizer} {
  %wide = arith.extf %p : f32 to f64
  %square = arith.mulf %wide, %wide : f64
  return %square : f64
}

// An optimizer reads the sums once, outside its loops.
// CHECK-LABEL: func.func @takes(
// CHECK: %[[SUM:.*]] = llvm.load {{.*}} -> f64
// CHECK: math.sqrt %{{.*}} : f64
// CHECK: scf.for
// CHECK-NOT: math.sqrt
func.func private @takes(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64) -> f32 attributes {nn.kernel, nn.optimizer} {
  %norm = math.sqrt %sum : f64
  %rate = arith.truncf %norm : f64 to f32
  %change = arith.mulf %rate, %g : f32
  %new = arith.subf %p, %change : f32
  return %new : f32
}
