// Activations leave after their last reader in the forward and are back before
// their first one in the backward; both moves overlap compute, and the arena
// has the memory between them. An op takes 100 us, a move 0.1 us and one of
// eight cores.
// RUN: sed 's/OPTIONS//' %s | fsdpc-opt --schedule-prefetch --verify-schedule | FileCheck %s
// RUN: sed 's/OPTIONS/, prefetch = "none"/' %s | fsdpc-opt --schedule-prefetch --verify-schedule --plan-memory --verify-memory | FileCheck %s --check-prefix=MEMORY
// RUN: sed 's/OPTIONS//' %s | fsdpc-opt --schedule-prefetch --verify-schedule --plan-memory --verify-memory --convert-to-rt --elide-events --verify-rt | FileCheck %s --check-prefix=RT

// Both waits stall nothing.
// CHECK: %[[A:.*]] = nn.launch @relu
// CHECK: %[[S:.*]] = fsdp.offload_start %[[A]] {fsdp.bytes = 1024 : i64, fsdp.cost_us = {{.*}}, fsdp.unit = @a} : tensor<16x16xf32>
// CHECK: fsdp.enter @b
// CHECK: nn.launch
// CHECK: %[[H:.*]] = fsdp.offload_wait %[[S]] {fsdp.exposed_us = 0.0
// CHECK: fsdp.enter @b backward
// CHECK: %[[T:.*]] = fsdp.fetch_start %[[H]] {fsdp.backward, fsdp.bytes = 1024 : i64
// CHECK: fsdp.fetch_wait %[[T]] {fsdp.backward, fsdp.exposed_us = 0.0{{.*}}, fsdp.unit = @a} : tensor<16x16xf32>
// CHECK-NEXT: nn.launch @add
// CHECK-NEXT: fsdp.free %{{.*}} {fsdp.backward, fsdp.unit = @a} : tensor<16x16xf32>

// With nothing overlapped three values are alive at once, where %a besides
// would make them four.
// MEMORY: fsdp.arena = {activations = 3072 : i64, bytes = 3072 : i64
// MEMORY-SAME: offloaded = 1024 : i64
// MEMORY: fsdp.offload_start %{{.*}} {{.*}}places = array<i64: 0>

// The streams of reductions and of gathers do the work.
// RT: rt.event_wait reduce 0
// RT: rt.offload %{{.*}} bytes 1024 to 0 {fsdp.bytes = 1024 : i64, fsdp.unit = @a}
// RT-NEXT: rt.event_record reduce 1
// RT: rt.event_wait compute 1
// RT: rt.event_wait gather 2
// RT: rt.fetch %{{.*}} bytes 1024 from 0 {fsdp.backward, fsdp.bytes = 1024 : i64, fsdp.unit = @a}
// RT-NEXT: rt.event_record gather 3
// RT: rt.event_wait compute 3
module attributes {fsdp.options = {"offload" = "activations", "plan-threads" = 8 : i64OPTIONS}} {
  fsdp.unit @a
  fsdp.unit @b
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
    %held = fsdp.offload %a {fsdp.unit = @a} : tensor<16x16xf32>
    fsdp.exit @a
    fsdp.enter @b
    %b = nn.launch @relu(%x) {fsdp.cost_us = 100.0 : f64, fsdp.unit = @b} : (tensor<16x16xf32>) -> tensor<16x16xf32>
    %c = nn.launch @relu(%b) {fsdp.cost_us = 100.0 : f64, fsdp.unit = @b} : (tensor<16x16xf32>) -> tensor<16x16xf32>
    fsdp.exit @b
    fsdp.enter @b backward
    %d = nn.launch @add(%b, %c) {fsdp.backward, fsdp.cost_us = 100.0 : f64, fsdp.unit = @b} : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    fsdp.exit @b backward
    fsdp.enter @a backward
    %again = fsdp.fetch %held {fsdp.backward, fsdp.unit = @a} : tensor<16x16xf32>
    %e = nn.launch @add(%d, %again) {fsdp.backward, fsdp.cost_us = 100.0 : f64, fsdp.unit = @a} : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}
