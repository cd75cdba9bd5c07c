// RUN: fsdpc-opt %s --recognise-composites | FileCheck %s

// log(1 + exp(x)), in either order of the sum.
// CHECK-LABEL: func.func @softplus
func.func @softplus(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: %[[Y:.*]] = nn.softplus %arg0 : tensor<4xf32>
  // CHECK-NEXT: return %[[Y]]
  %one = nn.constant dense<1.0> : tensor<4xf32>
  %e = nn.exp %x : tensor<4xf32>
  %s = nn.add %e, %one : tensor<4xf32>
  %y = nn.log %s : tensor<4xf32>
  return %y : tensor<4xf32>
}

// log(1 + x) of any other x; log(2 + x) stays.
// CHECK-LABEL: func.func @log1p
func.func @log1p(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // CHECK-DAG: nn.log1p %arg0 : tensor<4xf32>
  // CHECK-DAG: nn.log %{{.*}} : tensor<4xf32>
  %one = nn.constant dense<1.0> : tensor<4xf32>
  %two = nn.constant dense<2.0> : tensor<4xf32>
  %s = nn.add %one, %x : tensor<4xf32>
  %y = nn.log %s : tensor<4xf32>
  %t = nn.add %two, %x : tensor<4xf32>
  %z = nn.log %t : tensor<4xf32>
  return %y, %z : tensor<4xf32>, tensor<4xf32>
}

// exp(x) - 1.
// CHECK-LABEL: func.func @expm1
func.func @expm1(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: nn.expm1 %arg0 : tensor<4xf32>
  %one = nn.constant dense<1.0> : tensor<4xf32>
  %e = nn.exp %x : tensor<4xf32>
  %y = nn.sub %e, %one : tensor<4xf32>
  return %y : tensor<4xf32>
}

// log(sigmoid(x)) is -softplus(-x).
// CHECK-LABEL: func.func @log_sigmoid
func.func @log_sigmoid(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: %[[N:.*]] = nn.neg %arg0
  // CHECK: %[[S:.*]] = nn.softplus %[[N]]
  // CHECK: %[[Y:.*]] = nn.neg %[[S]]
  // CHECK: return %[[Y]]
  %s = nn.sigmoid %x : tensor<4xf32>
  %y = nn.log %s : tensor<4xf32>
  return %y : tensor<4xf32>
}

// log(1 - sigmoid(x)) is -softplus(x), also where the difference is written as
// 1 + -sigmoid(x).
// CHECK-LABEL: func.func @log_one_minus_sigmoid
func.func @log_one_minus_sigmoid(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // CHECK-NOT: nn.log
  // CHECK-COUNT-2: nn.softplus %arg0
  // CHECK-NOT: nn.log
  %one = nn.constant dense<1.0> : tensor<4xf32>
  %s = nn.sigmoid %x : tensor<4xf32>
  %a = nn.sub %one, %s : tensor<4xf32>
  %y = nn.log %a : tensor<4xf32>
  %n = nn.neg %s : tensor<4xf32>
  %b = nn.add %n, %one : tensor<4xf32>
  %z = nn.log %b : tensor<4xf32>
  return %y, %z : tensor<4xf32>, tensor<4xf32>
}

// Binary cross-entropy with logits: max(x, 0) - x · t + log(1 + exp(-|x|)).
// CHECK-LABEL: func.func @bce
func.func @bce(%x: tensor<4xf32>, %t: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: %[[P:.*]] = nn.mul %arg0, %arg1
  // CHECK: %[[S:.*]] = nn.softplus %arg0
  // CHECK: %[[Y:.*]] = nn.sub %[[S]], %[[P]]
  // CHECK: return %[[Y]]
  %zero = nn.constant dense<0.0> : tensor<4xf32>
  %one = nn.constant dense<1.0> : tensor<4xf32>
  %r = nn.maximum %x, %zero : tensor<4xf32>
  %p = nn.mul %x, %t : tensor<4xf32>
  %d = nn.sub %r, %p : tensor<4xf32>
  %a = nn.abs %x : tensor<4xf32>
  %n = nn.neg %a : tensor<4xf32>
  %e = nn.exp %n : tensor<4xf32>
  %u = nn.add %one, %e : tensor<4xf32>
  %l = nn.log %u : tensor<4xf32>
  %y = nn.add %d, %l : tensor<4xf32>
  return %y : tensor<4xf32>
}

