// A block of rows that are added up is a block of threads on a GPU. There are
// about 512 of them, so that its multiprocessors have work.
// RUN: fsdpc-opt %s --outline-kernels --split-input-file | FileCheck %s

// CHECK-LABEL: func.func private @{{.*}}(%{{.*}}: tensor<8192x1600xf32>)
// CHECK: nn.reshape {{.*}} -> tensor<512x16x1600xf32>
module attributes {fsdp.options = {target = "cuda"}} {
  func.func @microbatch(%x: tensor<8192x1600xf32> {fsdp.input = "x"}) {
    %0 = nn.reduce sum %x [0] : tensor<8192x1600xf32> -> tensor<1x1600xf32>
    return
  }
}

// -----

// Enough rows keep the host's blocks of 64, and so does the emulation.
// CHECK-LABEL: func.func private @{{.*}}(%{{.*}}: tensor<32768x1600xf32>)
// CHECK: nn.reshape {{.*}} -> tensor<512x64x1600xf32>
module attributes {fsdp.options = {target = "cuda"}} {
  func.func @microbatch(%x: tensor<32768x1600xf32> {fsdp.input = "x"}) {
    %0 = nn.reduce sum %x [0] : tensor<32768x1600xf32> -> tensor<1x1600xf32>
    return
  }
}

// -----

// CHECK-LABEL: func.func private @{{.*}}(%{{.*}}: tensor<8192x1600xf32>)
// CHECK: nn.reshape {{.*}} -> tensor<128x64x1600xf32>
module attributes {fsdp.options = {target = "cuda-emulation"}} {
  func.func @microbatch(%x: tensor<8192x1600xf32> {fsdp.input = "x"}) {
    %0 = nn.reduce sum %x [0] : tensor<8192x1600xf32> -> tensor<1x1600xf32>
    return
  }
}

// -----

// 961 has no divisor from 16 down that suits, but 31 above.
// CHECK-LABEL: func.func private @{{.*}}(%{{.*}}: tensor<961x1600xf32>)
// CHECK: nn.reshape {{.*}} -> tensor<31x31x1600xf32>
module attributes {fsdp.options = {target = "cuda"}} {
  func.func @microbatch(%x: tensor<961x1600xf32> {fsdp.input = "x"}) {
    %0 = nn.reduce sum %x [0] : tensor<961x1600xf32> -> tensor<1x1600xf32>
    return
  }
}

// -----

// An activation that the backward computes again reads what its gradient reads:
// one kernel on a GPU.
// CHECK-LABEL: func.func @microbatch
// CHECK: nn.matmul
// CHECK: nn.launch @[[K:.*]](%arg0, %{{.*}}) {{.*}} -> (tensor<64x256xf32>, tensor<64x256xf32>)
// CHECK-NOT: nn.launch
// CHECK: func.func private @[[K]]
// CHECK-DAG: nn.gelu tanh
// CHECK-DAG: nn.gelu_grad tanh
module attributes {fsdp.options = {target = "cuda"}} {
  func.func @microbatch(%x: tensor<64x256xf32> {fsdp.input = "x"}, %dy: tensor<64x32xf32> {fsdp.input = "dy"}, %w: tensor<256x32xf32> {fsdp.input = "w"}) {
    %g = nn.gelu tanh %x {fsdp.backward} : tensor<64x256xf32>
    %dw = nn.matmul %g, %dy {fsdp.backward, transpose_a} : tensor<64x256xf32>, tensor<64x32xf32> -> tensor<256x32xf32>
    %dg = nn.matmul %dy, %w {fsdp.backward, transpose_b} : tensor<64x32xf32>, tensor<256x32xf32> -> tensor<64x256xf32>
    %dx = nn.gelu_grad tanh %x, %dg {fsdp.backward} : tensor<64x256xf32>
    %used = nn.matmul %dx, %dw {fsdp.backward} : tensor<64x256xf32>, tensor<256x32xf32> -> tensor<64x32xf32>
    return
  }
}

// -----

