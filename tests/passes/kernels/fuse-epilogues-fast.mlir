// With --math=fast, which is the default for bf16, products on a GPU also
// compute GELU, its gradient, gradients of biases and sums with other tensors.
// RUN: sed 's/@MATH@/fast/' %s | fsdpc-opt --fuse-epilogues | FileCheck %s
// RUN: sed 's/@MATH@/auto/' %s | fsdpc-opt --fuse-epilogues | FileCheck %s
// RUN: sed 's/@MATH@/exact/' %s | fsdpc-opt --fuse-epilogues | FileCheck %s --check-prefix=EXACT

// EXACT-NOT: nn.fused_matmul
module attributes {fsdp.options = {"target" = "cuda", "math" = "@MATH@", "param-dtype" = "bf16"}} {
  // The gradient reads GELU's input, which the product writes too.
  // CHECK-LABEL: func.func @gelu
  // CHECK: %[[Y:.*]], %[[H:.*]] = nn.fused_matmul gelu %arg0, %arg1 bias %arg2 {fsdp.unit = @h.0} : (tensor<2x4x8xbf16>, tensor<8x16xbf16>, tensor<16xbf16>) -> (tensor<2x4x16xbf16>, tensor<2x4x16xbf16>)
  // CHECK-NEXT: %[[DH:.*]] = nn.fused_matmul gelu_grad %[[Y]], %arg3 input %[[H]] {fsdp.backward, fsdp.unit = @h.0}
  // CHECK-NEXT: return %[[DH]]
  func.func @gelu(%x: tensor<2x4x8xbf16>, %w: tensor<8x16xbf16>, %b: tensor<16xbf16>, %v: tensor<16x16xbf16>) -> tensor<2x4x16xbf16> {
    %p = nn.matmul %x, %w {fsdp.unit = @h.0} : tensor<2x4x8xbf16>, tensor<8x16xbf16> -> tensor<2x4x16xbf16>
    %rows = nn.broadcast %b : tensor<16xbf16> -> tensor<2x4x16xbf16>
    %h = nn.add %p, %rows {fsdp.unit = @h.0} : tensor<2x4x16xbf16>
    %y = nn.gelu tanh %h {fsdp.unit = @h.0} : tensor<2x4x16xbf16>
    %dy = nn.matmul %y, %v {fsdp.backward, fsdp.unit = @h.0} : tensor<2x4x16xbf16>, tensor<16x16xbf16> -> tensor<2x4x16xbf16>
    %dh = nn.gelu_grad tanh %h, %dy {fsdp.backward, fsdp.unit = @h.0} : tensor<2x4x16xbf16>
    return %dh : tensor<2x4x16xbf16>
  }

  // In an evaluation nothing else reads GELU's input.
  // CHECK-LABEL: func.func @alone
  // CHECK: nn.fused_matmul gelu %arg0, %arg1 : (tensor<4x8xbf16>, tensor<8x16xbf16>) -> tensor<4x16xbf16>
  func.func @alone(%x: tensor<4x8xbf16>, %w: tensor<8x16xbf16>) -> tensor<4x16xbf16> {
    %h = nn.matmul %x, %w : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xbf16>
    %y = nn.gelu tanh %h : tensor<4x16xbf16>
    return %y : tensor<4x16xbf16>
  }

  // The same in f16.
  // CHECK-LABEL: func.func @half
  // CHECK: nn.fused_matmul gelu %arg0, %arg1 : (tensor<4x8xf16>, tensor<8x16xf16>) -> tensor<4x16xf16>
  func.func @half(%x: tensor<4x8xf16>, %w: tensor<8x16xf16>) -> tensor<4x16xf16> {
    %h = nn.matmul %x, %w : tensor<4x8xf16>, tensor<8x16xf16> -> tensor<4x16xf16>
    %y = nn.gelu tanh %h : tensor<4x16xf16>
    return %y : tensor<4x16xf16>
  }

