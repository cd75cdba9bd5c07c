// All that can be offloaded need not take the least memory: the backward of @b
// overwrites %b where it has stayed, but a fetched %b needs 4096 bytes of its
// own beside the result. So only %a leaves, under each limit that this keeps,
// and the error names its peak: %b and a sum of 64 bytes, beside 12288 bytes of
// inputs, twice each. All in memory are 18496 bytes, and both offloaded 20480.
// RUN: sed 's/LIMIT/18495B/' %s | fsdpc-opt --schedule-prefetch --verify-schedule --plan-memory --verify-memory | FileCheck %s
// RUN: sed 's/LIMIT/16448B/' %s | fsdpc-opt --schedule-prefetch --verify-schedule --plan-memory --verify-memory | FileCheck %s
// RUN: sed 's/LIMIT/16447B/' %s | not fsdpc-opt --schedule-prefetch 2>&1 | FileCheck %s --check-prefix=OVER

// CHECK: fsdp.offloaded = {bytes = 2048 : i64, {{.*}}, of_bytes = 6144 : i64, of_pieces = 2 : i64, pieces = 1 : i64, units = [@a]}
// CHECK: func.func @microbatch
// CHECK: fsdp.offload_start %{{.*}} {{{.*}}fsdp.unit = @a
// CHECK-NOT: fsdp.offload_start
// OVER: planned peak of 16448 bytes per rank on 1 rank exceeds --memory-limit of 16447 bytes
module attributes {fsdp.options = {"memory-limit" = "LIMIT", "offload" = "activations", "plan-ranks" = 1 : i64}} {
  fsdp.unit @a
  fsdp.unit @b
  func.func private @small(%x: tensor<8x64xf32>) -> tensor<8x64xf32> attributes {nn.kernel} {
    %y = nn.relu %x : tensor<8x64xf32>
    return %y : tensor<8x64xf32>
  }
  func.func private @large(%x: tensor<16x64xf32>) -> tensor<16x64xf32> attributes {nn.kernel} {
    %y = nn.relu %x : tensor<16x64xf32>
    return %y : tensor<16x64xf32>
  }
  func.func private @sum(%x: tensor<16x64xf32>) -> tensor<16x1xf32> attributes {nn.kernel} {
    %y = nn.reduce sum %x [1] : tensor<16x64xf32> -> tensor<16x1xf32>
    return %y : tensor<16x1xf32>
  }
  func.func private @scale(%x: tensor<8x64xf32>, %s: tensor<16x1xf32>) -> tensor<8x64xf32> attributes {nn.kernel} {
    %y = nn.relu %x : tensor<8x64xf32>
    return %y : tensor<8x64xf32>
  }
  func.func @microbatch(%x: tensor<8x64xf32> {fsdp.input = "x"}, %y: tensor<16x64xf32> {fsdp.input = "y"}) {
    fsdp.enter @a
    %a = nn.launch @small(%x) {fsdp.cost_us = 100.0 : f64, fsdp.unit = @a} : (tensor<8x64xf32>) -> tensor<8x64xf32>
    %held_a = fsdp.offload %a {fsdp.unit = @a} : tensor<8x64xf32>
    fsdp.exit @a
    fsdp.enter @b
    %b = nn.launch @large(%y) {fsdp.cost_us = 100.0 : f64, fsdp.unit = @b} : (tensor<16x64xf32>) -> tensor<16x64xf32>
    %held_b = fsdp.offload %b {fsdp.unit = @b} : tensor<16x64xf32>
    fsdp.exit @b
    fsdp.enter @b backward
    %b2 = fsdp.fetch %held_b {fsdp.backward, fsdp.unit = @b} : tensor<16x64xf32>
    %c = nn.launch @large(%b2) {fsdp.backward, fsdp.cost_us = 100.0 : f64, fsdp.unit = @b, tied = array<i64: 0>} : (tensor<16x64xf32>) -> tensor<16x64xf32>
    %d = nn.launch @sum(%c) {fsdp.backward, fsdp.cost_us = 100.0 : f64, fsdp.unit = @b} : (tensor<16x64xf32>) -> tensor<16x1xf32>
    fsdp.exit @b backward
    fsdp.enter @a backward
    %a2 = fsdp.fetch %held_a {fsdp.backward, fsdp.unit = @a} : tensor<8x64xf32>
    %e = nn.launch @scale(%a2, %d) {fsdp.backward, fsdp.cost_us = 100.0 : f64, fsdp.unit = @a} : (tensor<8x64xf32>, tensor<16x1xf32>) -> tensor<8x64xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}
