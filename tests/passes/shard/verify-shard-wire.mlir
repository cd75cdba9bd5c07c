// The rule `wire` of verify-shard, what the layout itself refuses, and options
// that ask for blocks in vain.
// RUN: fsdpc-opt %s --verify-shard --verify-diagnostics --split-input-file

// All layouts that are gathered travel in the type of the option.
module attributes {fsdp.options = {"gather-dtype" = "i8"}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> unit @a
  // expected-error@+1 {{breaks rule 'wire': layout 'a.frozen' is gathered as 'none', and strategy 'zero3' with gather-dtype 'i8' gathers it as 'i8'}}
  fsdp.layout @a.frozen of @a elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// Without the option none does: its shards would be cut within blocks.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> unit @a
  // expected-error@+1 {{breaks rule 'wire': layout 'a.frozen' is gathered as 'f8e4m3', and strategy 'zero3' with gather-dtype 'none' gathers it as 'none'}}
  fsdp.layout @a.frozen of @a elements 16 : f32 wire f8E4M3FN states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// Owners share their parameters as they are.
module attributes {fsdp.options = {"gather-dtype" = "i8"}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> unit @a
  // expected-error@+1 {{breaks rule 'wire': layout 'a.frozen' is of strategy 'oss', which cannot send blocks (gather-dtype 'i8', reduce-dtype 'f32')}}
  fsdp.layout @a.frozen of @a strategy "oss" elements 16 : f32 wire i8 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// Groups hand on sums in f32.
module attributes {fsdp.options = {"reduce-dtype" = "i8"}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> unit @a
  // expected-error@+1 {{breaks rule 'wire': layout 'a.frozen' is of strategy 'hybrid', which cannot send blocks (gather-dtype 'none', reduce-dtype 'i8')}}
  fsdp.layout @a.frozen of @a strategy "hybrid" elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

// A block has elements of one parameter.
module attributes {fsdp.options = {"gather-dtype" = "i8"}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> unit @a
  fsdp.parameter @w : tensor<16xf32> unit @a
  // expected-error@+1 {{breaks rule 'layout': member 'w' begins at 16, but the next place is 256}}
  fsdp.layout @a.frozen of @a elements 32 : f32 wire i8 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@w[16, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() { return }
}

// -----

module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> unit @a
  // expected-error@+1 {{cannot be gathered as blocks of 'i4'; expected i8 or f8E4M3FN}}
  fsdp.layout @a.frozen of @a elements 16 : f32 wire i4 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}

// -----

module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> unit @a
  // expected-error@+1 {{is gathered in blocks, but keeps 'master' replicated}}
  fsdp.layout @a.frozen of @a elements 16 : f32 wire i8 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["master", "compute"]}
}

// -----

// expected-error@+1 {{'--gather-dtype' has no effect with '--strategy=ddp'; it needs}}
module attributes {fsdp.options = {"gather-dtype" = "i8", strategy = "ddp"}} {
}

// -----

// expected-error@+1 {{'gather-dtype' = "i4" is none of none|i8|f8e4m3; did you mean 'i8'?}}
module attributes {fsdp.options = {"gather-dtype" = "i4"}} {
}

// -----

// expected-error@+1 {{'--reduce-dtype=i8' is not supported with '--strategy=hybrid'; use zero3 with '--reshard-to'}}
module attributes {fsdp.options = {"reduce-dtype" = "i8", strategy = "hybrid"}} {
}
