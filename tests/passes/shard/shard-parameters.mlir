// RUN: fsdpc-opt %s --shard-parameters --split-input-file --verify-diagnostics | FileCheck %s

// A unit has one layout of its trainable and one of its frozen parameters, in
// order of first use, at multiples of 16 elements. --no-decay clears the decay.
// CHECK: fsdp.layout @u.flat of @u trainable elements 40 : f32 states 2
// CHECK-SAME: #fsdp.member<@b[0, 8] rate 1.000000e+00 : f64 decay 0.000000e+00 : f64>
// CHECK-SAME: #fsdp.member<@w[16, 24] rate 1.000000e+00 : f64 decay 1.000000e-02 : f64>
// CHECK-SAME: whole = []
// CHECK: fsdp.layout @u.frozen of @u elements 8 : f32 states 0
module attributes {fsdp.options = {"no-decay" = ["^b$"]}} {
  fsdp.parameter @w : tensor<3x8xf32> trainable unit @u
  fsdp.parameter @b : tensor<8xf32> trainable unit @u
  fsdp.parameter @f : tensor<8xf32> unit @u
  fsdp.unit @u
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<8xf32>, %g: tensor<3x8xf32>) {
    // CHECK: %[[F:.*]] = fsdp.flat @u.flat {fsdp.unit = @u} : tensor<40xf32>
    // CHECK-NEXT: fsdp.view %[[F]][@b at 0] {fsdp.unit = @u} : tensor<40xf32> -> tensor<8xf32>
    %b = fsdp.load @b {fsdp.unit = @u} : tensor<8xf32>
    // CHECK: fsdp.view %{{.*}}[@w at 16]
    %w = fsdp.load @w {fsdp.unit = @u} : tensor<3x8xf32>
    // CHECK: fsdp.flat @u.frozen
    %f = fsdp.load @f {fsdp.unit = @u} : tensor<8xf32>
    // The pack follows the last gradient, with its values in the layout's
    // order.
    // CHECK: %[[DB:.*]] = nn.mul
    %db = nn.mul %x, %f {fsdp.unit = @u} : tensor<8xf32>
    fsdp.gradient @b, %db {fsdp.unit = @u} : tensor<8xf32>
    // CHECK: %[[DW:.*]] = nn.neg
    %dw = nn.neg %g {fsdp.unit = @u} : tensor<3x8xf32>
    // CHECK-NEXT: %[[P:.*]] = fsdp.pack @u.flat(%[[DB]], %[[DW]]) {fsdp.backward, fsdp.unit = @u} : (tensor<8xf32>, tensor<3x8xf32>) -> tensor<40xf32>
    // CHECK-NEXT: fsdp.reduce @u.flat, %[[P]] {fsdp.backward, fsdp.unit = @u} : tensor<40xf32>
    fsdp.gradient @w, %dw {fsdp.unit = @u} : tensor<3x8xf32>
    return
  }
}

// -----

// Values that cannot be computed inside the pack are copied: an argument, also
// behind a reshape; the second use of a value, and the third from the second; a
// value that is read after the pack.
module {
  fsdp.parameter @a : tensor<8xf32> trainable unit @u
  fsdp.parameter @b : tensor<8xf32> trainable unit @u
  fsdp.parameter @c : tensor<8xf32> trainable unit @u
  fsdp.parameter @d : tensor<8xf32> trainable unit @u
  fsdp.parameter @e : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  // CHECK-LABEL: func.func @microbatch
  // CHECK-SAME: %[[X:.*]]: tensor<2x4xf32>
  func.func @microbatch(%x: tensor<2x4xf32>) {
    %a = fsdp.load @a : tensor<8xf32>
    %b = fsdp.load @b : tensor<8xf32>
    %c = fsdp.load @c : tensor<8xf32>
    %d = fsdp.load @d : tensor<8xf32>
    %e = fsdp.load @e : tensor<8xf32>
    // CHECK: %[[R:.*]] = nn.reshape %[[X]]
    %r = nn.reshape %x : tensor<2x4xf32> -> tensor<8xf32>
    // CHECK: %[[S:.*]] = nn.add
    %s = nn.add %a, %b : tensor<8xf32>
    // CHECK: %[[T:.*]] = nn.mul
    %t = nn.mul %a, %b : tensor<8xf32>
    // CHECK: %[[C0:.*]] = nn.copy %[[R]]
    // CHECK: %[[C1:.*]] = nn.copy %[[S]]
    // CHECK: %[[C2:.*]] = nn.copy %[[C1]]
    // CHECK: %[[C3:.*]] = nn.copy %[[T]]
    // CHECK: fsdp.pack @u.flat(%[[C0]], %[[S]], %[[C1]], %[[C2]], %[[C3]])
    fsdp.gradient @a, %r : tensor<8xf32>
    fsdp.gradient @b, %s : tensor<8xf32>
    fsdp.gradient @c, %s : tensor<8xf32>
    fsdp.gradient @d, %s : tensor<8xf32>
    fsdp.gradient @e, %t : tensor<8xf32>
    %u = nn.neg %t : tensor<8xf32>
    return
  }
}

// -----

// A parameter without a gradient is frozen; torch.optim skips it too.
// CHECK: fsdp.parameter @w : tensor<8xf32> unit @u
// CHECK: fsdp.layout @u.frozen of @u elements 8
module {
  // expected-remark@+1 {{no gradient reaches parameter 'w'; treating it as frozen}}
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch() {
    %w = fsdp.load @w : tensor<8xf32>
    return
  }
}

// -----

// ddp keeps everything replicated.
// CHECK: fsdp.layout @u.flat {{.*}} states 1 {{.*}}whole = ["master", "compute", "gradient", "state"]
module attributes {fsdp.options = {strategy = "no_shard", optimizer = "sgd", momentum = 0.9 : f64}} {
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch() {
    %w = fsdp.load @w : tensor<8xf32>
    %g = nn.neg %w : tensor<8xf32>
    fsdp.gradient @w, %g : tensor<8xf32>
    return
  }
}

// -----

// zero2 keeps the parameters replicated, and --reduce=step also the gradients.
// CHECK: fsdp.layout @u.flat {{.*}} states 0 {{.*}}whole = ["compute", "gradient"]
module attributes {fsdp.options = {strategy = "zero2", reduce = "step", optimizer = "sgd"}} {
  fsdp.parameter @w : tensor<8xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch() {
    %w = fsdp.load @w : tensor<8xf32>
    %g = nn.neg %w : tensor<8xf32>
    fsdp.gradient @w, %g : tensor<8xf32>
    return
  }
}

// -----

// expected-error@+1 {{--no-decay 'norm' matches no parameter; available: 'w'}}
module attributes {fsdp.options = {"no-decay" = ["norm"]}} {
  fsdp.parameter @w : tensor<8xf32> unit @u
  fsdp.unit @u
  func.func @microbatch() {
    return
  }
}
