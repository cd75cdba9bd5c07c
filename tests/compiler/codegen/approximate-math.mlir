// --math=fast: tanh, exp and divisions become one instruction per lane.
// RUN: fsdpc-opt %s --decompose-kernels --plan-kernels --plan-grids=threads=128 --emit-grids --approximate-math --expand-math --approximate-math | FileCheck %s
// Without the pass there is no such instruction.
// RUN: fsdpc-opt %s --decompose-kernels --plan-kernels --plan-grids=threads=128 --emit-grids --expand-math | FileCheck %s --check-prefix=EXACT
// EXACT-NOT: llvm.inline_asm

// CHECK-LABEL: gpu.func @tanh
// CHECK-COUNT-4: llvm.inline_asm "tanh.approx.f32 $0, $1;", "=f,f"
// CHECK-NOT: llvm.inline_asm
// CHECK: llvm.store
func.func private @tanh(%x: tensor<2048xf32>) -> tensor<2048xf32> attributes {nn.kernel} {
  %0 = nn.tanh %x : tensor<2048xf32>
  return %0 : tensor<2048xf32>
}

// A sigmoid: e^x is 2^(x · log2 e), and a quotient is a product with the
// reciprocal.
// CHECK-LABEL: gpu.func @sigmoid
// CHECK: arith.mulf {{.*}} : vector<4xf32>
// CHECK-COUNT-4: llvm.inline_asm "ex2.approx.ftz.f32 $0, $1;", "=f,f"
// CHECK-COUNT-4: llvm.inline_asm "rcp.approx.ftz.f32 $0, $1;", "=f,f"
// CHECK-NOT: arith.divf
// CHECK: llvm.store
func.func private @sigmoid(%x: tensor<2048xf32>) -> tensor<2048xf32> attributes {nn.kernel} {
  %0 = nn.sigmoid %x : tensor<2048xf32>
  return %0 : tensor<2048xf32>
}

// The division of expand-math's erf.
// CHECK-LABEL: gpu.func @erf
// CHECK-COUNT-4: llvm.inline_asm "rcp.approx.ftz.f32 $0, $1;", "=f,f"
// CHECK-NOT: arith.divf
// CHECK: llvm.store
func.func private @erf(%x: tensor<2048xf32>) -> tensor<2048xf32> attributes {nn.kernel} {
  %0 = nn.erf %x : tensor<2048xf32>
  return %0 : tensor<2048xf32>
}

// A quotient that is rounded down stays exact.
// CHECK-LABEL: gpu.func @mod
// CHECK-NOT: llvm.inline_asm
// CHECK: arith.divf
// CHECK: math.floor
// CHECK-NOT: llvm.inline_asm
// CHECK: llvm.store
func.func private @mod(%x: tensor<2048xf32>, %y: tensor<2048xf32>) -> tensor<2048xf32> attributes {nn.kernel} {
  %0 = nn.mod %x, %y : tensor<2048xf32>
  return %0 : tensor<2048xf32>
}

// An optimizer updates f32 and stays exact.
// CHECK-LABEL: gpu.func @scaled
// CHECK-NOT: llvm.inline_asm
// CHECK: arith.divf
func.func private @scaled(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64) -> f32 attributes {nn.kernel, nn.optimizer} {
  %0 = arith.truncf %lr : f64 to f32
  %1 = arith.divf %g, %0 : f32
  %2 = arith.subf %p, %1 : f32
  return %2 : f32
}