// The sums of a norm's weights join its gradient, since the statistics that
// both read are computed in that kernel. The sums over blocks, of one shape,
// are one kernel, and round to bf16 there.
// CHECK-LABEL: func.func @microbatch
// CHECK: nn.launch @[[NORM:.*]](%arg0, %arg1)
// CHECK: nn.launch @[[SUMS:[a-z_0-9]+]](%{{.*}}, %{{.*}}) {{.*}} : (tensor<512x1x256xf32>, tensor<512x1x256xf32>) -> (tensor<1x1x256xbf16>, tensor<1x1x256xbf16>)
// CHECK-NOT: nn.launch
// CHECK: func.func private @[[NORM]]
// CHECK: nn.layer_norm
// CHECK: nn.layer_norm_grad
// CHECK-COUNT-2: nn.reduce sum
// CHECK: func.func private @[[SUMS]]
// CHECK-COUNT-2: nn.reduce sum
module attributes {fsdp.options = {target = "cuda"}} {
  func.func @microbatch(%x: tensor<8x1024x256xbf16> {fsdp.input = "x"}, %dy: tensor<8x1024x256xbf16> {fsdp.input = "dy"}) {
    %y, %mean, %rstd = nn.layer_norm %x {epsilon = 1.0e-05 : f64, fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<8x1024x256xbf16>, tensor<8x1024xf32>, tensor<8x1024xf32>
    %dx = nn.layer_norm_grad %dy, %x, %mean, %rstd {fsdp.backward} : tensor<8x1024x256xbf16>, tensor<8x1024xf32> -> tensor<8x1024x256xbf16>
    %dw = nn.norm_weight_grad %dy, %x mean %mean rstd %rstd {fsdp.backward} : tensor<8x1024x256xbf16>, tensor<8x1024xf32>, mean tensor<8x1024xf32> -> tensor<256xbf16>
    %db = nn.reduce sum %dy [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %used = nn.matmul %dx, %y {fsdp.backward, transpose_a} : tensor<8x1024x256xbf16>, tensor<8x1024x256xbf16> -> tensor<8x256x256xbf16>
    %row = nn.reshape %dw {fsdp.backward} : tensor<256xbf16> -> tensor<1x1x256xbf16>
    %more = nn.matmul %row, %used {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %most = nn.matmul %db, %used {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    return
  }
}

// -----

// A kernel has at most 16 of such sums, which exchange through shared memory:
// of 17 the last one is a kernel of its own.
// CHECK-LABEL: func.func @microbatch
// CHECK-COUNT-16: nn.launch {{.*}} : (tensor<8x1024x256xbf16>) -> tensor<512x1x256xf32>
// CHECK: nn.launch @[[MOST:[a-z_0-9]+]]({{(%[^,)]*, ){15}%[^,)]*}})
// CHECK: nn.launch {{.*}} : (tensor<8x1024x256xbf16>) -> tensor<512x1x256xf32>
// CHECK: nn.launch @[[REST:[a-z_0-9]+]](%{{[^,)]*}})
// CHECK-NOT: nn.launch
// CHECK: func.func private @[[MOST]]
// CHECK-COUNT-16: nn.reduce sum
// CHECK-NOT: nn.reduce
// CHECK: return
// CHECK: func.func private @[[REST]]
// CHECK: nn.reduce sum
// CHECK-NOT: nn.reduce
module attributes {fsdp.options = {target = "cuda"}} {
  func.func @microbatch(%w: tensor<8x256x256xbf16> {fsdp.input = "w"},
      %x0: tensor<8x1024x256xbf16> {fsdp.input = "x0"},
      %x1: tensor<8x1024x256xbf16> {fsdp.input = "x1"},
      %x2: tensor<8x1024x256xbf16> {fsdp.input = "x2"},
      %x3: tensor<8x1024x256xbf16> {fsdp.input = "x3"},
      %x4: tensor<8x1024x256xbf16> {fsdp.input = "x4"},
      %x5: tensor<8x1024x256xbf16> {fsdp.input = "x5"},
      %x6: tensor<8x1024x256xbf16> {fsdp.input = "x6"},
      %x7: tensor<8x1024x256xbf16> {fsdp.input = "x7"},
      %x8: tensor<8x1024x256xbf16> {fsdp.input = "x8"},
      %x9: tensor<8x1024x256xbf16> {fsdp.input = "x9"},
      %x10: tensor<8x1024x256xbf16> {fsdp.input = "x10"},
      %x11: tensor<8x1024x256xbf16> {fsdp.input = "x11"},
      %x12: tensor<8x1024x256xbf16> {fsdp.input = "x12"},
      %x13: tensor<8x1024x256xbf16> {fsdp.input = "x13"},
      %x14: tensor<8x1024x256xbf16> {fsdp.input = "x14"},
      %x15: tensor<8x1024x256xbf16> {fsdp.input = "x15"},
      %x16: tensor<8x1024x256xbf16> {fsdp.input = "x16"}) {
    %s0 = nn.reduce sum %x0 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s1 = nn.reduce sum %x1 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s2 = nn.reduce sum %x2 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s3 = nn.reduce sum %x3 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s4 = nn.reduce sum %x4 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s5 = nn.reduce sum %x5 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s6 = nn.reduce sum %x6 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s7 = nn.reduce sum %x7 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s8 = nn.reduce sum %x8 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s9 = nn.reduce sum %x9 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s10 = nn.reduce sum %x10 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s11 = nn.reduce sum %x11 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s12 = nn.reduce sum %x12 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s13 = nn.reduce sum %x13 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s14 = nn.reduce sum %x14 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s15 = nn.reduce sum %x15 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %s16 = nn.reduce sum %x16 [0, 1] {fsdp.backward} : tensor<8x1024x256xbf16> -> tensor<1x1x256xbf16>
    %p0 = nn.matmul %s0, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p1 = nn.matmul %s1, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p2 = nn.matmul %s2, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p3 = nn.matmul %s3, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p4 = nn.matmul %s4, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p5 = nn.matmul %s5, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p6 = nn.matmul %s6, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p7 = nn.matmul %s7, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p8 = nn.matmul %s8, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p9 = nn.matmul %s9, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p10 = nn.matmul %s10, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p11 = nn.matmul %s11, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p12 = nn.matmul %s12, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p13 = nn.matmul %s13, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p14 = nn.matmul %s14, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p15 = nn.matmul %s15, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    %p16 = nn.matmul %s16, %w {fsdp.backward} : tensor<1x1x256xbf16>, tensor<8x256x256xbf16> -> tensor<8x1x256xbf16>
    return
  }
}
