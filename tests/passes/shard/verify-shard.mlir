// Each rule of verify-shard, kept and broken.
// RUN: fsdpc-opt %s --verify-shard --verify-diagnostics --split-input-file

// One layout per unit, weights as views of it, a gradient for it, and an update.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %f = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// Every parameter is a member of a layout.
module {
  // expected-error @below {{breaks rule 'member-once': parameter 'v' is a member of no layout}}
  fsdp.parameter @v : tensor<4xf32> unit @a
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// It is a member of one.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  // expected-note @below {{a member here already}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // expected-error @below {{breaks rule 'member-once': parameter 'w' is a member twice}}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// A layout holds the parameters of its unit.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  // expected-note @below {{the parameter}}
  fsdp.parameter @u : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // expected-error @below {{breaks rule 'layout': it is of unit 'b', and its member 'u' of unit 'a'}}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@u[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// With --layout-size it may have several, of at most so many elements unless a
// parameter alone is larger.
module attributes {fsdp.options = {"layout-size" = 16 : i64}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<32xf32> trainable unit @a
  fsdp.parameter @u : tensor<16xf32> trainable unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 32 : f32 states 0 {
    members = [#fsdp.member<@w[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // expected-error @below {{breaks rule 'layout': layout 'a.flat.part1' has 32 elements of several parameters, but --layout-size is 16}}
  fsdp.layout @a.flat.part1 of @a trainable elements 32 : f32 states 0 {
    members = [#fsdp.member<@u[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@v[16, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// With --layout=parameter each has a layout of its own.
module attributes {fsdp.options = {layout = "parameter"}} {
  fsdp.unit @a
  fsdp.parameter @u : tensor<16xf32> trainable unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  // expected-error @below {{breaks rule 'layout': layout 'a.flat' has 2 members, but --layout=parameter cuts each parameter by itself}}
  fsdp.layout @a.flat of @a trainable elements 32 : f32 states 0 {
    members = [#fsdp.member<@u[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@v[16, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// Under oss a layout is one parameter, which one rank owns.
module attributes {fsdp.options = {strategy = "oss"}} {
  fsdp.unit @a
  fsdp.parameter @t : tensor<16xf32> trainable unit @a
  fsdp.parameter @u : tensor<16xf32> trainable unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@t[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  // expected-error @below {{breaks rule 'layout': layout 'a.flat.part1' has 2 members, but strategy 'oss' gives each parameter an owner}}
  fsdp.layout @a.flat.part1 of @a trainable elements 32 : f32 states 0 {
    members = [#fsdp.member<@u[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@v[16, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// A unit has one layout for its trainable parameters, and one for its frozen ones.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.parameter @u : tensor<16xf32> trainable unit @a
  // expected-note @below {{the first is here}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // expected-error @below {{breaks rule 'layout': unit 'a' has a second layout of trainable parameters}}
  fsdp.layout @a.more of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@u[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// Members follow each other, as densely as their alignment allows.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.parameter @u : tensor<4xf32> trainable unit @a
  // expected-error @below {{breaks rule 'layout': member 'u' begins at 48, but the next place is 16}}
  fsdp.layout @a.flat of @a trainable elements 52 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@u[48, 4] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    return
  }
  func.func @update() { return }
}

// -----

// The model computes in --param-dtype.
module attributes {fsdp.options = {"param-dtype" = "bf16"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  // expected-error @below {{breaks rule 'compute': layout 'a.flat' computes in 'f32', but --param-dtype is bf16}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// The strategy decides which parts of a layout every rank keeps.
module attributes {fsdp.options = {strategy = "zero1"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  // expected-error @below {{breaks rule 'replication': layout 'a.flat' keeps [] on every rank, and strategy 'zero1' with reduce 'microbatch' [compute]}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// Every op still has a unit.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-error @below {{breaks rule 'unit': it belongs to unit 'none', which does not exist}}
    %y = nn.tanh %x : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// No parameter is read past its layout.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-error @below {{breaks rule 'weight': it loads parameter 'w' past its layout; take an 'fsdp.view' of the flat buffer}}
    %w = fsdp.load @w {fsdp.unit = @a} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// A view is of a layout's flat buffer.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-error @below {{breaks rule 'weight': it views 'w' in a value that is not the flat buffer of a layout}}
    %v = fsdp.view %x[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// A flat buffer and its views belong to the unit that reads them.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %f = fsdp.flat @a.flat {fsdp.unit = @b} : tensor<16xf32>
    // expected-error @below {{breaks rule 'weight': it belongs to unit 'b' and is read in unit 'a'}}
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @b} : tensor<16xf32> -> tensor<16xf32>
    // expected-note @below {{read here}}
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// Collectives come later.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-error @below {{breaks rule 'stage': it touches the memory of layouts, which is up to the phase 'collectives'}}
    fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// A gradient reaches every trainable layout.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  // expected-error @below {{breaks rule 'gradient': no gradient reaches layout 'a.flat'; its 'fsdp.reduce' is missing}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %f = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// It does so once.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-note @below {{the first time is here}}
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    // expected-error @below {{breaks rule 'gradient': the gradient of layout 'a.flat' is handed over twice}}
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// It is the layout's pack.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-error @below {{breaks rule 'gradient': its gradient is not an 'fsdp.pack' of layout 'a.flat'}}
    fsdp.reduce @a.flat, %x {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// Pack and reduction are of the backward of the layout's unit.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  // expected-note @below {{the layout}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-error @below {{breaks rule 'gradient': it is not of the backward of unit 'a'}}
    fsdp.reduce @a.flat, %g {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// The operands of an op have one type, apart from statistics and masks,
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %c = nn.cast %x {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xbf16>
    // expected-error @below {{breaks rule 'precision': it has operands of 'bf16' and 'f32'; put an 'nn.cast' between}}
    %n, %rstd = nn.rms_norm %c weight %x {epsilon = 1.0e-5 : f64, fsdp.unit = @a} : tensor<16xbf16>, weight tensor<16xf32> -> tensor<16xbf16>, tensor<f32>
    return
  }
  func.func @update() { return }
}

// -----

// and so have its results.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %t = nn.reshape %x {fsdp.unit = @a} : tensor<16xf32> -> tensor<4x4xf32>
    // expected-error @below {{breaks rule 'precision': it computes in 'f32', and its result 0 is 'bf16'}}
    %y = nn.matmul %t, %t {fsdp.unit = @a} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xbf16>
    return
  }
  func.func @update() { return }
}

// -----

// Nothing but the optimizers writes the memory of layouts in @update.
module attributes {fsdp.options = {strategy = "zero2"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %f = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    // expected-error @below {{breaks rule 'stage': it writes the memory of layouts, which is up to the phase 'collectives'}}
    fsdp.gather_parameters [@a.flat]
    return
  }
}

// -----

// @update takes the norm and applies the optimizers; verify-collectives-update.mlir
// breaks each of its rules.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %f = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  // expected-error @below {{breaks rule 'norm': it has no 'fsdp.sum_squares'}}
  func.func @update() { return }
}

// -----

// The update divides by the scale of the loss only if the options ask for one.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-error @below {{breaks rule 'scale': it scales the gradients, but '--loss-scale' is none}}
    %scale = fsdp.loss_scale {fsdp.unit = @a} : tensor<f32>
    %s = nn.broadcast %scale {fsdp.unit = @a, fsdp.backward} : tensor<f32> -> tensor<16xf32>
    %g = fsdp.pack @a.flat(%s) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// Members have the optimizer of their layout.
module attributes {fsdp.options = {group = ["w: optimizer=sgd"]}} {
  fsdp.unit @a
  // expected-note @below {{the parameter}}
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{breaks rule 'group': layout 'a.flat' is updated by the optimizer of group 0, and its member 'w' by that of group 1 (0: of --optimizer)}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    return
  }
}

// -----

// With --ema every trainable layout keeps an average.
module attributes {fsdp.options = {ema = 0.5 : f64}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{breaks rule 'average': layout 'a.flat' keeps no average, but --ema is 5.000000e-01}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    return
  }
}

// -----

// A gradient passes each hook of --reduce-hook before it is packed.
module attributes {fsdp.options = {"reduce-hook" = ["clip-value=1"]}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-error @below {{breaks rule 'hook': gradient 0 of layout 'a.flat' does not pass each --reduce-hook once and in order}}
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// A model without hooks has none in a dump.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %h = nn.neg %x {fsdp.unit = @a, fsdp.backward, fsdp.hook = 0 : i64} : tensor<16xf32>
    // expected-error @below {{breaks rule 'hook': gradient 0 of layout 'a.flat' does not pass each --reduce-hook once and in order}}
    %g = fsdp.pack @a.flat(%h) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}
