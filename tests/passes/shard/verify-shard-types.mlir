// The rule `compute` of verify-shard: the type of a layout and of its members.
// RUN: fsdpc-opt %s --verify-shard --verify-diagnostics --split-input-file

// A layout computes in --param-dtype.
module attributes {fsdp.options = {"param-dtype" = "bf16"}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> unit @a
  // expected-error@+1 {{breaks rule 'compute': layout 'a.frozen' computes in 'f32', but --param-dtype is bf16}}
  fsdp.layout @a.frozen of @a elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// One whose members --keep-f32 marked is f32.
module attributes {fsdp.options = {"param-dtype" = "bf16", "keep-f32" = ["n"]}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> unit @a {fsdp.keep_f32}
  // expected-error@+1 {{breaks rule 'compute': layout 'a.frozen' computes in 'bf16', but its first member has 'fsdp.keep_f32'}}
  fsdp.layout @a.frozen of @a elements 16 : bf16 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// All members of a layout are marked, or none is.
module attributes {fsdp.options = {"param-dtype" = "bf16", "keep-f32" = ["n"]}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> unit @a {fsdp.keep_f32}
  // expected-note@+1 {{the parameter}}
  fsdp.parameter @w : tensor<16xf32> unit @a
  // expected-error@+1 {{breaks rule 'compute': its member 'w' lacks 'fsdp.keep_f32', which its first member has}}
  fsdp.layout @a.frozen.f32 of @a elements 32 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@w[16, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// A unit may have a layout of each type, but not two of one.
module attributes {fsdp.options = {"param-dtype" = "bf16", "keep-f32" = ["n"]}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> unit @a {fsdp.keep_f32}
  fsdp.parameter @w : tensor<16xf32> unit @a
  fsdp.parameter @x : tensor<16xf32> unit @a {fsdp.keep_f32}
  fsdp.layout @a.frozen of @a elements 16 : bf16 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // expected-note@+1 {{the first is here}}
  fsdp.layout @a.frozen.f32 of @a elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // expected-error@+1 {{breaks rule 'layout': unit 'a' has a second layout of frozen parameters}}
  fsdp.layout @a.frozen.f32.2 of @a elements 16 : f32 states 0 {
    members = [#fsdp.member<@x[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}
