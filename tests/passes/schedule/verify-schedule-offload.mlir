// Edits of offloads and fetches that break a rule.
// RUN: fsdpc-opt %s --verify-schedule --verify-diagnostics --split-input-file

// Nothing is fetched before the backward begins.
module {
  fsdp.unit @a
  fsdp.unit @b
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %s = fsdp.offload_start %a : tensor<4x4xf32>
    %held = fsdp.offload_wait %s
    // expected-error @below {{violates rule 'start-window'}}
    %t = fsdp.fetch_start %held
    fsdp.enter @a backward
    %b = fsdp.fetch_wait %t : tensor<4x4xf32>
    %c = nn.neg %b : tensor<4x4xf32>
    fsdp.free %b : tensor<4x4xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}

// -----

// An offload ends before the backward begins.
module {
  fsdp.unit @a
  fsdp.unit @b
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-error @below {{violates rule 'wait-before-use'}}
    %s = fsdp.offload_start %a : tensor<4x4xf32>
    fsdp.enter @a backward
    %d = nn.neg %x : tensor<4x4xf32>
    %held = fsdp.offload_wait %s
    %t = fsdp.fetch_start %held
    %b = fsdp.fetch_wait %t : tensor<4x4xf32>
    %c = nn.neg %b : tensor<4x4xf32>
    fsdp.free %b : tensor<4x4xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}

// -----

// An offload starts when the forward has read its values.
module {
  fsdp.unit @a
  fsdp.unit @b
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-error @below {{violates rule 'start-window'}}
    %s = fsdp.offload_start %a : tensor<4x4xf32>
    %e = nn.neg %a : tensor<4x4xf32>
    %held = fsdp.offload_wait %s
    fsdp.enter @a backward
    %d = nn.neg %x : tensor<4x4xf32>
    %t = fsdp.fetch_start %held
    %b = fsdp.fetch_wait %t : tensor<4x4xf32>
    %c = nn.neg %b : tensor<4x4xf32>
    fsdp.free %b : tensor<4x4xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}

// -----

// Nothing may add to a value while it is written.
module {
  fsdp.unit @a
  fsdp.unit @b
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-error @below {{violates rule 'source-kept': its operand is overwritten before its wait}}
    %s = fsdp.offload_start %a : tensor<4x4xf32>
    // expected-note @below {{overwritten here}}
    %e = nn.matmul %x, %x accumulate %a : tensor<4x4xf32>, tensor<4x4xf32>, accumulate tensor<4x4xf32> -> tensor<4x4xf32>
    %held = fsdp.offload_wait %s
    fsdp.enter @a backward
    %t = fsdp.fetch_start %held
    %b = fsdp.fetch_wait %t : tensor<4x4xf32>
    %c = nn.neg %b : tensor<4x4xf32>
    fsdp.free %b : tensor<4x4xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}

// -----

// A value that nothing fetches need not be written.
module {
  fsdp.unit @a
  fsdp.unit @b
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %s = fsdp.offload_start %a : tensor<4x4xf32>
    // expected-error @below {{violates rule 'used': nothing fetches what is offloaded; remove the collective}}
    %held = fsdp.offload_wait %s
    return
  }
  func.func @update() { return }
}

// -----

// Each fetched value is freed.
module {
  fsdp.unit @a
  fsdp.unit @b
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %s = fsdp.offload_start %a : tensor<4x4xf32>
    %held = fsdp.offload_wait %s
    fsdp.enter @a backward
    %t = fsdp.fetch_start %held
    // expected-error @below {{violates rule 'free-once': a buffer is freed 0 times; each must be freed exactly once}}
    %b = fsdp.fetch_wait %t : tensor<4x4xf32>
    %c = nn.neg %b : tensor<4x4xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}

// -----

// An offload is split, as collectives are.
module {
  fsdp.unit @a
  fsdp.unit @b
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    // expected-error @below {{violates rule 'split'}}
    %held = fsdp.offload %a : tensor<4x4xf32>
    return
  }
  func.func @update() { return }
}

// -----

// A view does not show what overwrites its memory.
module {
  fsdp.unit @a
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %v = nn.reshape %a : tensor<4x4xf32> -> tensor<16xf32>
    // expected-error @below {{violates rule 'source-kept': its operand is a view; offload the value that it is of}}
    %s = fsdp.offload_start %v : tensor<16xf32>
    %held = fsdp.offload_wait %s
    fsdp.enter @a backward
    %t = fsdp.fetch_start %held
    %b = fsdp.fetch_wait %t : tensor<16xf32>
    %c = nn.neg %b : tensor<16xf32>
    fsdp.free %b : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}
