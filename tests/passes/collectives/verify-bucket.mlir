// RUN: fsdpc-opt %s --verify-collectives --verify-diagnostics --split-input-file

// A reduction to owners has parameters of at most --bucket-size elements, unless
// it has a single one,
module attributes {fsdp.options = {"bucket-size" = 31 : i64, strategy = "oss"}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.layout @a.flat.part1 of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %gv = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    %gw = fsdp.pack @a.flat.part1(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-error @below {{breaks rule 'bucket': it reduces 32 elements of several parameters, but --bucket-size is 31}}
    fsdp.reduce_scatter [@a.flat, @a.flat.part1], %gv, %gw {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>, tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// and no layouts of other strategies.
module attributes {fsdp.options = {strategy = "oss"}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat.zero2 of @a strategy "zero2" trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.layout @a.flat.part1 of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch(%x: tensor<16xf32>) {
    %gv = fsdp.pack @a.flat.zero2(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    %gw = fsdp.pack @a.flat.part1(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-error @below {{breaks rule 'bucket': only 1 of its 2 layouts have owners}}
    fsdp.reduce_scatter [@a.flat.zero2, @a.flat.part1], %gv, %gw {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>, tensor<16xf32>
    return
  }
  func.func @update() { return }
}
