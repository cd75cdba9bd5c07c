// Each rule of verify-rt, broken.
// RUN: fsdpc-opt %s --verify-rt --verify-diagnostics --split-input-file --allow-unregistered-dialect

// An event is recorded before it is waited for.
module attributes {fsdp.arena = {bytes = 64 : i64}} {
  func.func @microbatch() {
    // expected-error @below {{waits for event 0, which has not been recorded before}}
    rt.event_wait gather 0
    rt.event_record compute 0
    return
  }
}

// -----

// Pointers stay within the arena.
module attributes {fsdp.arena = {bytes = 64 : i64}} {
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    %1 = rt.pointer arena + 32 bytes 64
    // expected-error @below {{accesses memory up to byte 96 of an arena of 64 bytes}}
    rt.launch @exp(%0, %1)
    return
  }
}

// -----

// An op touches no more than its pointers say: here 64 bytes of 4.
module attributes {fsdp.arena = {bytes = 64 : i64}} {
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    %1 = rt.pointer arena + 60 bytes 4
    // expected-error @below {{touches 64 bytes of operand 1, but its pointer reaches 4}}
    rt.launch @exp(%0, %1)
    return
  }
}

// -----

// The plan of a product says what it touches: its batches of m x n elements.
module attributes {fsdp.arena = {bytes = 4096 : i64}} {
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 512
    %1 = rt.pointer arena + 512 bytes 512
    %2 = rt.pointer arena + 1024 bytes 124
    // expected-error @below {{touches 128 bytes of operand 2, but its pointer reaches 124}}
    rt.matmul <4 x 4 x 8, f32, f32 -> f32 batch [2] strides [32], [32], [16] transposed false, false accumulate false> %0, %1 -> %2
    return
  }
}

// -----

// A flat buffer has the elements of its layout.
module attributes {fsdp.arena = {bytes = 4096 : i64}} {
  fsdp.unit @a
  fsdp.parameter @w : tensor<32xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 32 : f32 states 0 {
    members = [#fsdp.member<@w[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    // expected-error @below {{touches 128 bytes of operand 0, but its pointer reaches 64}}
    rt.reduce_scatter [@a.flat], %0
    return
  }
}

// -----

// A gather also writes its padding: 128 bytes for each of --max-ranks.
module attributes {fsdp.arena = {bytes = 64 : i64}, fsdp.options = {"max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.parameter @a.w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@a.w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() {
    %0 = rt.pointer gathered @a.flat + 0 bytes 64 at 0
    // expected-error @below {{accesses memory up to byte 320 of an arena of 64 bytes}}
    rt.all_gather [@a.flat] -> %0
    return
  }
}

// -----

// Compute reads what stream gather writes without waiting for it.
module attributes {fsdp.arena = {bytes = 512 : i64}, fsdp.options = {"max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.parameter @a.w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@a.w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer gathered @a.flat + 0 bytes 64 at 0
    // expected-note @below {{conflicting access is here}}
    rt.all_gather [@a.flat] -> %0
    rt.event_record gather 0
    %1 = rt.pointer arena + 320 bytes 64
    // expected-error @below {{on stream 'compute' accesses arena bytes [0, 64) without waiting for stream 'gather'; add an event between them}}
    rt.launch @exp(%0, %1)
    rt.event_wait compute 0
    return
  }
}

// -----

// Compute writes what stream reduce still reads. Two reads are not a race.
module attributes {fsdp.arena = {bytes = 512 : i64}} {
  fsdp.unit @a
  fsdp.parameter @a.w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@a.w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    %1 = rt.pointer arena + 64 bytes 64
    // expected-note @below {{conflicting access is here}}
    rt.reduce_scatter [@a.flat], %0
    rt.launch @exp(%0, %1)
    // expected-error @below {{on stream 'compute' accesses arena bytes [0, 64) without waiting for stream 'reduce'; add an event between them}}
    rt.launch @exp(%1, %0)
    return
  }
}

// -----

// An event orders everything enqueued on its stream before, also through a
// third stream.
module attributes {fsdp.arena = {bytes = 512 : i64}, fsdp.options = {"max-ranks" = 1 : i64}} {
  fsdp.unit @a
  fsdp.parameter @a.w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@a.w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    %1 = rt.pointer arena + 64 bytes 64
    rt.reduce_scatter [@a.flat], %0
    rt.event_record reduce 0
    rt.event_wait compute 0
    rt.launch @exp(%1, %1)
    rt.event_record compute 1
    rt.event_wait gather 1
    %2 = rt.pointer gathered @a.flat + 0 bytes 64 at 0
    rt.all_gather [@a.flat] -> %2
    return
  }
}