  // CHECK-LABEL: func.func @half_grad
  // CHECK: %[[D:.*]] = nn.fused_matmul gelu_grad %arg1, %arg2 input %arg3 : (tensor<8x8xf16>, tensor<8x16xf16>, tensor<8x16xf16>) -> tensor<8x16xf16>
  // CHECK-NEXT: %[[DW:.*]], %[[DB:.*]] = nn.fused_matmul sum_rhs %arg0, %[[D]] {transpose_a} : (tensor<8x6xf16>, tensor<8x16xf16>) -> (tensor<6x16xf16>, tensor<16xf16>)
  // CHECK-NEXT: %[[S:.*]] = nn.reshape %[[DB]] : tensor<16xf16> -> tensor<1x16xf16>
  // CHECK-NEXT: return %[[DW]], %[[S]]
  func.func @half_grad(%x: tensor<8x6xf16>, %y: tensor<8x8xf16>, %w: tensor<8x16xf16>, %h: tensor<8x16xf16>) -> (tensor<6x16xf16>, tensor<1x16xf16>) {
    %dy = nn.matmul %y, %w : tensor<8x8xf16>, tensor<8x16xf16> -> tensor<8x16xf16>
    %d = nn.gelu_grad tanh %h, %dy : tensor<8x16xf16>
    %s = nn.reduce sum %d [0] : tensor<8x16xf16> -> tensor<1x16xf16>
    %dw = nn.matmul %x, %d {transpose_a} : tensor<8x6xf16>, tensor<8x16xf16> -> tensor<6x16xf16>
    return %dw, %s : tensor<6x16xf16>, tensor<1x16xf16>
  }

  // The library has neither the erf form nor rows of 12 elements. Nothing of
  // f32 is fused. A GELU that is computed again stays a kernel.
  // CHECK-LABEL: func.func @no_gelu
  // CHECK-NOT: nn.fused_matmul
  func.func @no_gelu(%x: tensor<4x8xbf16>, %w: tensor<8x16xbf16>, %v: tensor<8x12xbf16>, %f: tensor<8x16xf32>) -> (tensor<4x16xbf16>, tensor<4x12xbf16>, tensor<8x16xf32>, tensor<4x16xbf16>) {
    %h = nn.matmul %x, %w : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xbf16>
    %y = nn.gelu erf %h : tensor<4x16xbf16>
    %g = nn.matmul %x, %v : tensor<4x8xbf16>, tensor<8x12xbf16> -> tensor<4x12xbf16>
    %z = nn.gelu tanh %g : tensor<4x12xbf16>
    %i = nn.matmul %f, %f {transpose_b} : tensor<8x16xf32>, tensor<8x16xf32> -> tensor<8x8xf32>
    %q = nn.gelu tanh %i : tensor<8x8xf32>
    %k = nn.matmul %q, %f : tensor<8x8xf32>, tensor<8x16xf32> -> tensor<8x16xf32>
    %again = nn.gelu tanh %h {fsdp.backward} : tensor<4x16xbf16>
    return %y, %z, %k, %again : tensor<4x16xbf16>, tensor<4x12xbf16>, tensor<8x16xf32>, tensor<4x16xbf16>
  }

  // The rows of a transposed left operand do not follow each other over batches,
  // as in the token mixing of an MLP-Mixer: the library has no such epilogue.
  // CHECK-LABEL: func.func @mixed
  // CHECK: nn.matmul
  // CHECK: nn.add
  // CHECK: nn.gelu
  // CHECK-NOT: nn.fused_matmul
  func.func @mixed(%x: tensor<2x8x4xbf16>, %w: tensor<8x16xbf16>, %r: tensor<2x4x16xbf16>) -> tensor<2x4x16xbf16> {
    %y = nn.matmul %x, %w {transpose_a} : tensor<2x8x4xbf16>, tensor<8x16xbf16> -> tensor<2x4x16xbf16>
    %sum = nn.add %y, %r : tensor<2x4x16xbf16>
    %z = nn.matmul %x, %w {transpose_a} : tensor<2x8x4xbf16>, tensor<8x16xbf16> -> tensor<2x4x16xbf16>
    %g = nn.gelu tanh %z : tensor<2x4x16xbf16>
    %all = nn.mul %sum, %g : tensor<2x4x16xbf16>
    return %all : tensor<2x4x16xbf16>
  }

