// Values that cannot be computed in place.
// RUN: fsdpc-opt %s --plan-memory --verify-diagnostics --split-input-file

// A gradient that two layouts need lies in only one of them.
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %g = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %a = fsdp.pack @a.flat(%g) : (tensor<4x4xf32>) -> tensor<16xf32>
    // expected-error @below {{cannot hold the gradient of 'v', which already has a place in another buffer; copy it with nn.copy}}
    %b = fsdp.pack @a.flat(%g) : (tensor<4x4xf32>) -> tensor<16xf32>
    fsdp.accumulate @a.flat, %a : tensor<16xf32>
    fsdp.accumulate @a.flat, %b : tensor<16xf32>
    return
  }
}

// -----

// An input is read-only.
module {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    // expected-error @below {{accumulates into memory that it does not own; copy the accumulator with nn.copy}}
    %a = nn.matmul %x, %x accumulate %x : tensor<4x4xf32>, tensor<4x4xf32>, accumulate tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// After a product was added to it, an accumulator has a new value.
module {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-error @below {{overwrites an accumulator that is read afterwards; copy it with nn.copy}}
    %b = nn.matmul %x, %x accumulate %a : tensor<4x4xf32>, tensor<4x4xf32>, accumulate tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-note @below {{read here}}
    %c = nn.matmul %a, %b : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}
