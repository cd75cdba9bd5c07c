// On GPUs copies of activations run beside the other commands of their stream,
// and its events stand for both. On the host a stream runs one command after the
// other.
// RUN: fsdpc-opt %s --verify-rt --verify-diagnostics --split-input-file

// A fetch must not write where a gather on its stream may still write.
module attributes {fsdp.arena = {bytes = 4096 : i64}, fsdp.options = {"max-ranks" = 2 : i64, target = "cuda"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<32xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 32 : f32 states 0 {
    members = [#fsdp.member<@w[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 128
    %1 = rt.pointer gathered @a.flat + 0 bytes 128 at 0
    // expected-note @below {{conflicting access is here}}
    rt.all_gather [@a.flat] -> %1
    // expected-error @below {{on copies of stream 'gather' accesses arena bytes [0, 128) without waiting for stream 'gather'; add an event between them}}
    rt.fetch %0 bytes 128 from 0
    return
  }
}

// -----

// An event of the stream orders the two.
module attributes {fsdp.arena = {bytes = 4096 : i64}, fsdp.options = {"max-ranks" = 2 : i64, target = "cuda"}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<32xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 32 : f32 states 0 {
    members = [#fsdp.member<@w[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 128
    %1 = rt.pointer gathered @a.flat + 0 bytes 128 at 0
    rt.all_gather [@a.flat] -> %1
    rt.event_record gather 0
    rt.event_wait gather 0
    rt.fetch %0 bytes 128 from 0
    return
  }
}

// -----

// So does the order of a stream on the host.
module attributes {fsdp.arena = {bytes = 4096 : i64}, fsdp.options = {"max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<32xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 32 : f32 states 0 {
    members = [#fsdp.member<@w[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 128
    %1 = rt.pointer gathered @a.flat + 0 bytes 128 at 0
    rt.all_gather [@a.flat] -> %1
    rt.fetch %0 bytes 128 from 0
    return
  }
}

// -----

// Compute waits for an offload before it overwrites what is offloaded.
module attributes {fsdp.arena = {bytes = 64 : i64}, fsdp.options = {target = "cuda"}} {
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    // expected-note @below {{conflicting access is here}}
    rt.offload %0 bytes 64 to 0
    // expected-error @below {{on stream 'compute' accesses arena bytes [0, 64) without waiting for copies of stream 'reduce'}}
    rt.launch @exp(%0, %0)
    return
  }
}

// -----

// A fetch waits until the file has what it reads.
module attributes {fsdp.arena = {bytes = 128 : i64}, fsdp.options = {target = "cuda"}} {
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    %1 = rt.pointer arena + 64 bytes 64
    // expected-note @below {{conflicting access is here}}
    rt.offload %0 bytes 64 to 0
    rt.event_record compute 0
    rt.event_wait gather 0
    // expected-error @below {{on copies of stream 'gather' accesses}}
    rt.fetch %1 bytes 64 from 0
    return
  }
}
