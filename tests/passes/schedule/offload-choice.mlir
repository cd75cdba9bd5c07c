// Under a memory limit only what it requires is offloaded, that with the most
// time to travel first: %a of the first unit before %b of the second.
// RUN: sed 's/LIMIT/7168B/' %s | fsdpc-opt --schedule-prefetch --verify-schedule --plan-memory --verify-memory | FileCheck %s --check-prefixes=ALL,NONE
// RUN: sed 's/LIMIT/6144B/' %s | fsdpc-opt --schedule-prefetch --verify-schedule --plan-memory --verify-memory | FileCheck %s --check-prefixes=ALL,ONE
// RUN: sed 's/LIMIT/5120B/' %s | fsdpc-opt --schedule-prefetch --verify-schedule --plan-memory --verify-memory | FileCheck %s --check-prefixes=ALL,BOTH

// NONE: fsdp.offloaded = {bytes = 0 : i64, copy_us = 0.0{{.*}}, of_bytes = 2048 : i64, of_pieces = 2 : i64, pieces = 0 : i64, units = []}
// ONE: fsdp.offloaded = {bytes = 1024 : i64, {{.*}}, of_bytes = 2048 : i64, of_pieces = 2 : i64, pieces = 1 : i64, units = [@a]}
// BOTH: fsdp.offloaded = {bytes = 2048 : i64, {{.*}}, of_bytes = 2048 : i64, of_pieces = 2 : i64, pieces = 2 : i64, units = [@a, @b]}
// ALL: func.func @microbatch
// NONE-NOT: fsdp.offload
// ONE: fsdp.offload_start %{{.*}} {{{.*}}fsdp.unit = @a
// ONE-NOT: fsdp.offload_start
// BOTH-COUNT-2: fsdp.offload_start
module attributes {fsdp.options = {"memory-limit" = "LIMIT", "offload" = "activations", "plan-ranks" = 1 : i64}} {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.unit @c
  func.func private @relu(%x: tensor<16x16xf32>) -> tensor<16x16xf32> attributes {nn.kernel} {
    %y = nn.relu %x : tensor<16x16xf32>
    return %y : tensor<16x16xf32>
  }
  func.func private @add(%x: tensor<16x16xf32>, %y: tensor<16x16xf32>) -> tensor<16x16xf32> attributes {nn.kernel} {
    %z = nn.add %x, %y : tensor<16x16xf32>
    return %z : tensor<16x16xf32>
  }
  func.func @microbatch(%x: tensor<16x16xf32> {fsdp.input = "x"}) {
    fsdp.enter @a
    %a = nn.launch @relu(%x) {fsdp.cost_us = 100.0 : f64, fsdp.unit = @a} : (tensor<16x16xf32>) -> tensor<16x16xf32>
    %held_a = fsdp.offload %a {fsdp.unit = @a} : tensor<16x16xf32>
    fsdp.exit @a
    fsdp.enter @b
    %b = nn.launch @relu(%x) {fsdp.cost_us = 100.0 : f64, fsdp.unit = @b} : (tensor<16x16xf32>) -> tensor<16x16xf32>
    %held_b = fsdp.offload %b {fsdp.unit = @b} : tensor<16x16xf32>
    fsdp.exit @b
    fsdp.enter @c
    %c = nn.launch @relu(%x) {fsdp.cost_us = 100.0 : f64, fsdp.unit = @c} : (tensor<16x16xf32>) -> tensor<16x16xf32>
    %d = nn.launch @relu(%c) {fsdp.cost_us = 100.0 : f64, fsdp.unit = @c} : (tensor<16x16xf32>) -> tensor<16x16xf32>
    fsdp.exit @c
    fsdp.enter @c backward
    %e = nn.launch @add(%c, %d) {fsdp.backward, fsdp.cost_us = 100.0 : f64, fsdp.unit = @c} : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    fsdp.exit @c backward
    fsdp.enter @b backward
    %b2 = fsdp.fetch %held_b {fsdp.backward, fsdp.unit = @b} : tensor<16x16xf32>
    %f = nn.launch @add(%e, %b2) {fsdp.backward, fsdp.cost_us = 100.0 : f64, fsdp.unit = @b} : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    fsdp.exit @b backward
    fsdp.enter @a backward
    %a2 = fsdp.fetch %held_a {fsdp.backward, fsdp.unit = @a} : tensor<16x16xf32>
    %g = nn.launch @add(%f, %a2) {fsdp.backward, fsdp.cost_us = 100.0 : f64, fsdp.unit = @a} : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}
