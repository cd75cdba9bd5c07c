// A rounding to bf16 that somebody has written into an optimizer is integer
// arithmetic where the processor has no instruction for it: LLVM would call a
// function that not every library of a compiler has.
// RUN: fsdpc-opt %s --decompose-kernels --plan-kernels --plan-grids=threads=128 --emit-grids=rounds-bf16=false | FileCheck %s
// RUN: fsdpc-opt %s --decompose-kernels --plan-kernels --plan-grids=threads=128 --emit-grids | FileCheck %s --check-prefix=HARDWARE

// CHECK: gpu.func @sgd
// CHECK-NOT: arith.truncf {{.*}}bf16
// CHECK: arith.shrui {{.*}} : vector<4xi32>
// CHECK: arith.bitcast {{.*}} : vector<4xi16> to vector<4xbf16>
// HARDWARE: arith.truncf {{.*}} : vector<4xf32> to vector<4xbf16>
func.func private @sgd(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64) -> f32 attributes {nn.kernel, nn.optimizer} {
  %0 = arith.subf %p, %g : f32
  %1 = arith.truncf %0 : f32 to bf16
  %2 = arith.extf %1 : bf16 to f32
  return %2 : f32
}
