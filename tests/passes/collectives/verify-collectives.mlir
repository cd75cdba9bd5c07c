// Each rule of verify-collectives for @microbatch, kept and broken.
// RUN: fsdpc-opt %s --verify-collectives --verify-diagnostics --split-input-file --allow-unregistered-dialect

// zero3: gathered, freed and reduced in the unit's segments.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
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

// zero2: replicated; the updated parameters are gathered.
module attributes {fsdp.options = {strategy = "zero2"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %f = fsdp.replicated @a.flat {fsdp.unit = @a} : tensor<16xf32>
    fsdp.enter @a
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
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
    fsdp.gather_parameters [@a.flat]
    return
  }
}

// -----

// ddp: the reduced gradients are gathered before the optimizers.
module attributes {fsdp.options = {strategy = "ddp"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute", "gradient", "state"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %f = fsdp.replicated @a.flat {fsdp.unit = @a} : tensor<16xf32>
    fsdp.enter @a
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {max_norm = 0.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.gather_gradients [@a.flat]
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// --reduce=step: accumulated in every microbatch, reduced in @update.
module attributes {fsdp.options = {reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["gradient"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() {
    fsdp.reduce_gradients [@a.flat]
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
module attributes {fsdp.options = {strategy = "zero2"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  // expected-error @below {{breaks rule 'replication': layout 'a.flat' keeps [] on every rank, and strategy 'zero2' with reduce 'microbatch' [compute]}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %f = fsdp.replicated @a.flat {fsdp.unit = @a} : tensor<16xf32>
    fsdp.enter @a
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}

// -----

// No flat buffer is left that is not gathered.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-error @below {{breaks rule 'stage': it says nothing about when the ranks communicate; run materialize-collectives}}
    %f = fsdp.flat @a.flat {fsdp.unit = @a} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// Collectives are not split yet.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-error @below {{breaks rule 'stage': collectives are split by the phase 'schedule'}}
    %t = fsdp.all_gather_start [@a.flat]
    %f = fsdp.all_gather_wait %t : tensor<16xf32>
    fsdp.free %f : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// A layout that every rank keeps is not gathered.
module attributes {fsdp.options = {strategy = "zero2"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  // expected-note @below {{the layout}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    // expected-error @below {{breaks rule 'replicated': every rank keeps layout 'a.flat', so nothing is gathered}}
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    return
  }
  func.func @update() { return }
}

// -----

// A sharded layout is gathered.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  // expected-note @below {{the layout}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-error @below {{breaks rule 'replicated': layout 'a.flat' is sharded, so it is gathered}}
    %f = fsdp.replicated @a.flat {fsdp.unit = @a} : tensor<16xf32>
    fsdp.enter @a
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    return
  }
  func.func @update() { return }
}

// -----

// A segment ends before the next one begins.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-note @below {{it begins here}}
    fsdp.enter @a
    // expected-error @below {{breaks rule 'segment': the segment of unit 'a' has not ended}}
    fsdp.enter @b
    return
  }
  func.func @update() { return }
}

// -----

// An exit ends the segment that has begun: of the same unit and direction.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-note @below {{it begins here}}
    fsdp.enter @a
    // expected-error @below {{breaks rule 'segment': it ends a backward segment of unit 'a', but a forward one of unit 'a' has begun}}
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}

// -----

// An exit ends a segment.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-error @below {{breaks rule 'segment': no segment of unit 'a' has begun}}
    fsdp.exit @a
    return
  }
  func.func @update() { return }
}

// -----

// A segment ends.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-error @below {{breaks rule 'segment': no 'fsdp.exit' ends it}}
    fsdp.enter @a
    return
  }
  func.func @update() { return }
}

// -----

// An op that reads weights is in a segment of its unit.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-note @below {{the segment around it}}
    fsdp.enter @b
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    // expected-error @below {{breaks rule 'segment': it reads weights and is in no forward segment of its unit 'a'}}
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @b
    return
  }
  func.func @update() { return }
}

// -----

// So is the view that it reads.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    // expected-error @below {{breaks rule 'unit': it belongs to unit 'b' and is read in unit 'a'}}
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @b} : tensor<16xf32> -> tensor<16xf32>
    // expected-note @below {{read here}}
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    return
  }
  func.func @update() { return }
}

// -----

// A layout is not gathered again before it is freed.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    // expected-note @below {{gathered here}}
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    // expected-error @below {{breaks rule 'gather-once': layout 'a.flat' is gathered already and not freed}}
    %h = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    return
  }
  func.func @update() { return }
}

// -----

// A gathered layout is read.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-error @below {{breaks rule 'used': nothing reads what it gathers of layout 'a.flat'; remove it}}
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// A view alone reads nothing.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    // expected-error @below {{breaks rule 'used': no op computes with what it gathers}}
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    return
  }
  func.func @update() { return }
}

