// Each rule of verify-memory, broken.
// RUN: fsdpc-opt %s --verify-memory --verify-diagnostics --split-input-file

// planned: every value that needs memory has an offset.
module attributes {fsdp.arena = {bytes = 128 : i64}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    // expected-error @below {{violates rule 'planned': result 0 has no offset in 'fsdp.offsets'}}
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// aligned: slots begin at multiples of 64 bytes.
module attributes {fsdp.arena = {bytes = 128 : i64}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    // expected-error @below {{violates rule 'aligned': offset 32 is not a multiple of 64}}
    %a = nn.matmul %x, %x {fsdp.offsets = array<i64: 32>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// arena: slots end within the arena.
module attributes {fsdp.arena = {bytes = 96 : i64}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    // expected-error @below {{violates rule 'arena': its 64 bytes from 64 on extend past the arena of 96 bytes}}
    %a = nn.matmul %x, %x {fsdp.offsets = array<i64: 64>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// arena: the end of this slot is not a number of 64 bits.
module attributes {fsdp.arena = {bytes = 96 : i64}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    // expected-error @below {{violates rule 'arena': its 64 bytes from 9223372036854775744 on extend past the arena of 96 bytes}}
    %a = nn.matmul %x, %x {fsdp.offsets = array<i64: 9223372036854775744>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// overlap: an operand is alive while its result is written.
module attributes {fsdp.arena = {bytes = 128 : i64}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    // expected-note @below {{this op uses bytes [0, 64)}}
    %a = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-error @below {{violates rule 'overlap': bytes [0, 64) are still in use}}
    %b = nn.matmul %a, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// overlap: the operand of a reduction is alive until its wait.
module attributes {fsdp.arena = {bytes = 128 : i64}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %g = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-note @below {{this op uses bytes [0, 64)}}
    %f = fsdp.pack @a.flat(%g) {fsdp.offsets = array<i64: 0>} : (tensor<4x4xf32>) -> tensor<16xf32>
    %t = fsdp.reduce_scatter_start [@a.flat], %f : tensor<16xf32>
    // expected-error @below {{violates rule 'overlap': bytes [0, 64) are still in use}}
    %b = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.reduce_scatter_wait %t
    return
  }
}

// -----

// placed: a product lies over its accumulator.
module attributes {fsdp.arena = {bytes = 128 : i64}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    // expected-note @below {{required by this op}}
    %a = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-error @below {{violates rule 'placed': result 0 must lie at 0}}
    %b = nn.matmul %x, %x accumulate %a {fsdp.offsets = array<i64: 64>} : tensor<4x4xf32>, tensor<4x4xf32>, accumulate tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// Without an arena there is nothing to check against.
// expected-error @below {{missing attribute 'fsdp.arena' with entry 'bytes'; run plan-memory first}}
module {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// memory-cap: memory-limit is a hard cap. Beside the arena a rank of one holds two layouts
// (master and gradient, 128 bytes each) and the input twice.
// expected-error @below {{planned peak of 896 bytes per rank on 1 rank exceeds --memory-limit of 800 bytes; largest: parameters (256), gradients (256), all_gather of a.flat (192)}}
module attributes {fsdp.arena = {bytes = 256 : i64}, fsdp.options = {"memory-limit" = "800B", "max-ranks" = 1 : i64, "plan-ranks" = 1 : i64}} {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %s = fsdp.all_gather_start [@a.flat] {fsdp.offsets = array<i64: 0>}
    %f = fsdp.all_gather_wait %s : tensor<16xf32>
    %v = fsdp.view %f[@v at 0] : tensor<16xf32> -> tensor<4x4xf32>
    %y = nn.launch @exp(%v) {fsdp.offsets = array<i64: 192>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    fsdp.free %f : tensor<16xf32>
    return
  }
  func.func @update() { return }
}

// -----

// layout: the runtime reads a gradient from the beginning of its memory.
module attributes {fsdp.arena = {bytes = 128 : i64}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    fsdp.unsummed, members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %dv = nn.matmul %x, %x {fsdp.offsets = array<i64: 64>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-error @below {{violates rule 'layout': it begins at 64 of the gradient of layout 'a.flat' instead of 0}}
    %g = fsdp.pack @a.flat(%dv) {fsdp.offsets = array<i64: 64>} : (tensor<4x4xf32>) -> tensor<16xf32>
    return
  }
}
