// The rules of layouts without masters.
// RUN: fsdpc-opt %s --verify-shard --verify-diagnostics --split-input-file

// The option gives every layout in bf16 the mark.
module attributes {fsdp.options = {"param-dtype" = "bf16", "master" = "none"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{breaks rule 'master': layout 'a.flat' has a master, but --master is none}}
  fsdp.layout @a.flat of @a trainable elements 16 : bf16 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// No other option does.
module attributes {fsdp.options = {"param-dtype" = "bf16"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{breaks rule 'master': layout 'a.flat' has no master, but --master is f32}}
  fsdp.layout @a.flat of @a trainable elements 16 : bf16 no_master states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// f32 is rounded to nothing.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  // expected-error @below {{has no master, but compute type 'f32'; it must be bf16}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 no_master states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}

// -----

// The optimizer of such a layout takes a word.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : bf16 no_master states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @update(%c: tensor<f32>) {
    // expected-error @below {{takes no random word, but layout 'a.flat' has no master}}
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// That of another one takes none.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : bf16 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @update(%c: tensor<f32>) {
    // expected-error @below {{takes a random word, but layout 'a.flat' has a master}}
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %word: i32):
      %r = nn.round_stochastic %p, %word : f32, i32
      fsdp.yield %r : f32
    }
    return
  }
}

// -----

// Without the rounding, the store would cut digits off.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : bf16 no_master states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @update(%c: tensor<f32>) {
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %word: i32):
      // expected-error @below {{yields a parameter that is not an 'nn.round_stochastic' with the region's word}}
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// Sums over whole parameters take the parameter as it is in memory.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : bf16 no_master states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @update(%c: tensor<f32>) {
    // expected-error @below {{takes parameters of type 'f32', but layout 'a.flat' has no master}}
    %n = fsdp.member_sums [@a.flat], %c : tensor<f32> -> tensor<1x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      %0 = arith.extf %p : f32 to f64
      fsdp.yield %0 : f64
    }
    return
  }
}

// -----

// Those with a master lie there in f32.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : bf16 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @update(%c: tensor<f32>) {
    // expected-error @below {{takes parameters of type 'bf16', but layout 'a.flat' has a master}}
    %n = fsdp.member_sums [@a.flat], %c : tensor<f32> -> tensor<1x16xf64> {
    ^bb0(%p: bf16, %g: f32, %lr: f64, %step: f64, %decay: f64):
      %0 = arith.extf %p : bf16 to f64
      fsdp.yield %0 : f64
    }
    return
  }
}

// -----

// Only a buffer that counts has calls to count.
module {
  // expected-error @below {{has 'calls', but does not count}}
  fsdp.buffer @b : tensor<i64> {calls = 2 : i64, rule = "zeros"}
}