// -----

// A gathered layout is freed.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    // expected-error @below {{breaks rule 'free-once': what it gathers of layout 'a.flat' is freed 0 times; each gathered buffer is freed once}}
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    return
  }
  func.func @update() { return }
}

// -----

// It is freed once.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    // expected-error @below {{breaks rule 'free-once': what it gathers of layout 'a.flat' is freed 2 times}}
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    // expected-note @below {{freed here}}
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    // expected-note @below {{freed here}}
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    return
  }
  func.func @update() { return }
}

// -----

// It is freed after its last use, of a view too.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    // expected-error @below {{breaks rule 'free-after-use': it frees what is used after it}}
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    // expected-note @below {{used here}}
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    return
  }
  func.func @update() { return }
}

// -----

// It is freed before another unit reads weights.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.parameter @u : tensor<16xf32> trainable unit @b
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@u[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    // expected-error @below {{breaks rule 'kept': from here to the free of what it gathers units 'a' and 'b' read weights}}
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @b
    %h = fsdp.all_gather [@b.flat] {fsdp.unit = @b} : tensor<16xf32>
    // expected-note @below {{unit 'b' reads weights here}}
    %z = nn.mul %y, %h {fsdp.unit = @b} : tensor<16xf32>
    fsdp.free %h {fsdp.unit = @b} : tensor<16xf32>
    fsdp.exit @b
    // expected-note @below {{freed here}}
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// Gather and free belong to the unit that reads between them.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    // expected-note @below {{read here}}
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    // expected-error @below {{breaks rule 'unit': it belongs to unit 'b', but unit 'a' reads what is gathered}}
    fsdp.free %f {fsdp.unit = @b} : tensor<16xf32>
    fsdp.exit @a
    return
  }
  func.func @update() { return }
}

// -----

// No rank communicates on a condition.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    %s = nn.constant dense<0.0> : tensor<1x16xf64>
    "test.if"() ({
      // expected-error @below {{breaks rule 'symmetric': it stands in a region, which ranks may run differently}}
      %r = fsdp.all_reduce %s : tensor<1x16xf64>
    }) : () -> ()
    return
  }
  func.func @update() { return }
}

// -----

// Each trainable layout is reduced.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is not reduced in '@microbatch'}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    return
  }
  func.func @update() { return }
}

// -----

// It is reduced once.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-note @below {{the first time is here}}
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    // expected-error @below {{breaks rule 'reduce-once': the gradient of layout 'a.flat' is reduced twice}}
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}

// -----

// With --reduce=step a microbatch does not communicate gradients.
module attributes {fsdp.options = {reduce = "step"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["gradient"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-error @below {{breaks rule 'reduce-once': with --reduce=step gradients are accumulated in '@microbatch'}}
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}

// -----

// Without it a microbatch does.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-error @below {{breaks rule 'reduce-once': with --reduce=microbatch gradients are reduced in '@microbatch'}}
    fsdp.accumulate @a.flat, %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}

// -----

// zero1 and ddp reduce all layouts at once.
module attributes {fsdp.options = {strategy = "zero1"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.parameter @u : tensor<16xf32> trainable unit @b
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@u[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    %h = fsdp.pack @b.flat(%x) {fsdp.unit = @b, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-note @below {{the first is here}}
    fsdp.reduce_scatter [@a.flat], %g : tensor<16xf32>
    // expected-error @below {{breaks rule 'reduce-once': one op reduces all layouts whose strategies reduce at the end, such as 'b.flat'}}
    fsdp.reduce_scatter [@b.flat], %h : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// A reduction takes the layout's packed gradient.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-error @below {{breaks rule 'gradient': its gradient of layout 'a.flat' is not an 'fsdp.pack' of that layout}}
    fsdp.reduce_scatter [@a.flat], %x {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// A reduction belongs to the unit of one of its layouts.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-error @below {{breaks rule 'unit': it belongs to unit 'b', which has none of its layouts}}
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @b, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}

// -----

// A statistic is applied to a buffer once.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.buffer @m : tensor<16xf32>
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-note @below {{the first update is here}}
    fsdp.update_statistics @m, %x {momentum = 0.1 : f64, fsdp.unit = @a} : tensor<16xf32>
    // expected-error @below {{breaks rule 'statistics': it updates buffer 'm' with the same value again}}
    fsdp.update_statistics @m, %x {momentum = 0.1 : f64, fsdp.unit = @a} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// The backward, which may compute a statistic again, does not apply it.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.buffer @m : tensor<16xf32>
  func.func @microbatch(%x: tensor<16xf32>) {
    // expected-error @below {{breaks rule 'statistics': it updates a buffer in the backward}}
    fsdp.update_statistics @m, %x {momentum = 0.1 : f64, fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}