// -----

// The accumulators of a layout: compute adds to what stream reduce still sums.
module attributes {fsdp.arena = {bytes = 512 : i64}} {
  fsdp.unit @a
  fsdp.parameter @a.w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@a.w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.unit @b
  fsdp.parameter @b.w : tensor<16xf32> trainable unit @b
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@b.w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.unit @c
  fsdp.parameter @c.w : tensor<16xf32> trainable unit @c
  fsdp.layout @c.flat of @c trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@c.w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    %1 = rt.pointer arena + 64 bytes 64
    // expected-note @below {{conflicting access is here}}
    rt.reduce_scatter [@a.flat, @b.flat], %0, %1
    // Another layout has accumulators of its own.
    rt.accumulate @c.flat, %0
    // expected-error @below {{on stream 'compute' accesses gradients of 'b.flat' without waiting for stream 'reduce'; add an event between them}}
    rt.accumulate @b.flat, %1
    return
  }
}

// -----

// Sums of parameters are added up on another stream, and the optimizer reads
// them there. Each layout has one member.
module attributes {fsdp.arena = {bytes = 512 : i64}, fsdp.options = {"max-ranks" = 1 : i64}} {
  fsdp.unit @a
  fsdp.parameter @a.w : tensor<1xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 1 : f32 states 0 {
    members = [#fsdp.member<@a.w[0, 1] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.unit @b
  fsdp.parameter @b.w : tensor<1xf32> trainable unit @b
  fsdp.layout @b.flat of @b trainable elements 1 : f32 states 0 {
    members = [#fsdp.member<@b.w[0, 1] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @sums(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64) -> f64 attributes {nn.kernel} {
    return %lr : f64
  }
  func.func private @lamb(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64) -> f32 attributes {nn.kernel} {
    return %p : f32
  }
  func.func @update() {
    %0 = rt.pointer arena + 0 bytes 4
    %1 = rt.pointer arena + 64 bytes 256
    rt.member_sums @sums([@a.flat, @b.flat], %0) per_member 1 -> %1
    rt.event_record compute 0
    rt.event_wait reduce 0
    // expected-note @below {{conflicting access is here}}
    rt.all_reduce %1 count 32
    %2 = rt.pointer arena + 192 bytes 128
    // expected-error @below {{on stream 'compute' accesses}}
    rt.optimizer @lamb(@b.flat, %0) sums %2 per_member 1
    return
  }
}

// -----

// The shards of a layout: an optimizer changes them before they are gathered.
module attributes {fsdp.arena = {bytes = 512 : i64}, fsdp.options = {"max-ranks" = 1 : i64}} {
  fsdp.unit @a
  fsdp.parameter @a.w : tensor<1xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 1 : f32 states 0 {
    members = [#fsdp.member<@a.w[0, 1] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @sgd(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64) -> f32 attributes {nn.kernel} {
    return %p : f32
  }
  func.func @update() {
    %0 = rt.pointer arena + 0 bytes 4
    // expected-note @below {{conflicting access is here}}
    rt.optimizer @sgd(@a.flat, %0)
    %1 = rt.pointer whole @a.flat + 0 bytes 64
    // expected-error @below {{on stream 'gather' accesses parameters of 'a.flat' without waiting for stream 'compute'; add an event between them}}
    rt.all_gather [@a.flat] -> %1
    return
  }
}

// -----

// Parameters that every rank keeps: compute reads them while they are gathered.
module attributes {fsdp.arena = {bytes = 512 : i64}, fsdp.options = {"max-ranks" = 1 : i64}} {
  fsdp.unit @a
  fsdp.parameter @a.w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@a.w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @update() {
    %0 = rt.pointer whole @a.flat + 0 bytes 64
    %1 = rt.pointer arena + 0 bytes 64
    // expected-note @below {{conflicting access is here}}
    rt.all_gather [@a.flat] -> %0
    // expected-error @below {{on stream 'compute' accesses parameters of 'a.flat' without waiting for stream 'gather'; add an event between them}}
    rt.launch @exp(%0, %1)
    return
  }
}

// -----

// A sum over ranks in a microbatch: compute reads it before it is there.
module attributes {fsdp.arena = {bytes = 512 : i64}} {
  func.func private @exp(%x: tensor<4xf64>) -> tensor<4xf64> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4xf64>
    return %y : tensor<4xf64>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 32
    %1 = rt.pointer arena + 64 bytes 32
    rt.event_record compute 0
    rt.event_wait reduce 0
    // expected-note @below {{conflicting access is here}}
    rt.all_reduce %0 count 4
    // expected-error @below {{on stream 'compute' accesses arena bytes [0, 32) without waiting for stream 'reduce'; add an event between them}}
    rt.launch @exp(%0, %1)
    return
  }
}

// -----

// Running statistics: compute reads what stream reduce updates.
module attributes {fsdp.arena = {bytes = 512 : i64}} {
  fsdp.buffer @mean : tensor<4xf32>
  func.func private @exp(%x: tensor<4xf32>) -> tensor<4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4xf32>
    return %y : tensor<4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 16
    %1 = rt.pointer buffer @mean + 0 bytes 16
    %2 = rt.pointer arena + 64 bytes 16
    rt.event_record compute 0
    rt.event_wait reduce 0
    // expected-note @below {{conflicting access is here}}
    rt.update_statistics @mean, %0 momentum 1.000000e-01
    // expected-error @below {{on stream 'compute' accesses buffers of 'mean' without waiting for stream 'reduce'; add an event between them}}
    rt.launch @exp(%1, %2)
    return
  }
}

// -----

// Only the runtime writes inputs, constants and the key of random numbers.
module attributes {fsdp.arena = {bytes = 512 : i64}} {
  func.func @microbatch() {
    %0 = rt.pointer random + 0 bytes 16
    // expected-error @below {{writes to space 'random', which only the runtime writes}}
    rt.poison %0 bytes 16
    return
  }
}

// -----

// An address must come from a pointer, which says what it reaches.
module attributes {fsdp.arena = {bytes = 512 : i64}} {
  func.func @microbatch(%0: !rt.ptr) {
    // expected-error @below {{takes as operand 0 an address that is not the result of an rt.pointer}}
    rt.poison %0 bytes 16
    return
  }
}

// -----

// An op that states no effects is refused, not taken as harmless.
module attributes {fsdp.arena = {bytes = 512 : i64}} {
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    // expected-error @below {{does not declare its memory effects; declare them in ODS}}
    "foreign.op"(%0) : (!rt.ptr) -> ()
    return
  }
}

// -----

// An op of another dialect states effects, but not which bytes it accesses. It is
// refused too.
module attributes {fsdp.arena = {bytes = 512 : i64}} {
  fsdp.unit @a
  func.func @microbatch() {
    // expected-error @below {{does not say which bytes it accesses; implement rt.AccessRangesOpInterface}}
    fsdp.enter @a
    return
  }
}

// -----

// What a call touches depends on symbols, which the module must have.
module attributes {fsdp.arena = {bytes = 512 : i64}} {
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    // expected-error @below {{references layout 'a.flat', which the module lacks}}
    rt.reduce_scatter [@a.flat], %0
    return
  }
}

