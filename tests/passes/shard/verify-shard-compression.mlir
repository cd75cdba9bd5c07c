// The rule `compression` of verify-shard, and what the layout itself refuses.
// RUN: fsdpc-opt %s --verify-shard --verify-diagnostics --split-input-file

// All ranks choose as many elements as the option says.
module attributes {fsdp.options = {"reduce-hook" = ["top-k=50%"]}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  // expected-error@+1 {{breaks rule 'compression': layout 'a.flat' reduces top_k 7, and --reduce-hook wants top_k 8}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 top_k 7 states 2 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// Without the hook ranks send all of a gradient.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  // expected-error@+1 {{breaks rule 'compression': layout 'a.flat' reduces top_k 8, and --reduce-hook wants all elements}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 top_k 8 states 2 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// Groups hand on sums of all elements.
module attributes {fsdp.options = {"reduce-hook" = ["top-k=50%"]}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  // expected-error@+1 {{breaks rule 'compression': layout 'a.flat' is of strategy 'hybrid', which reduces all elements}}
  fsdp.layout @a.flat of @a strategy "hybrid" trainable elements 16 : f32 top_k 8 states 2 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> unit @a
  // expected-error@+1 {{is frozen, but compresses its gradients}}
  fsdp.layout @a.frozen of @a elements 16 : f32 top_k 8 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
}

// -----

module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  // expected-error@+1 {{has a top_k of 17, but 16 elements}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 top_k 17 states 2 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
}

// -----

// Both factors of a 16 x 16 matrix are an eighth of it.
module attributes {fsdp.options = {"reduce-hook" = ["power-sgd=1"]}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16x16xf32> trainable unit @a
  // expected-error@+1 {{breaks rule 'compression': layout 'a.flat' reduces all elements, and --reduce-hook wants power_sgd 1}}
  fsdp.layout @a.flat of @a trainable elements 256 : f32 states 2 {
    members = [#fsdp.member<@v[0, 256] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  // expected-error@+1 {{expected 'states'}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 top_k 7 power_sgd 1 states 2 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
}

// -----

module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  // expected-error@+1 {{has a power_sgd of 0; it must be from 1 to 65536}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 power_sgd 0 states 2 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
}

// -----

module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  // expected-error@+1 {{has a one_bit of 31; it must be from 32 to 65536}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 one_bit 31 states 2 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
}

// -----

// All ranks read blocks of the size that the option says.
module attributes {fsdp.options = {"reduce-hook" = ["one-bit=64"]}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16x16xf32> trainable unit @a
  // expected-error@+1 {{breaks rule 'compression': layout 'a.flat' reduces one_bit 128, and --reduce-hook wants one_bit 64}}
  fsdp.layout @a.flat of @a trainable elements 256 : f32 one_bit 128 states 2 {
    members = [#fsdp.member<@v[0, 256] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}