  // The residual stays as it is, since others read it.
  // CHECK-LABEL: func.func @residual
  // CHECK: %[[BIAS:.*]] = nn.copy %arg2
  // CHECK-NEXT: %[[SUM:.*]] = nn.fused_matmul none %arg0, %arg1 bias %[[BIAS]] plus %arg3 : (tensor<2x4x8xbf16>, tensor<8x16xbf16>, tensor<16xbf16>, tensor<2x4x16xbf16>) -> tensor<2x4x16xbf16>
  // CHECK-NEXT: nn.mul %[[SUM]], %arg3
  func.func @residual(%x: tensor<2x4x8xbf16>, %w: tensor<8x16xbf16>, %b: tensor<16xbf16>, %r: tensor<2x4x16xbf16>) -> tensor<2x4x16xbf16> {
    %p = nn.matmul %x, %w : tensor<2x4x8xbf16>, tensor<8x16xbf16> -> tensor<2x4x16xbf16>
    %bias = nn.copy %b : tensor<16xbf16>
    %rows = nn.broadcast %bias : tensor<16xbf16> -> tensor<2x4x16xbf16>
    %h = nn.add %p, %rows : tensor<2x4x16xbf16>
    %sum = nn.add %r, %h : tensor<2x4x16xbf16>
    %y = nn.mul %sum, %r : tensor<2x4x16xbf16>
    return %y : tensor<2x4x16xbf16>
  }

  // In a sum of two products, the right one adds the left. A column that a kernel would
  // repeat is in no memory, and a product that is read elsewhere stays.
  // CHECK-LABEL: func.func @sums
  // CHECK: %[[P:.*]] = nn.matmul
  // CHECK-NEXT: %[[PQ:.*]] = nn.fused_matmul none %arg0, %arg1 plus %[[P]]
  // CHECK: nn.add
  // CHECK: nn.add
  func.func @sums(%x: tensor<4x8xbf16>, %w: tensor<8x16xbf16>, %c: tensor<4x1xbf16>) -> (tensor<4x16xbf16>, tensor<4x16xbf16>, tensor<4x16xbf16>, tensor<4x16xbf16>) {
    %p = nn.matmul %x, %w : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xbf16>
    %q = nn.matmul %x, %w : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xbf16>
    %pq = nn.add %p, %q : tensor<4x16xbf16>
    %columns = nn.broadcast %c : tensor<4x1xbf16> -> tensor<4x16xbf16>
    %o = nn.matmul %x, %w : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xbf16>
    %oc = nn.add %o, %columns : tensor<4x16xbf16>
    %r = nn.matmul %x, %w : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xbf16>
    %s = nn.add %r, %pq : tensor<4x16xbf16>
    return %pq, %oc, %r, %s : tensor<4x16xbf16>, tensor<4x16xbf16>, tensor<4x16xbf16>, tensor<4x16xbf16>
  }

  // A product that makes the gradient of a weight adds the rows of the operand
  // that the bias was added to. What reads the sum comes behind the product.
  // CHECK-LABEL: func.func @bias
  // CHECK: %[[D:.*]] = nn.matmul
  // CHECK-NEXT: %[[R:.*]] = nn.reshape %[[D]]
  // CHECK-NEXT: %[[DW:.*]], %[[DB:.*]] = nn.fused_matmul sum_rhs %arg0, %[[R]] {fsdp.backward, transpose_a} : (tensor<8x6xbf16>, tensor<8x16xbf16>) -> (tensor<6x16xbf16>, tensor<16xbf16>)
  // CHECK-NEXT: return %[[DW]], %[[DB]]
  func.func @bias(%x: tensor<8x6xbf16>, %y: tensor<2x4x8xbf16>, %w: tensor<8x16xbf16>) -> (tensor<6x16xbf16>, tensor<16xbf16>) {
    %d = nn.matmul %y, %w {fsdp.backward} : tensor<2x4x8xbf16>, tensor<8x16xbf16> -> tensor<2x4x16xbf16>
    %s = nn.reduce sum %d [0, 1] {fsdp.backward} : tensor<2x4x16xbf16> -> tensor<1x1x16xbf16>
    %db = nn.reshape %s {fsdp.backward} : tensor<1x1x16xbf16> -> tensor<16xbf16>
    %r = nn.reshape %d {fsdp.backward} : tensor<2x4x16xbf16> -> tensor<8x16xbf16>
    %dw = nn.matmul %x, %r {fsdp.backward, transpose_a} : tensor<8x6xbf16>, tensor<8x16xbf16> -> tensor<6x16xbf16>
    return %dw, %db : tensor<6x16xbf16>, tensor<16xbf16>
  }