// -----

module attributes {fsdp.arena = {bytes = 512 : i64}} {
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    // expected-error @below {{references buffer 'mean', which the module lacks}}
    rt.update_statistics @mean, %0 momentum 1.000000e-01
    return
  }
}

// -----

// A launch has the buffers of its kernel.
module attributes {fsdp.arena = {bytes = 512 : i64}} {
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    // expected-error @below {{has 3 addresses for 2 buffers}}
    rt.launch @exp(%0, %0, %0)
    return
  }
}

// -----

// A gather has a destination per layout.
module attributes {fsdp.arena = {bytes = 512 : i64}} {
  fsdp.unit @a
  fsdp.parameter @a.w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@a.w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    // expected-error @below {{has 2 addresses for 1 buffers}}
    rt.all_gather [@a.flat] -> %0, %0
    return
  }
}

// -----

// Pointers stay within a gradient.
module attributes {fsdp.arena = {bytes = 64 : i64}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    fsdp.unsummed, members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    %1 = rt.pointer gradient @a.flat + 16 bytes 64
    // expected-error @below {{accesses the gradient of layout 'a.flat' up to byte 80 of 64}}
    rt.launch @exp(%0, %1)
    return
  }
}

// -----

// A reduction waits for the kernel that writes the gradient.
module attributes {fsdp.arena = {bytes = 64 : i64}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    fsdp.unsummed, members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    %1 = rt.pointer gradient @a.flat + 0 bytes 64
    // expected-note @below {{conflicting access is here}}
    rt.launch @exp(%0, %1)
    // expected-error @below {{on stream 'reduce' accesses gradients of 'a.flat' without waiting for stream 'compute'}}
    rt.reduce_scatter [@a.flat], %1
    return
  }
}

