// RUN: fsdpc-opt %s --recognise-composites | FileCheck %s

// The sum of -log_softmax(x)[target] is cross-entropy. The division that makes
// it a mean stays.
// CHECK-LABEL: func.func @loss
func.func @loss(%x: tensor<3x5xf32>, %t: tensor<3x1xi64>) -> tensor<1x1xf32> {
  // CHECK: %[[T:.*]] = nn.reshape %{{.*}} : tensor<3x1xi64> -> tensor<3xi64>
  // CHECK: nn.cross_entropy sum %{{.*}}, %[[T]]
  // CHECK: nn.div
  %n = nn.constant dense<3.0> : tensor<1x1xf32>
  %l = nn.log_softmax %x : tensor<3x5xf32>
  %p = nn.take_along_axis %l, %t : tensor<3x5xf32>, tensor<3x1xi64> -> tensor<3x1xf32>
  %g = nn.neg %p : tensor<3x1xf32>
  %s = nn.reduce sum %g [0, 1] : tensor<3x1xf32> -> tensor<1x1xf32>
  %y = nn.div %s, %n : tensor<1x1xf32>
  return %y : tensor<1x1xf32>
}

// Targets of the data name classes from 0 on, so code that wraps negative indices is
// dropped. Computed targets keep it.
// CHECK-LABEL: func.func @wrapped
func.func @wrapped(%x: tensor<3x5xf32>, %t: tensor<3x1xi64>) -> (tensor<1x1xf32>, tensor<1x1xf32>) {
  // CHECK: %[[T:.*]] = nn.reshape %arg1 : tensor<3x1xi64> -> tensor<3xi64>
  // CHECK: nn.cross_entropy sum %{{.*}}, %[[T]]
  // CHECK: %[[W:.*]] = nn.select
  // CHECK: %[[U:.*]] = nn.reshape %[[W]] : tensor<3x1xi64> -> tensor<3xi64>
  // CHECK: nn.cross_entropy sum %{{.*}}, %[[U]]
  %zero = nn.constant dense<0> : tensor<3x1xi64>
  %five = nn.constant dense<5> : tensor<3x1xi64>
  %l = nn.log_softmax %x : tensor<3x5xf32>
  %c = nn.cmp lt %t, %zero : tensor<3x1xi64> -> tensor<3x1xi1>
  %a = nn.add %t, %five : tensor<3x1xi64>
  %w = nn.select %c, %a, %t : tensor<3x1xi1>, tensor<3x1xi64>
  %p = nn.take_along_axis %l, %w : tensor<3x5xf32>, tensor<3x1xi64> -> tensor<3x1xf32>
  %s = nn.reduce sum %p [0, 1] : tensor<3x1xf32> -> tensor<1x1xf32>
  %t2 = nn.sub %t, %five : tensor<3x1xi64>
  %c2 = nn.cmp lt %t2, %zero : tensor<3x1xi64> -> tensor<3x1xi1>
  %a2 = nn.add %t2, %five : tensor<3x1xi64>
  %w2 = nn.select %c2, %a2, %t2 : tensor<3x1xi1>, tensor<3x1xi64>
  %p2 = nn.take_along_axis %l, %w2 : tensor<3x5xf32>, tensor<3x1xi64> -> tensor<3x1xf32>
  %s2 = nn.reduce sum %p2 [0, 1] : tensor<3x1xf32> -> tensor<1x1xf32>
  return %s, %s2 : tensor<1x1xf32>, tensor<1x1xf32>
}
