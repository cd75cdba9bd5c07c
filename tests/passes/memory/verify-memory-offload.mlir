// Places in the file of activations.
// RUN: fsdpc-opt %s --verify-memory --verify-diagnostics --split-input-file

// planned: what is offloaded has a place.
module attributes {fsdp.arena = {bytes = 128 : i64, offloaded = 128 : i64}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-error @below {{violates rule 'planned': it has no 'places' in the file}}
    %s = fsdp.offload_start %a : tensor<4x4xf32>
    %held = fsdp.offload_wait %s
    return
  }
}

// -----

// file: a place lies in the file.
module attributes {fsdp.arena = {bytes = 128 : i64, offloaded = 128 : i64}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-error @below {{violates rule 'file': its 64 bytes from 96 on extend past the file}}
    %s = fsdp.offload_start %a {places = array<i64: 96>} : tensor<4x4xf32>
    %held = fsdp.offload_wait %s
    return
  }
}

// -----

// file: without a size there is none.
module attributes {fsdp.arena = {bytes = 128 : i64}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-error @below {{violates rule 'file': its 64 bytes from 0 on extend past the file}}
    %s = fsdp.offload_start %a {places = array<i64: 0>} : tensor<4x4xf32>
    %held = fsdp.offload_wait %s
    return
  }
}

// -----

// file: every value has a place of its own until the next microbatch.
module attributes {fsdp.arena = {bytes = 128 : i64, offloaded = 128 : i64}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-note @below {{by this op}}
    %s = fsdp.offload_start %a {places = array<i64: 0>} : tensor<4x4xf32>
    %held = fsdp.offload_wait %s
    %b = nn.matmul %x, %x {fsdp.offsets = array<i64: 64>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-error @below {{violates rule 'file': bytes [32, 96) are taken already}}
    %t = fsdp.offload_start %b {places = array<i64: 32>} : tensor<4x4xf32>
    %more = fsdp.offload_wait %t
    return
  }
}

// -----

// overlap: a value is alive until its wait.
module attributes {fsdp.arena = {bytes = 128 : i64, offloaded = 128 : i64}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    // expected-note @below {{this op uses bytes [0, 64)}}
    %a = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %s = fsdp.offload_start %a {places = array<i64: 0>} : tensor<4x4xf32>
    // expected-error @below {{violates rule 'overlap': bytes [0, 64) are still in use}}
    %b = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %held = fsdp.offload_wait %s
    return
  }
}

// -----

// overlap: what is fetched is alive from the start.
module attributes {fsdp.arena = {bytes = 128 : i64, offloaded = 128 : i64}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %s = fsdp.offload_start %a {places = array<i64: 0>} : tensor<4x4xf32>
    %held = fsdp.offload_wait %s
    // expected-note @below {{this op uses bytes [0, 64)}}
    %t = fsdp.fetch_start %held {fsdp.offsets = array<i64: 0>}
    // expected-error @below {{violates rule 'overlap': bytes [0, 64) are still in use}}
    %b = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %c = fsdp.fetch_wait %t : tensor<4x4xf32>
    fsdp.free %c : tensor<4x4xf32>
    return
  }
}

// -----

// file: a value without bytes hides no other one.
module attributes {fsdp.arena = {bytes = 128 : i64, offloaded = 128 : i64}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}, %y: tensor<0x4xf32> {fsdp.input = "y"}) {
    %z = nn.matmul %y, %x {fsdp.offsets = array<i64: 0>} : tensor<0x4xf32>, tensor<4x4xf32> -> tensor<0x4xf32>
    %a = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %b = nn.matmul %x, %x {fsdp.offsets = array<i64: 64>} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-error @below {{violates rule 'file': bytes [0, 64) are taken already}}
    // expected-note @below {{by this op}}
    %s = fsdp.offload_start %a, %z, %b {places = array<i64: 0, 0, 0>} : tensor<4x4xf32>, tensor<0x4xf32>, tensor<4x4xf32>
    %held = fsdp.offload_wait %s
    return
  }
}

// -----

// A value outside of the arena takes no memory of it, so it is not offloaded.
module attributes {fsdp.arena = {bytes = 128 : i64, offloaded = 128 : i64}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    // expected-error @below {{offloads a value of type 'tensor<4x4xf32>' that does not lie in the arena}}
    %s = fsdp.offload_start %x {places = array<i64: 0>} : tensor<4x4xf32>
    %held = fsdp.offload_wait %s
    return
  }
}
