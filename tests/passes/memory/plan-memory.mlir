// Where plan-memory puts values, and why.
// RUN: fsdpc-opt %s --plan-memory --verify-memory --split-input-file | FileCheck %s

// Values of 64 bytes. An op's operand and result do not overlap. The third
// value takes the place of the first, which has no more readers.
// CHECK-LABEL: module
// CHECK-SAME: bytes = 128
// CHECK-SAME: lower_bound = 128
// CHECK: fsdp.offsets = array<i64: 0>
// CHECK: fsdp.offsets = array<i64: 64>
// CHECK: fsdp.offsets = array<i64: 0>
module {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %b = nn.matmul %a, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %c = nn.matmul %b, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// A view has no memory of its own, and its readers keep its source alive: the
// first value's place is not reused before the last op.
// CHECK-LABEL: module
// CHECK: %[[A:.*]] = nn.matmul {{.*}} {fsdp.offsets = array<i64: 0>}
// CHECK: nn.reshape %[[A]] :
// CHECK: fsdp.offsets = array<i64: 64>
// CHECK: fsdp.offsets = array<i64: 128>
// CHECK: fsdp.offsets = array<i64: 64>
module {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}, %y: tensor<2x4xf32> {fsdp.input = "y"}, %z: tensor<4x8xf32> {fsdp.input = "z"}) {
    %a = nn.matmul %y, %z : tensor<2x4xf32>, tensor<4x8xf32> -> tensor<2x8xf32>
    %v = nn.reshape %a : tensor<2x8xf32> -> tensor<4x4xf32>
    %b = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %c = nn.matmul %b, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %d = nn.matmul %c, %v : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// A tied result takes its operand's place if the operand's live range ends
// there (%b), but not if it is read later (%c).
// CHECK-LABEL: module
// CHECK: nn.matmul {{.*}} {fsdp.offsets = array<i64: 0>}
// CHECK: nn.launch {{.*}} {fsdp.offsets = array<i64: 0>,
// CHECK: nn.launch {{.*}} {fsdp.offsets = array<i64: 64>,
module {
  func.func private @exp(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %b = nn.launch @exp(%a) {tied = array<i64: 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %c = nn.launch @exp(%b) {tied = array<i64: 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %d = nn.matmul %b, %c : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// The members of a pack lie in it at their layout's offsets (element 16 is byte
// 64), from the definition of the first one. The pack lives to the wait of its
// reduction: %a lies elsewhere, and %b takes over the place from stream reduce.
// Its 80 bytes occupy 128, up to the next aligned place.
// CHECK-LABEL: module
// CHECK-SAME: bytes = 192
// CHECK-SAME: gradients = 80
// CHECK-SAME: lower_bound = 192
// CHECK-SAME: reused = ["[0, 64) reduce to compute: matmul"]
// CHECK: nn.matmul {{.*}} {fsdp.offsets = array<i64: 0>}
// CHECK: nn.launch {{.*}} {fsdp.offsets = array<i64: 64>}
// CHECK: fsdp.pack {{.*}} {fsdp.offsets = array<i64: 0>}
// CHECK: nn.matmul {{.*}} {fsdp.offsets = array<i64: 128>}
// CHECK: fsdp.reduce_scatter_wait
// CHECK: nn.matmul {{.*}} {fsdp.offsets = array<i64: 0>}
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 20 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@w[16, 4] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @ones() -> tensor<4xf32> attributes {nn.kernel} {
    %y = nn.constant dense<1.0> : tensor<4xf32>
    return %y : tensor<4xf32>
  }
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %dv = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %dw = nn.launch @ones() : () -> tensor<4xf32>
    %g = fsdp.pack @a.flat(%dv, %dw) : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<20xf32>
    %t = fsdp.reduce_scatter_start [@a.flat], %g : tensor<20xf32>
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.reduce_scatter_wait %t
    %b = nn.matmul %a, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// A product overwrites its accumulator, but not a row that it adds.
// CHECK-LABEL: module
// CHECK: nn.matmul {{.*}} {fsdp.offsets = array<i64: 0>}
// CHECK: nn.matmul {{.*}} accumulate {{.*}} {fsdp.offsets = array<i64: 0>}
// CHECK: nn.matmul {{.*}} accumulate {{.*}} {fsdp.offsets = array<i64: 64>}
module {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}, %row: tensor<4xf32> {fsdp.input = "row"}) {
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %b = nn.matmul %x, %x accumulate %a : tensor<4x4xf32>, tensor<4x4xf32>, accumulate tensor<4x4xf32> -> tensor<4x4xf32>
    %c = nn.matmul %b, %x accumulate %row : tensor<4x4xf32>, tensor<4x4xf32>, accumulate tensor<4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// A gathered buffer has room for the padding of --max-ranks shards, here 2 x
// 128 bytes, and lives from its start to its free. The second gather begins
// where compute wrote %a, so stream gather takes over that place.
// CHECK-LABEL: module
// CHECK-SAME: gathered = 64
// CHECK-SAME: reused = ["[64, 384) compute to gather: all_gather_start @a.flat"]
// CHECK: fsdp.all_gather_start {{.*}} {fsdp.offsets = array<i64: 0>}
// CHECK: nn.matmul {{.*}} {fsdp.offsets = array<i64: 320>}
// CHECK: fsdp.free
// CHECK: nn.matmul {{.*}} {fsdp.offsets = array<i64: 0>}
// CHECK: fsdp.all_gather_start {{.*}} {fsdp.offsets = array<i64: 64>}
module attributes {fsdp.options = {"max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %t = fsdp.all_gather_start [@a.flat]
    %f = fsdp.all_gather_wait %t : tensor<16xf32>
    %v = fsdp.view %f[@v at 0] : tensor<16xf32> -> tensor<4x4xf32>
    %a = nn.matmul %x, %v : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.free %f : tensor<16xf32>
    %b = nn.matmul %a, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %t1 = fsdp.all_gather_start [@a.flat]
    %f1 = fsdp.all_gather_wait %t1 : tensor<16xf32>
    %v1 = fsdp.view %f1[@v at 0] : tensor<16xf32> -> tensor<4x4xf32>
    %c = nn.matmul %b, %v1 : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.free %f1 : tensor<16xf32>
    return
  }
}

// -----

// @evaluate runs between steps, so it begins at the start of the arena again
// and does not enlarge it.
// CHECK-LABEL: module
// CHECK-SAME: bytes = 128
// CHECK-LABEL: func.func @evaluate
// CHECK: fsdp.offsets = array<i64: 0>
// CHECK: fsdp.offsets = array<i64: 64>
module {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %b = nn.matmul %a, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
  func.func @evaluate(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %b = nn.matmul %a, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}

// -----

// A gradient to which nothing is added has memory of its own, so it takes none
// of the arena, and the offsets of its members count from its beginning. %a has
// the arena for itself.
// CHECK-LABEL: module
// CHECK-SAME: bytes = 64
// CHECK-SAME: gradients = 0
// CHECK: nn.matmul {{.*}} {fsdp.offsets = array<i64: 0>}
// CHECK: nn.launch {{.*}} {fsdp.offsets = array<i64: 64>}
// CHECK: fsdp.pack {{.*}} {fsdp.offsets = array<i64: 0>}
// CHECK: nn.matmul {{.*}} {fsdp.offsets = array<i64: 0>}
module {
  fsdp.unit @a
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 20 : f32 states 0 {
    fsdp.unsummed, members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@w[16, 4] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func private @ones() -> tensor<4xf32> attributes {nn.kernel} {
    %y = nn.constant dense<1.0> : tensor<4xf32>
    return %y : tensor<4xf32>
  }
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %dv = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %dw = nn.launch @ones() : () -> tensor<4xf32>
    %g = fsdp.pack @a.flat(%dv, %dw) : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<20xf32>
    %t = fsdp.reduce_scatter_start [@a.flat], %g : tensor<20xf32>
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.reduce_scatter_wait %t
    return
  }
}
