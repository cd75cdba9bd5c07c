// The rule `unsummed` of verify-shard.
// RUN: fsdpc-opt %s --verify-shard --verify-diagnostics --split-input-file

// A second rank's gradient would be lost.
module attributes {fsdp.options = {"max-accumulate" = 1 : i64, "max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  // expected-error@+1 {{breaks rule 'unsummed': the gradient of layout 'a.flat' is not read as one microbatch of one rank has computed it (max-accumulate 1, max-ranks 2, reduce-dtype 'f32')}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 2 {
    fsdp.unsummed, members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// The options decide, so that all programs of them have the same memory.
module attributes {fsdp.options = {"max-accumulate" = 1 : i64, "max-ranks" = 1 : i64}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  // expected-error@+1 {{breaks rule 'unsummed': the gradient of layout 'a.flat' is read as one microbatch}}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 2 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// A frozen layout has no gradient.
module attributes {fsdp.options = {"max-accumulate" = 1 : i64, "max-ranks" = 1 : i64}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> unit @a
  // expected-error@+1 {{breaks rule 'unsummed': the gradient of layout 'a.frozen' is not read as one microbatch}}
  fsdp.layout @a.frozen of @a elements 16 : f32 states 0 {
    fsdp.unsummed, members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}
