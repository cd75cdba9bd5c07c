// RUN: fsdpc-opt %s | fsdpc-opt | FileCheck %s
// RUN: fsdpc-opt %s --mlir-print-op-generic | fsdpc-opt | FileCheck %s

// CHECK-LABEL: func.func @unary
func.func @unary(%x: tensor<2x3xf32>, %i: tensor<2xi64>, %c: tensor<2xi1>) {
  // CHECK: nn.neg %{{.*}} : tensor<2x3xf32>
  %0 = nn.neg %x : tensor<2x3xf32>
  // CHECK: nn.neg %{{.*}} : tensor<2xi64>
  %1 = nn.neg %i : tensor<2xi64>
  // CHECK: nn.abs
  %2 = nn.abs %x : tensor<2x3xf32>
  // CHECK: nn.exp
  %3 = nn.exp %x : tensor<2x3xf32>
  // CHECK: nn.log
  %4 = nn.log %x : tensor<2x3xf32>
  // CHECK: nn.sqrt
  %5 = nn.sqrt %x : tensor<2x3xf32>
  // CHECK: nn.rsqrt
  %6 = nn.rsqrt %x : tensor<2x3xf32>
  // CHECK: nn.tanh
  %7 = nn.tanh %x : tensor<2x3xf32>
  // CHECK: nn.erf
  %8 = nn.erf %x : tensor<2x3xf32>
  // CHECK: nn.sigmoid
  %9 = nn.sigmoid %x : tensor<2x3xf32>
  // CHECK: nn.relu
  %10 = nn.relu %x : tensor<2x3xf32>
  // CHECK: nn.sin
  %11 = nn.sin %x : tensor<2x3xf32>
  // CHECK: nn.atan
  %atan = nn.atan %x : tensor<2x3xf32>
  // CHECK: nn.cos
  %12 = nn.cos %x : tensor<2x3xf32>
  // CHECK: nn.floor
  %13 = nn.floor %x : tensor<2x3xf32>
  // CHECK: nn.not %{{.*}} : tensor<2xi1>
  %14 = nn.not %c : tensor<2xi1>
  // CHECK: nn.cast %{{.*}} : tensor<2xi64> -> tensor<2xbf16>
  %15 = nn.cast %i : tensor<2xi64> -> tensor<2xbf16>
  // CHECK: nn.gelu erf %{{.*}} : tensor<2x3xf32>
  %16 = nn.gelu erf %x : tensor<2x3xf32>
  // CHECK: nn.gelu_grad tanh %{{.*}}, %{{.*}} : tensor<2x3xf32>
  %17 = nn.gelu_grad tanh %x, %0 : tensor<2x3xf32>
  // CHECK: nn.silu %{{.*}} : tensor<2x3xf32>
  %18 = nn.silu %x : tensor<2x3xf32>
  // CHECK: nn.silu_grad %{{.*}}, %{{.*}} : tensor<2x3xf32>
  %19 = nn.silu_grad %x, %0 : tensor<2x3xf32>
  // CHECK: nn.round
  %20 = nn.round %x : tensor<2x3xf32>
  // CHECK: nn.stop_gradient
  %stopped = nn.stop_gradient %x : tensor<2x3xf32>
  // CHECK: nn.expm1
  %21 = nn.expm1 %x : tensor<2x3xf32>
  // CHECK: nn.log1p
  %22 = nn.log1p %x : tensor<2x3xf32>
  // CHECK: nn.softplus
  %23 = nn.softplus %x : tensor<2x3xf32>
  return
}

// CHECK-LABEL: func.func @binary
func.func @binary(%x: tensor<3xf32>, %i: tensor<3xi64>, %c: tensor<3xi1>) {
  // CHECK: nn.add %{{.*}}, %{{.*}} : tensor<3xf32>
  %0 = nn.add %x, %x : tensor<3xf32>
  // CHECK: nn.sub
  %1 = nn.sub %x, %x : tensor<3xf32>
  // CHECK: nn.mul %{{.*}}, %{{.*}} : tensor<3xi64>
  %2 = nn.mul %i, %i : tensor<3xi64>
  // CHECK: nn.div
  %3 = nn.div %x, %x : tensor<3xf32>
  // CHECK: nn.mod
  %4 = nn.mod %i, %i : tensor<3xi64>
  // CHECK: nn.pow
  %5 = nn.pow %x, %x : tensor<3xf32>
  // CHECK: nn.maximum
  %6 = nn.maximum %x, %x : tensor<3xf32>
  // CHECK: nn.minimum
  %7 = nn.minimum %x, %x : tensor<3xf32>
  // CHECK: nn.and %{{.*}}, %{{.*}} : tensor<3xi1>
  %8 = nn.and %c, %c : tensor<3xi1>
  // CHECK: nn.or
  %9 = nn.or %c, %c : tensor<3xi1>
  // CHECK: nn.xor
  %10 = nn.xor %c, %c : tensor<3xi1>
  // CHECK: nn.cmp le %{{.*}}, %{{.*}} : tensor<3xf32> -> tensor<3xi1>
  %11 = nn.cmp le %x, %x : tensor<3xf32> -> tensor<3xi1>
  // CHECK: nn.select %{{.*}}, %{{.*}}, %{{.*}} : tensor<3xi1>, tensor<3xf32>
  %12 = nn.select %c, %x, %0 : tensor<3xi1>, tensor<3xf32>
  return
}

// CHECK-LABEL: func.func @dropout
func.func @dropout(%x: tensor<3xf32>, %r: tensor<4xi32>) {
  // CHECK: nn.dropout %{{.*}}, %{{.*}} {op = 7 : i64, ratio = 1.000000e-01 : f64} : tensor<3xf32>, tensor<4xi32>
  %0 = nn.dropout %x, %r {op = 7 : i64, ratio = 0.1 : f64} : tensor<3xf32>, tensor<4xi32>
  // CHECK: nn.uniform %{{.*}} {op = 8 : i64} : tensor<4xi32> -> tensor<3xf32>
  %1 = nn.uniform %r {op = 8 : i64} : tensor<4xi32> -> tensor<3xf32>
  return
}
