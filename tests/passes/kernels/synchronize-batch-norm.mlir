// RUN: fsdpc-opt %s --synchronize-batch-norm --split-input-file --verify-diagnostics | FileCheck %s

// The rank's moments and a 1 are summed over ranks; the norm reads the means.
// The running statistics take them once, and the factor of the unbiased
// variance follows from the elements of all ranks, not from those of one.
// CHECK-LABEL: func.func @microbatch
// CHECK-SAME: %[[X:.*]]: tensor<2x3xf32> {fsdp.input = "x"}
// CHECK: nn.reduce sum %[[X]] [0]
// CHECK-DAG: %[[ONE:.*]] = nn.constant {{.*}}dense<1.000000e+00> : tensor<1xf64>
// CHECK: %[[OWN:.*]] = nn.concat %{{.*}}, %{{.*}}, %[[ONE]] {axis = 0 : i64, fsdp.unit = @a} : (tensor<3xf64>, tensor<3xf64>, tensor<1xf64>) -> tensor<7xf64>
// CHECK: %[[ALL:.*]] = fsdp.all_reduce %[[OWN]] {fsdp.unit = @a} : tensor<7xf64>
// CHECK: %[[RANKS:.*]] = nn.slice %[[ALL]] [6] by [1]
// CHECK: %[[EACH:.*]] = nn.broadcast %[[RANKS]]
// CHECK: nn.div %{{.*}}, %[[EACH]]
// CHECK: nn.mul %[[EACH]]
// CHECK-NOT: nn.batch_norm
// CHECK: fsdp.update_statistics @mean, %{{.*}} {fsdp.unit = @a, mode = "local", momentum = 1.000000e-01 : f64}
// CHECK: fsdp.update_statistics @var, %{{.*}} {fsdp.unit = @a, mode = "local", momentum = 1.000000e-01 : f64}

// The gradient sums its two sums. Those of weight and bias stay the rank's own,
// as the reduction of gradients sums them.
// CHECK: %[[DB:.*]] = nn.reduce sum %[[X]] [0] {fsdp.backward, fsdp.unit = @a}
// CHECK: fsdp.all_reduce %{{.*}} {fsdp.backward, fsdp.unit = @a} : tensor<7xf64>
// CHECK-NOT: nn.batch_norm_grad
// CHECK: %[[DBIAS:.*]] = nn.reshape %[[DB]]
// CHECK: fsdp.gradient @bias, %[[DBIAS]]

// An evaluation has statistics of its own.
// CHECK-LABEL: func.func @evaluate
// CHECK-NOT: fsdp.all_reduce
// CHECK: nn.batch_norm
module attributes {fsdp.options = {"sync-batchnorm" = true}} {
  fsdp.unit @a
  fsdp.parameter @bias : tensor<3xf32> trainable unit @a
  fsdp.buffer @mean : tensor<3xf32> {rule = "zeros"}
  fsdp.buffer @var : tensor<3xf32> {rule = "ones"}
  func.func @microbatch(%x: tensor<2x3xf32> {fsdp.input = "x"}, %w: tensor<3xf32> {fsdp.input = "w"}, %b: tensor<3xf32> {fsdp.input = "b"}) {
    %y, %mean, %variance = nn.batch_norm %x, %w, %b {epsilon = 1.0e-5 : f64, fsdp.unit = @a} : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>
    %two = nn.constant {fsdp.unit = @a} dense<2.0> : tensor<3xf32>
    %unbiased = nn.mul %variance, %two {fsdp.unit = @a} : tensor<3xf32>
    fsdp.update_statistics @mean, %mean {momentum = 0.1 : f64, fsdp.unit = @a} : tensor<3xf32>
    fsdp.update_statistics @var, %unbiased {momentum = 0.1 : f64, fsdp.unit = @a} : tensor<3xf32>
    %dx, %dw, %db = nn.batch_norm_grad %x, %y, %w, %mean, %variance {epsilon = 1.0e-5 : f64, fsdp.backward, fsdp.unit = @a} : tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32> -> tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>
    fsdp.gradient @bias, %db {fsdp.backward, fsdp.unit = @a} : tensor<3xf32>
    fsdp.report_output "dx" %dx : tensor<2x3xf32>
    return
  }
  func.func @evaluate(%x: tensor<2x3xf32> {fsdp.input = "x"}, %w: tensor<3xf32> {fsdp.input = "w"}, %b: tensor<3xf32> {fsdp.input = "b"}) {
    %y, %mean, %variance = nn.batch_norm %x, %w, %b {epsilon = 1.0e-5 : f64, fsdp.unit = @a} : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>
    fsdp.report_output "y" %y : tensor<2x3xf32>
    return
  }
}

// -----

// Without the option norms stay as they are.
// CHECK-LABEL: func.func @microbatch
// CHECK: nn.batch_norm
// CHECK-NOT: fsdp.all_reduce
module {
  func.func @microbatch(%x: tensor<2x3xf32> {fsdp.input = "x"}, %w: tensor<3xf32> {fsdp.input = "w"}, %b: tensor<3xf32> {fsdp.input = "b"}) {
    %y, %mean, %variance = nn.batch_norm %x, %w, %b {epsilon = 1.0e-5 : f64} : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>
    fsdp.report_output "y" %y : tensor<2x3xf32>
    return
  }
}

// -----

// The option is refused where it does nothing.
// expected-error @below {{'--sync-batchnorm' has no effect: the model has no batch norm in training mode}}
module attributes {fsdp.options = {"sync-batchnorm" = true}} {
  func.func @microbatch(%x: tensor<2x3xf32> {fsdp.input = "x"}) {
    return
  }
}

// -----

// The second call of a module would lose its part of the running statistics.
module attributes {fsdp.options = {"sync-batchnorm" = true}} {
  fsdp.buffer @mean : tensor<3xf32> {rule = "zeros"}
  func.func @microbatch(%x: tensor<2x3xf32> {fsdp.input = "x"}, %w: tensor<3xf32> {fsdp.input = "w"}, %b: tensor<3xf32> {fsdp.input = "b"}) {
    %y, %mean, %variance = nn.batch_norm %x, %w, %b {epsilon = 1.0e-5 : f64} : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>
    %z, %mean2, %variance2 = nn.batch_norm %y, %w, %b {epsilon = 1.0e-5 : f64} : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>
    %both = nn.add %mean, %mean2 : tensor<3xf32>
    // expected-error @below {{'--sync-batchnorm' is not supported for a batch norm that the model calls twice, as that of buffer 'mean'}}
    fsdp.update_statistics @mean, %both {momentum = 0.19 : f64} : tensor<3xf32>
    fsdp.report_output "z" %z : tensor<2x3xf32>
    return
  }
}
