// Values of units that ran long before lie in the file until the backward reads
// them.
// RUN: fsdpc-opt %s --offload-activations --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @microbatch
module attributes {fsdp.options = {"offload" = "activations"}} {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.unit @c
  func.func @microbatch(%x: tensor<16x16xf32> {fsdp.input = "x"}) {
    fsdp.enter @a
    // CHECK: %[[A:.*]] = nn.matmul
    // CHECK: nn.relu
    %a = nn.matmul %x, %x {fsdp.unit = @a} : tensor<16x16xf32>, tensor<16x16xf32> -> tensor<16x16xf32>
    // A view is made anew for the backward; the forward keeps its own.
    %v = nn.reshape %a {fsdp.unit = @a} : tensor<16x16xf32> -> tensor<256xf32>
    %r = nn.relu %v {fsdp.unit = @a} : tensor<256xf32>
    // Too small to be moved.
    %s = nn.reduce sum %a [1] {fsdp.unit = @a} : tensor<16x16xf32> -> tensor<16x1xf32>
    fsdp.exit @a
    fsdp.enter @b
    // %a and %b are read last in unit b, %a in the backward of a and %b in that
    // of b, so they move apart.
    // CHECK: fsdp.enter @b
    // CHECK: %[[B:.*]] = nn.matmul
    // CHECK: %[[C:.*]] = nn.add %[[A]], %[[B]]
    // CHECK-DAG: %[[HELD_A:.*]] = fsdp.offload %[[A]] {fsdp.unit = @b} : tensor<16x16xf32>
    // CHECK-DAG: %[[HELD_B:.*]] = fsdp.offload %[[B]] {fsdp.unit = @b} : tensor<16x16xf32>
    %b = nn.matmul %a, %a {fsdp.unit = @b} : tensor<16x16xf32>, tensor<16x16xf32> -> tensor<16x16xf32>
    %c = nn.add %a, %b {fsdp.unit = @b} : tensor<16x16xf32>
    fsdp.exit @b
    // The last unit's backward follows at once, so %c and %d stay.
    // CHECK: fsdp.enter @c
    // CHECK-NOT: fsdp.offload
    // CHECK: fsdp.enter @c backward
    // CHECK-NOT: fsdp.fetch
    // CHECK: nn.mul
    fsdp.enter @c
    %d = nn.matmul %c, %c {fsdp.unit = @c} : tensor<16x16xf32>, tensor<16x16xf32> -> tensor<16x16xf32>
    fsdp.exit @c
    fsdp.enter @c backward
    %e = nn.mul %d, %c {fsdp.unit = @c, fsdp.backward} : tensor<16x16xf32>
    fsdp.exit @c backward
    // CHECK: fsdp.enter @b backward
    // CHECK-NEXT: %[[B2:.*]] = fsdp.fetch %[[HELD_B]] {fsdp.backward, fsdp.unit = @b} : tensor<16x16xf32>
    // CHECK-NEXT: nn.mul %{{.*}}, %[[B2]]
    fsdp.enter @b backward
    %f = nn.mul %e, %b {fsdp.unit = @b, fsdp.backward} : tensor<16x16xf32>
    fsdp.exit @b backward
    // CHECK: fsdp.enter @a backward
    // CHECK-NEXT: %[[A2:.*]] = fsdp.fetch %[[HELD_A]] {fsdp.backward, fsdp.unit = @a} : tensor<16x16xf32>
    // CHECK-NEXT: %[[V2:.*]] = nn.reshape %[[A2]] {fsdp.backward, fsdp.unit = @a}
    // CHECK-NEXT: nn.relu %[[V2]]
    // CHECK: nn.mul %{{.*}}, %[[A2]]
    fsdp.enter @a backward
    %g = nn.relu %v {fsdp.unit = @a, fsdp.backward} : tensor<256xf32>
    %h = nn.mul %f, %a {fsdp.unit = @a, fsdp.backward} : tensor<16x16xf32>
    %i = nn.neg %s {fsdp.unit = @a, fsdp.backward} : tensor<16x1xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}

// -----

// Values of one segment that are read again in one segment move together, but
// not what a sum in place overwrites.
// CHECK-LABEL: func.func @microbatch
// CHECK: %[[X:.*]] = nn.relu
// CHECK-NEXT: %[[Y:.*]] = nn.neg
// CHECK-NEXT: %{{.*}} = nn.copy
// CHECK-NEXT: fsdp.offload %[[X]], %[[Y]] {fsdp.unit = @a} : tensor<16x16xf32>, tensor<16x16xf32>
module attributes {fsdp.options = {"offload" = "activations"}} {
  fsdp.unit @a
  fsdp.unit @b
  func.func @microbatch(%x: tensor<16x16xf32> {fsdp.input = "x"}) {
    fsdp.enter @a
    %a = nn.relu %x {fsdp.unit = @a} : tensor<16x16xf32>
    %b = nn.neg %a {fsdp.unit = @a} : tensor<16x16xf32>
    %c = nn.copy %a {fsdp.unit = @a} : tensor<16x16xf32>
    fsdp.exit @a
    fsdp.enter @b
    %d = nn.neg %x {fsdp.unit = @b} : tensor<16x16xf32>
    fsdp.exit @b
    fsdp.enter @a backward
    %e = nn.matmul %a, %b accumulate %c {fsdp.unit = @a, fsdp.backward} : tensor<16x16xf32>, tensor<16x16xf32>, accumulate tensor<16x16xf32> -> tensor<16x16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}

// -----

// expected-error @below {{--offload=activations has no effect: the backward reads no activation of 1024 bytes or more after another unit has run}}
module attributes {fsdp.options = {"offload" = "activations"}} {
  fsdp.unit @a
  func.func @microbatch(%x: tensor<16x16xf32> {fsdp.input = "x"}) {
    fsdp.enter @a
    %a = nn.relu %x {fsdp.unit = @a} : tensor<16x16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %b = nn.neg %a {fsdp.unit = @a, fsdp.backward} : tensor<16x16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}