// -----

// Gathered parameters may be the shards of all ranks, so only a gather writes
// to them.
module attributes {fsdp.arena = {bytes = 128 : i64}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    %1 = rt.pointer gathered @a.flat + 0 bytes 64 at 64
    // expected-error @below {{writes to the gathered parameters of 'a.flat', which may be the shards of all ranks; only a gather may}}
    rt.launch @exp(%0, %1)
    return
  }
}

// -----

// They lie in the arena: what overwrites them there waits for their readers.
module attributes {fsdp.arena = {bytes = 512 : i64}, fsdp.options = {"max-ranks" = 1 : i64}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer gathered @a.flat + 0 bytes 64 at 64
    %1 = rt.pointer arena + 0 bytes 64
    // expected-note @below {{conflicting access is here}}
    rt.launch @exp(%0, %1)
    %2 = rt.pointer gathered @b.flat + 0 bytes 64 at 64
    // expected-error @below {{accesses arena bytes [64, 256) without waiting for}}
    rt.all_gather [@b.flat] -> %2
    return
  }
}

// -----

// And they may be the shards, which are written where their owner updates them.
module attributes {fsdp.arena = {bytes = 128 : i64}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer gathered @a.flat + 0 bytes 64 at 64
    %1 = rt.pointer arena + 0 bytes 64
    // expected-note @below {{conflicting access is here}}
    rt.launch @exp(%0, %1)
    %2 = rt.pointer whole @a.flat + 0 bytes 64
    // expected-error @below {{accesses parameters of 'a.flat' without waiting for}}
    rt.all_gather [@a.flat] -> %2
    return
  }
}

// -----

// Where gathered parameters begin in the arena is said of them alone.
func.func @microbatch() {
  // expected-error @below {{points to space 'gathered'; 'at' belongs to the space 'gathered', which needs it}}
  %0 = rt.pointer gathered @a.flat + 0 bytes 64
  return
}

// -----

func.func @microbatch() {
  // expected-error @below {{points to space 'arena'; 'at' belongs to the space 'gathered', which needs it}}
  %0 = rt.pointer arena + 0 bytes 64 at 64
  return
}

// -----

// The runtime chooses where a layout is gathered: not behind its back.
module attributes {fsdp.arena = {bytes = 512 : i64}, fsdp.options = {"max-ranks" = 1 : i64}} {
  fsdp.unit @a
  fsdp.parameter @a.w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@a.w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    // expected-error @below {{gathers 'a.flat' to what is not the first byte of its own memory (space 'gathered' or 'whole')}}
    rt.all_gather [@a.flat] -> %0
    return
  }
}

// -----

// Nor into another layout's.
module attributes {fsdp.arena = {bytes = 512 : i64}, fsdp.options = {"max-ranks" = 1 : i64}} {
  fsdp.unit @a
  fsdp.parameter @a.w : tensor<16xf32> trainable unit @a
  fsdp.parameter @a.v : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@a.w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@a.v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() {
    %0 = rt.pointer gathered @b.flat + 0 bytes 64 at 0
    // expected-error @below {{gathers 'a.flat' to what is not the first byte of its own memory}}
    rt.all_gather [@a.flat] -> %0
    return
  }
}

// -----

// Side by side, the shards of other layouts lie behind a layout's own.
module attributes {fsdp.arena = {bytes = 512 : i64}, fsdp.options = {"max-ranks" = 1 : i64}} {
  fsdp.unit @a
  fsdp.parameter @a.w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@a.w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer gathered @a.flat + 4 bytes 64 at 0
    %1 = rt.pointer arena + 256 bytes 64
    // expected-error @below {{accesses the gathered parameters of layout 'a.flat' up to byte 68 of 64}}
    rt.launch @exp(%0, %1)
    return
  }
}
