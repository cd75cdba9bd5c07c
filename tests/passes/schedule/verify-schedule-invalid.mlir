// Each rule of verify-schedule, broken. SSA keeps the rest: a wait follows its
// start and precedes all uses, a reduction follows its gradient.
// RUN: fsdpc-opt %s --verify-schedule --verify-diagnostics --split-input-file --allow-unregistered-dialect

// A collective of an earlier phase does not belong in a schedule.
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    // expected-error @below {{violates rule 'split': it is not split into start and wait}}
    %f = fsdp.all_gather [@a.flat] : tensor<16xf32>
    fsdp.free %f : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// Each token is waited for exactly once: here never.
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    // expected-error @below {{violates rule 'token': its token is waited for 0 times; each token must be waited for exactly once}}
    %t = fsdp.all_gather_start [@a.flat]
    return
  }
  func.func @update() { return }
}

// -----

// Each token is waited for exactly once: here twice.
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%g: tensor<16xf32> {fsdp.input = "x"}) {
    // expected-error @below {{violates rule 'token': its token is waited for 2 times; each token must be waited for exactly once}}
    %t = fsdp.reduce_scatter_start [@a.flat], %g : tensor<16xf32>
    // expected-note @below {{token used here}}
    fsdp.reduce_scatter_wait %t
    // expected-note @below {{token used here}}
    fsdp.reduce_scatter_wait %t
    return
  }
  func.func @update() { return }
}

// -----

// A gathered buffer that is never freed.
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %t = fsdp.all_gather_start [@a.flat]
    // expected-error @below {{violates rule 'free-once': a buffer is freed 0 times; each must be freed exactly once}}
    %f = fsdp.all_gather_wait %t : tensor<16xf32>
    %v = fsdp.view %f[@v at 0] : tensor<16xf32> -> tensor<4x4xf32>
    %y = nn.matmul %x, %v : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
  func.func @update() { return }
}

// -----

// A gathered buffer that is freed twice.
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %t = fsdp.all_gather_start [@a.flat]
    // expected-error @below {{violates rule 'free-once': a buffer is freed 2 times; each must be freed exactly once}}
    %f = fsdp.all_gather_wait %t : tensor<16xf32>
    %v = fsdp.view %f[@v at 0] : tensor<16xf32> -> tensor<4x4xf32>
    %y = nn.matmul %x, %v : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-note @below {{freed here}}
    fsdp.free %f : tensor<16xf32>
    // expected-note @below {{freed here}}
    fsdp.free %f : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// A use of a view is a use of the buffer.
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %t = fsdp.all_gather_start [@a.flat]
    %f = fsdp.all_gather_wait %t : tensor<16xf32>
    %v = fsdp.view %f[@v at 0] : tensor<16xf32> -> tensor<4x4xf32>
    // expected-error @below {{violates rule 'free-after-use': the buffer is used after it is freed}}
    fsdp.free %f : tensor<16xf32>
    // expected-note @below {{used here}}
    %y = nn.matmul %x, %v : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
  func.func @update() { return }
}

// -----

// Without a reader, a gather has nothing to be waited for.
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %t = fsdp.all_gather_start [@a.flat]
    // expected-error @below {{violates rule 'used': the buffers are never read; remove the collective}}
    %f = fsdp.all_gather_wait %t : tensor<16xf32>
    fsdp.free %f : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// A reduction reads its gradient until its wait: nothing may add to it before.
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %g = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %f = fsdp.pack @a.flat(%g) : (tensor<4x4xf32>) -> tensor<16xf32>
    %r = nn.reshape %f : tensor<16xf32> -> tensor<4x4xf32>
    // expected-error @below {{violates rule 'source-kept': its operand is overwritten before its wait}}
    %t = fsdp.reduce_scatter_start [@a.flat], %f : tensor<16xf32>
    // expected-note @below {{overwritten here}}
    %y = nn.matmul %x, %x accumulate %r : tensor<4x4xf32>, tensor<4x4xf32>, accumulate tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.reduce_scatter_wait %t
    return
  }
  func.func @update() { return }
}

// -----

// No op may write what a running collective writes.
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%g: tensor<16xf32> {fsdp.input = "x"}) {
    // expected-note @below {{collective starts here}}
    %t = fsdp.reduce_scatter_start [@a.flat], %g : tensor<16xf32>
    // expected-error @below {{violates rule 'symbol-hazard': it accesses memory of layout 'a.flat' while a collective on that layout is in flight}}
    fsdp.accumulate @a.flat, %g : tensor<16xf32>
    fsdp.reduce_scatter_wait %t
    return
  }
  func.func @update() { return }
}

// -----

// Parameters must not change while they are gathered, also in @update.
module {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() {
    // expected-note @below {{collective starts here}}
    %t = fsdp.all_gather_start [@a.flat]
    // expected-error @below {{violates rule 'symbol-hazard': it accesses memory of layout 'a.flat' while a collective on that layout is in flight}}
    fsdp.gather_parameters [@a.flat]
    %f = fsdp.all_gather_wait %t : tensor<16xf32>
    fsdp.free %f : tensor<16xf32>
    return
  }
}

// -----

// limit-all-gathers bounds the buffers between start and free.
module attributes {fsdp.options = {"limit-all-gathers" = 1 : i64}} {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    // expected-note @below {{other collective involved}}
    %s = fsdp.all_gather_start [@a.flat]
    // expected-error @below {{violates rule 'live-gathers': the start of 'all_gather of b.flat' at 0 makes 2 gathers live, but the limit is 1}}
    %t = fsdp.all_gather_start [@b.flat]
    %f = fsdp.all_gather_wait %s : tensor<16xf32>
    %v = fsdp.view %f[@v at 0] : tensor<16xf32> -> tensor<4x4xf32>
    %y = nn.matmul %x, %v : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.free %f : tensor<16xf32>
    %g = fsdp.all_gather_wait %t : tensor<16xf32>
    %w = fsdp.view %g[@w at 0] : tensor<16xf32> -> tensor<4x4xf32>
    %z = nn.matmul %y, %w : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.free %g : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// An op that states no effects is refused, not taken as harmless.
module {
  func.func @microbatch() {
    // expected-error @below {{does not declare its memory effects; declare them in ODS}}
    "foreign.op"() : () -> ()
    return
  }
  func.func @update() { return }
}