// min(x, 0) - log(1 + exp(-|x|)) is log(sigmoid(x)).
// CHECK-LABEL: func.func @min_form
func.func @min_form(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: %[[N:.*]] = nn.neg %arg0
  // CHECK: %[[S:.*]] = nn.softplus %[[N]]
  // CHECK: %[[Y:.*]] = nn.neg %[[S]]
  // CHECK: return %[[Y]]
  %zero = nn.constant dense<0.0> : tensor<4xf32>
  %one = nn.constant dense<1.0> : tensor<4xf32>
  %m = nn.minimum %zero, %x : tensor<4xf32>
  %a = nn.abs %x : tensor<4xf32>
  %n = nn.neg %a : tensor<4xf32>
  %e = nn.exp %n : tensor<4xf32>
  %u = nn.add %e, %one : tensor<4xf32>
  %l = nn.log %u : tensor<4xf32>
  %y = nn.sub %m, %l : tensor<4xf32>
  return %y : tensor<4xf32>
}

// The maximum of another value is no ramp of x.
// CHECK-LABEL: func.func @other_ramp
func.func @other_ramp(%x: tensor<4xf32>, %z: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: %[[R:.*]] = nn.relu %arg1
  // CHECK: nn.add %[[R]]
  %one = nn.constant dense<1.0> : tensor<4xf32>
  %r = nn.relu %z : tensor<4xf32>
  %a = nn.abs %x : tensor<4xf32>
  %n = nn.neg %a : tensor<4xf32>
  %e = nn.exp %n : tensor<4xf32>
  %u = nn.add %e, %one : tensor<4xf32>
  %l = nn.log %u : tensor<4xf32>
  %y = nn.add %r, %l : tensor<4xf32>
  return %y : tensor<4xf32>
}

// log(exp(x) + exp(y)).
// CHECK-LABEL: func.func @log_add_exp
func.func @log_add_exp(%x: tensor<4xf32>, %z: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: nn.abs
  // CHECK: nn.softplus
  // CHECK: nn.maximum %arg0, %arg1
  // CHECK-NOT: nn.exp
  %e = nn.exp %x : tensor<4xf32>
  %f = nn.exp %z : tensor<4xf32>
  %s = nn.add %e, %f : tensor<4xf32>
  %y = nn.log %s : tensor<4xf32>
  return %y : tensor<4xf32>
}

// Binary cross-entropy of probabilities keeps its value and gets the gradient
// that PyTorch has for it as one op. Labels of all ones fold into the signs.
// CHECK-LABEL: func.func @binary_cross_entropy
func.func @binary_cross_entropy(%p: tensor<4xf32>, %t: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-DAG: %[[P:.*]] = nn.stop_gradient %arg0
  // CHECK-DAG: %[[D:.*]] = nn.sub %[[P]], %arg1
  // CHECK-DAG: %[[Q:.*]] = nn.div %[[D]], %{{.*}}
  // CHECK-DAG: %[[S:.*]] = nn.stop_gradient %[[Q]]
  // CHECK: %[[C:.*]] = nn.sub %arg0, %[[P]]
  // CHECK: %[[M:.*]] = nn.mul %[[C]], %[[S]]
  // CHECK: %[[Y:.*]] = nn.add %{{.*}}, %[[M]]
  // CHECK: return %[[Y]]
  %one = nn.constant dense<1.0> : tensor<4xf32>
  %least = nn.constant dense<-100.0> : tensor<4xf32>
  %b = nn.sub %t, %one : tensor<4xf32>
  %n = nn.neg %p : tensor<4xf32>
  %c = nn.add %n, %one : tensor<4xf32>
  %l = nn.log %c : tensor<4xf32>
  %m = nn.maximum %l, %least : tensor<4xf32>
  %u = nn.mul %b, %m : tensor<4xf32>
  %h = nn.log %p : tensor<4xf32>
  %i = nn.maximum %h, %least : tensor<4xf32>
  %v = nn.mul %t, %i : tensor<4xf32>
  %y = nn.sub %u, %v : tensor<4xf32>
  return %y : tensor<4xf32>
}

// Other labels on both sides are another function.
// CHECK-LABEL: func.func @no_binary_cross_entropy
func.func @no_binary_cross_entropy(%p: tensor<4xf32>, %t: tensor<4xf32>, %s: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NOT: nn.stop_gradient
  %one = nn.constant dense<1.0> : tensor<4xf32>
  %least = nn.constant dense<-100.0> : tensor<4xf32>
  %b = nn.sub %t, %one : tensor<4xf32>
  %n = nn.neg %p : tensor<4xf32>
  %c = nn.log1p %n : tensor<4xf32>
  %m = nn.maximum %c, %least : tensor<4xf32>
  %u = nn.mul %b, %m : tensor<4xf32>
  %h = nn.log %p : tensor<4xf32>
  %i = nn.maximum %h, %least : tensor<4xf32>
  %v = nn.mul %s, %i : tensor<4xf32>
  %y = nn.sub %u, %v : tensor<4xf32>
  return %y : tensor<4xf32>
}
