// RUN: fsdpc-opt %s --weigh-losses --split-input-file --verify-diagnostics | FileCheck %s

// Weights of both signs may add up to 0 in a microbatch, which then divides by what the
// step has of one. The test of the count is that of the step: its sign is that of
// count · factor.
// CHECK-LABEL: module
// CHECK: func.func @microbatch(%[[M:.*]]: tensor<4xf32>
// CHECK: %[[COUNT:.*]] = nn.reduce sum %[[M]] [0]
// CHECK: %[[FACTOR:.*]] = fsdp.loss_factor @loss_weight
// CHECK: %[[GUARDED:.*]] = nn.select %{{.*}}, %{{.*}}, %[[COUNT]]
// CHECK: %[[DIVISOR:.*]] = nn.mul %[[GUARDED]], %{{.*}} : tensor<1xf32>
// CHECK: %[[MEAN:.*]] = nn.div %{{.*}}, %[[DIVISOR]]
// CHECK: %[[PART:.*]] = nn.mul %[[MEAN]]
// CHECK: %[[SIGN:.*]] = nn.mul %{{.*}}, %[[FACTOR]] : tensor<f32>
// CHECK: %[[HAS:.*]] = nn.cmp gt %[[SIGN]]
// CHECK: %[[TEST:.*]] = nn.reshape %[[HAS]]
// CHECK: nn.select %[[TEST]], %[[PART]]
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %x = nn.mul %w, %m : tensor<4xf32>
    %n = nn.reduce sum %x [0] : tensor<4xf32> -> tensor<1xf32>
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %two = nn.constant dense<2.0> : tensor<1xf32>
    %zero = nn.constant dense<0.0> : tensor<1xf32>
    %d = nn.mul %b, %two : tensor<1xf32>
    %any = nn.cmp gt %d, %zero : tensor<1xf32> -> tensor<1xi1>
    %q = nn.div %n, %d : tensor<1xf32>
    %s = nn.select %any, %q, %zero : tensor<1xi1>, tensor<1xf32>
    %l = nn.reshape %s : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}

// -----

// A count with a bound divides by the bound where there are no targets, in each
// microbatch. Other readers of the test keep it.
// CHECK-LABEL: module
// CHECK: %[[ANY:.*]] = nn.cmp ne
// CHECK: %[[TRUE:.*]] = nn.constant dense<true> : tensor<i1>
// CHECK: %[[TEST:.*]] = nn.reshape %[[TRUE]]
// CHECK: nn.select %[[TEST]]
// CHECK: nn.select %[[ANY]]
module {
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch(%m: tensor<4xf32> {fsdp.input = "m"}) {
    %w = fsdp.load @w : tensor<4xf32>
    %x = nn.mul %w, %m : tensor<4xf32>
    %n = nn.reduce sum %x [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-note@below {{samples are combined here}}
    %b = nn.reduce sum %m [0] : tensor<4xf32> -> tensor<1xf32>
    %one = nn.constant dense<1.0> : tensor<1xf32>
    %zero = nn.constant dense<0.0> : tensor<1xf32>
    %d = nn.maximum %b, %one : tensor<1xf32>
    %any = nn.cmp ne %b, %zero : tensor<1xf32> -> tensor<1xi1>
    %q = nn.div %n, %d : tensor<1xf32>
    %s = nn.select %any, %q, %zero : tensor<1xi1>, tensor<1xf32>
    %o = nn.reduce sum %w [0] : tensor<4xf32> -> tensor<1xf32>
    // expected-remark@below {{the loss depends on a value that combines the samples of a microbatch}}
    %t = nn.select %any, %o, %zero : tensor<1xi1>, tensor<1xf32>
    %u = nn.add %s, %t : tensor<1xf32>
    %l = nn.reshape %u : tensor<1xf32> -> tensor<f32>
    fsdp.report_loss %l : tensor<f32>
    return
  }
}
