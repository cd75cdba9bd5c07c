// Removes waits that order nothing, then records without waits, and numbers the
// rest densely.
// RUN: fsdpc-opt %s --elide-events --split-input-file | FileCheck %s

// The second gather needs no wait: compute enqueued nothing since the first.
module {
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    %1 = rt.pointer arena + 64 bytes 64
    // CHECK: rt.launch
    rt.launch @exp(%0, %0)
    // CHECK-NEXT: rt.event_record compute 0
    rt.event_record compute 0
    // CHECK-NEXT: rt.event_wait gather 0
    rt.event_wait gather 0
    // CHECK-NEXT: rt.all_gather [@a]
    rt.all_gather [@a] -> %0
    rt.event_record gather 1
    rt.event_record compute 2
    rt.event_wait gather 2
    // CHECK-NEXT: rt.all_gather [@b]
    rt.all_gather [@b] -> %1
    // CHECK-NEXT: rt.event_record gather 1
    rt.event_record gather 3
    // Waited for out of order: the later event also orders the earlier gather.
    // CHECK-NEXT: rt.event_wait compute 1
    rt.event_wait compute 3
    // CHECK-NOT: rt.event_wait
    rt.event_wait compute 1
    // CHECK: rt.launch
    rt.launch @exp(%0, %1)
    return
  }
}

// -----

// A function begins when the previous one is done on all streams.
module {
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    // CHECK-NOT: rt.event
    rt.event_record compute 0
    rt.event_wait gather 0
    // CHECK: rt.all_gather
    rt.all_gather [@a] -> %0
    // CHECK-NOT: rt.event
    rt.event_record gather 1
    return
  }
}

// -----

// On GPUs copies run beside their stream's other commands: the fetch needs a
// wait, though the gather before it needs none for a command of its own stream.
module attributes {fsdp.options = {target = "cuda"}} {
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    // CHECK: rt.all_gather
    rt.all_gather [@a] -> %0
    // CHECK-NEXT: rt.event_record gather 0
    rt.event_record gather 0
    // CHECK-NEXT: rt.event_wait compute 0
    rt.event_wait compute 0
    // CHECK-NEXT: rt.event_record compute 1
    rt.event_record compute 1
    // CHECK-NEXT: rt.event_wait gather 1
    rt.event_wait gather 1
    // CHECK-NEXT: rt.fetch
    rt.fetch %0 bytes 64 from 0
    return
  }
}

// -----

// On the host the fetch follows the gather.
module {
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    // CHECK: rt.all_gather
    rt.all_gather [@a] -> %0
    rt.event_record gather 0
    rt.event_wait compute 0
    rt.event_record compute 1
    // CHECK-NOT: rt.event_wait gather
    rt.event_wait gather 1
    // CHECK: rt.fetch
    rt.fetch %0 bytes 64 from 0
    return
  }
}

// -----

// Compute has no copies, so a wait for what it has done itself adds nothing.
module attributes {fsdp.options = {target = "cuda"}} {
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    %1 = rt.pointer arena + 64 bytes 64
    // CHECK: rt.fetch
    rt.fetch %1 bytes 64 from 0
    // CHECK-NEXT: rt.launch
    rt.launch @exp(%0, %0)
    // CHECK-NOT: rt.event
    rt.event_record compute 0
    rt.event_wait compute 0
    // CHECK: rt.launch
    rt.launch @exp(%0, %0)
    return
  }
}
