// RUN: fsdpc-opt %s --materialize-collectives --split-input-file | FileCheck %s

// zero2: parameters are replicated. A unit's gradient is reduced as soon as it
// is packed, and the updated parameters are gathered.
module attributes {fsdp.options = {strategy = "zero2"}} {
  fsdp.parameter @wa : tensor<16xf32> trainable unit @a
  fsdp.parameter @wb : tensor<16xf32> trainable unit @b
  fsdp.unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wb[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<16xf32>) {
    %fa = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<16xf32>
    %wa = fsdp.view %fa[@wa at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %da = nn.mul %x, %wa {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %ga = fsdp.pack @a.flat(%da) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %ga {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %fb = fsdp.flat @b.flat {fsdp.unit = @b} : tensor<16xf32>
    %wb = fsdp.view %fb[@wb at 0] {fsdp.unit = @b} : tensor<16xf32> -> tensor<16xf32>
    %db = nn.mul %x, %wb {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    %gb = fsdp.pack @b.flat(%db) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %gb {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    // CHECK-NOT: fsdp.all_gather
    // CHECK: fsdp.replicated @a.flat
    // CHECK: %[[GA:.*]] = fsdp.pack @a.flat
    // CHECK-NEXT: fsdp.reduce_scatter [@a.flat], %[[GA]]
    // CHECK: fsdp.replicated @b.flat
    // CHECK: %[[GB:.*]] = fsdp.pack @b.flat
    // CHECK-NEXT: fsdp.reduce_scatter [@b.flat], %[[GB]]
    return
  }
  // CHECK-LABEL: func.func @update
  func.func @update() {
    // CHECK-NEXT: fsdp.sum_squares
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    // CHECK: fsdp.clip_scale
    // CHECK-NEXT: fsdp.optimizer
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    // CHECK: }
    // CHECK-NEXT: fsdp.gather_parameters [@a.flat, @b.flat]
    // CHECK-NEXT: return
    return
  }
}

// -----

// zero1: gradients are replicated; one reduction of all of them at the end.
module attributes {fsdp.options = {strategy = "zero1"}} {
  fsdp.parameter @wa : tensor<16xf32> trainable unit @a
  fsdp.parameter @wb : tensor<16xf32> trainable unit @b
  fsdp.unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wb[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<16xf32>) {
    %fa = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<16xf32>
    %wa = fsdp.view %fa[@wa at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %da = nn.mul %x, %wa {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %ga = fsdp.pack @a.flat(%da) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %ga {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %fb = fsdp.flat @b.flat {fsdp.unit = @b} : tensor<16xf32>
    %wb = fsdp.view %fb[@wb at 0] {fsdp.unit = @b} : tensor<16xf32> -> tensor<16xf32>
    %db = nn.mul %x, %wb {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    %gb = fsdp.pack @b.flat(%db) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %gb {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    // CHECK: %[[GA:.*]] = fsdp.pack @a.flat
    // CHECK: %[[GB:.*]] = fsdp.pack @b.flat
    // CHECK-NEXT: fsdp.exit @b backward
    // CHECK-NEXT: fsdp.reduce_scatter [@a.flat, @b.flat], %[[GA]], %[[GB]] : tensor<16xf32>, tensor<16xf32>
    // CHECK-NEXT: return
    return
  }
  // CHECK-LABEL: func.func @update
  func.func @update() {
    // CHECK-NEXT: fsdp.sum_squares
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    // CHECK: fsdp.clip_scale
    // CHECK-NEXT: fsdp.optimizer
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    // CHECK: fsdp.gather_parameters [@a.flat, @b.flat]
    // CHECK-NEXT: return
    return
  }
}

// -----

// hybrid_zero1: the same, and the runtime cuts the layouts over groups.
module attributes {fsdp.options = {strategy = "hybrid_zero1"}} {
  fsdp.parameter @wa : tensor<16xf32> trainable unit @a
  fsdp.parameter @wb : tensor<16xf32> trainable unit @b
  fsdp.unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wb[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<16xf32>) {
    %fa = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<16xf32>
    %wa = fsdp.view %fa[@wa at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %da = nn.mul %x, %wa {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %ga = fsdp.pack @a.flat(%da) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %ga {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %fb = fsdp.flat @b.flat {fsdp.unit = @b} : tensor<16xf32>
    %wb = fsdp.view %fb[@wb at 0] {fsdp.unit = @b} : tensor<16xf32> -> tensor<16xf32>
    %db = nn.mul %x, %wb {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    %gb = fsdp.pack @b.flat(%db) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %gb {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    // CHECK: %[[GA:.*]] = fsdp.pack @a.flat
    // CHECK: %[[GB:.*]] = fsdp.pack @b.flat
    // CHECK-NEXT: fsdp.exit @b backward
    // CHECK-NEXT: fsdp.reduce_scatter [@a.flat, @b.flat], %[[GA]], %[[GB]] : tensor<16xf32>, tensor<16xf32>
    // CHECK-NEXT: return
    return
  }
  // CHECK-LABEL: func.func @update
  func.func @update() {
    // CHECK-NEXT: fsdp.sum_squares
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    // CHECK: fsdp.clip_scale
    // CHECK-NEXT: fsdp.optimizer
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    // CHECK: fsdp.gather_parameters [@a.flat, @b.flat]
    // CHECK-NEXT: return
    return
  }
}

// -----

// ddp: like zero1, and the accumulated gradients are gathered after the norm.
module attributes {fsdp.options = {strategy = "ddp"}} {
  fsdp.parameter @wa : tensor<16xf32> trainable unit @a
  fsdp.parameter @wb : tensor<16xf32> trainable unit @b
  fsdp.unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wb[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<16xf32>) {
    %fa = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<16xf32>
    %wa = fsdp.view %fa[@wa at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %da = nn.mul %x, %wa {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %ga = fsdp.pack @a.flat(%da) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %ga {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %fb = fsdp.flat @b.flat {fsdp.unit = @b} : tensor<16xf32>
    %wb = fsdp.view %fb[@wb at 0] {fsdp.unit = @b} : tensor<16xf32> -> tensor<16xf32>
    %db = nn.mul %x, %wb {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    %gb = fsdp.pack @b.flat(%db) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %gb {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    // CHECK: fsdp.reduce_scatter [@a.flat, @b.flat]
    // CHECK-NEXT: return
    return
  }
  // CHECK-LABEL: func.func @update
  func.func @update() {
    // CHECK-NEXT: fsdp.sum_squares
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    // CHECK: fsdp.clip_scale
    // CHECK-NEXT: fsdp.gather_gradients [@a.flat, @b.flat]
    // CHECK-NEXT: fsdp.optimizer
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    // CHECK-NOT: fsdp.gather_parameters
    return
  }
}

// -----

// --reduce=step: microbatches accumulate, the update reduces once.
module attributes {fsdp.options = {strategy = "zero3", reduce = "step"}} {
  fsdp.parameter @wa : tensor<16xf32> trainable unit @a
  fsdp.parameter @wb : tensor<16xf32> trainable unit @b
  fsdp.unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wa[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["gradient"]}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@wb[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["gradient"]}
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<16xf32>) {
    %fa = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<16xf32>
    %wa = fsdp.view %fa[@wa at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %da = nn.mul %x, %wa {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %ga = fsdp.pack @a.flat(%da) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %ga {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    %fb = fsdp.flat @b.flat {fsdp.unit = @b} : tensor<16xf32>
    %wb = fsdp.view %fb[@wb at 0] {fsdp.unit = @b} : tensor<16xf32> -> tensor<16xf32>
    %db = nn.mul %x, %wb {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    %gb = fsdp.pack @b.flat(%db) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @b.flat, %gb {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    // CHECK: fsdp.all_gather [@a.flat]
    // CHECK: %[[GA:.*]] = fsdp.pack @a.flat
    // CHECK-NEXT: fsdp.accumulate @a.flat, %[[GA]]
    // CHECK: fsdp.accumulate @b.flat
    // CHECK-NOT: fsdp.reduce_scatter
    return
  }
  // CHECK-LABEL: func.func @update
  func.func @update() {
    // CHECK-NEXT: fsdp.reduce_gradients [@a.flat, @b.flat]
    // CHECK-NEXT: fsdp.sum_squares
    %s = fsdp.sum_squares [@a.flat, @b.flat] : tensor<2x16xf64>
    %r = fsdp.all_reduce %s : tensor<2x16xf64>
    %c = fsdp.clip_scale [@a.flat, @b.flat], %r {max_norm = 0.0 : f64} : tensor<2x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    // CHECK-NOT: fsdp.gather_
    return
  }
}