  // The other order of the weight. The shape of the sum is that of its readers.
  // CHECK-LABEL: func.func @transposed
  // CHECK: %[[DW:.*]], %[[DB:.*]] = nn.fused_matmul sum_lhs %[[D:.*]], %arg0 {transpose_a}
  // CHECK-NEXT: %[[S:.*]] = nn.reshape %[[DB]] : tensor<16xbf16> -> tensor<1x16xbf16>
  // CHECK-NEXT: return %[[DW]], %[[S]]
  func.func @transposed(%x: tensor<8x6xbf16>, %y: tensor<8x8xbf16>, %w: tensor<8x16xbf16>) -> (tensor<16x6xbf16>, tensor<1x16xbf16>) {
    %d = nn.matmul %y, %w : tensor<8x8xbf16>, tensor<8x16xbf16> -> tensor<8x16xbf16>
    %s = nn.reduce sum %d [0] : tensor<8x16xbf16> -> tensor<1x16xbf16>
    %dw = nn.matmul %d, %x {transpose_a} : tensor<8x16xbf16>, tensor<8x6xbf16> -> tensor<16x6xbf16>
    return %dw, %s : tensor<16x6xbf16>, tensor<1x16xbf16>
  }

  // Rows that a kernel makes, which adds them as it goes; rows of which only a
  // part is added; and a sum that is read before the product.
  // CHECK-LABEL: func.func @no_bias
  // CHECK-NOT: nn.fused_matmul
  func.func @no_bias(%x: tensor<8x6xbf16>, %y: tensor<8x16xbf16>, %v: tensor<8x8xbf16>) -> (tensor<6x16xbf16>, tensor<1x16xbf16>, tensor<16x1xbf16>, tensor<6x16xbf16>) {
    %d = nn.neg %y : tensor<8x16xbf16>
    %s = nn.reduce sum %d [0] : tensor<8x16xbf16> -> tensor<1x16xbf16>
    %dw = nn.matmul %x, %d {transpose_a} : tensor<8x6xbf16>, tensor<8x16xbf16> -> tensor<6x16xbf16>
    %e = nn.matmul %v, %y : tensor<8x8xbf16>, tensor<8x16xbf16> -> tensor<8x16xbf16>
    %t = nn.transpose %e [1, 0] : tensor<8x16xbf16> -> tensor<16x8xbf16>
    %columns = nn.reduce sum %t [1] : tensor<16x8xbf16> -> tensor<16x1xbf16>
    %early = nn.reduce sum %e [0] : tensor<8x16xbf16> -> tensor<1x16xbf16>
    %many = nn.broadcast %early : tensor<1x16xbf16> -> tensor<8x16xbf16>
    %ew = nn.matmul %x, %e {transpose_a} : tensor<8x6xbf16>, tensor<8x16xbf16> -> tensor<6x16xbf16>
    %used = nn.matmul %x, %many {transpose_a} : tensor<8x6xbf16>, tensor<8x16xbf16> -> tensor<6x16xbf16>
    %fw = nn.mul %ew, %used : tensor<6x16xbf16>
    return %dw, %s, %columns, %fw : tensor<6x16xbf16>, tensor<1x16xbf16>, tensor<16x1xbf16>, tensor<6x16xbf16>
  }
}
