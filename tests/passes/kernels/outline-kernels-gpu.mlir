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

// -----

// A reader of rows looks at the nearest readers alone, and a kernel is full all
// the same: 64 of the 70 ops, then the other 6.
// CHECK-LABEL: func.func @microbatch
// CHECK: nn.launch @[[FULL:[a-z0-9_]+]](
// CHECK: nn.launch @[[REST:[a-z0-9_]+]](
// CHECK-NOT: nn.launch
// CHECK: func.func private @[[FULL]]
// CHECK-COUNT-64: nn.exp
// CHECK-NEXT: return
// CHECK: func.func private @[[REST]]
// CHECK-COUNT-6: nn.exp
// CHECK-NEXT: return
module attributes {fsdp.options = {target = "cuda"}} {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}, %w: tensor<4x4xf32> {fsdp.input = "w"}) {
    %v0 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v1 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v2 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v3 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v4 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v5 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v6 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v7 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v8 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v9 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v10 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v11 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v12 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v13 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v14 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v15 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v16 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v17 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v18 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v19 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v20 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v21 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v22 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v23 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v24 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v25 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v26 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v27 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v28 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v29 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v30 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v31 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v32 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v33 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v34 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v35 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v36 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v37 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v38 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v39 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v40 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v41 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v42 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v43 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v44 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v45 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v46 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v47 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v48 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v49 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v50 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v51 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v52 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v53 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v54 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v55 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v56 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v57 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v58 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v59 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v60 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v61 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v62 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v63 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v64 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v65 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v66 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v67 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v68 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %v69 = nn.exp %x {fsdp.backward} : tensor<4x4xf32>
    %p0 = nn.matmul %v0, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p1 = nn.matmul %v1, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p2 = nn.matmul %v2, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p3 = nn.matmul %v3, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p4 = nn.matmul %v4, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p5 = nn.matmul %v5, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p6 = nn.matmul %v6, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p7 = nn.matmul %v7, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p8 = nn.matmul %v8, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p9 = nn.matmul %v9, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p10 = nn.matmul %v10, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p11 = nn.matmul %v11, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p12 = nn.matmul %v12, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p13 = nn.matmul %v13, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p14 = nn.matmul %v14, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p15 = nn.matmul %v15, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p16 = nn.matmul %v16, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p17 = nn.matmul %v17, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p18 = nn.matmul %v18, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p19 = nn.matmul %v19, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p20 = nn.matmul %v20, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p21 = nn.matmul %v21, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p22 = nn.matmul %v22, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p23 = nn.matmul %v23, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p24 = nn.matmul %v24, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p25 = nn.matmul %v25, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p26 = nn.matmul %v26, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p27 = nn.matmul %v27, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p28 = nn.matmul %v28, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p29 = nn.matmul %v29, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p30 = nn.matmul %v30, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p31 = nn.matmul %v31, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p32 = nn.matmul %v32, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p33 = nn.matmul %v33, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p34 = nn.matmul %v34, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p35 = nn.matmul %v35, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p36 = nn.matmul %v36, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p37 = nn.matmul %v37, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p38 = nn.matmul %v38, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p39 = nn.matmul %v39, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p40 = nn.matmul %v40, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p41 = nn.matmul %v41, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p42 = nn.matmul %v42, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p43 = nn.matmul %v43, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p44 = nn.matmul %v44, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p45 = nn.matmul %v45, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p46 = nn.matmul %v46, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p47 = nn.matmul %v47, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p48 = nn.matmul %v48, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p49 = nn.matmul %v49, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p50 = nn.matmul %v50, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p51 = nn.matmul %v51, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p52 = nn.matmul %v52, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p53 = nn.matmul %v53, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p54 = nn.matmul %v54, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p55 = nn.matmul %v55, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p56 = nn.matmul %v56, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p57 = nn.matmul %v57, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p58 = nn.matmul %v58, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p59 = nn.matmul %v59, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p60 = nn.matmul %v60, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p61 = nn.matmul %v61, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p62 = nn.matmul %v62, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p63 = nn.matmul %v63, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p64 = nn.matmul %v64, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p65 = nn.matmul %v65, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p66 = nn.matmul %v66, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p67 = nn.matmul %v67, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p68 = nn.matmul %v68, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %p69 = nn.matmul %v69, %w {fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}
