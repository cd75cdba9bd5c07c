// The loss and its gradients in blocks of rows.
// RUN: fsdpc-opt %s --decompose-linear-cross-entropy | FileCheck %s
// RUN: fsdpc-opt %s --decompose-linear-cross-entropy --outline-kernels --merge-kernels | FileCheck %s --check-prefix=KERNELS
// RUN: fsdpc-opt %s --decompose-linear-cross-entropy --outline-kernels --merge-kernels --tie-operands --plan-memory --verify-memory | FileCheck %s --check-prefix=MEMORY

// 256 rows of 100000 classes are two blocks. The second adds to the weight's
// gradient, and the rows of the input's gradient are joined.
// CHECK-LABEL: func.func @microbatch
// CHECK: %[[X0:.*]] = nn.slice %arg0 [0, 0] by [1, 1] : tensor<256x2xf32> -> tensor<128x2xf32>
// CHECK: nn.matmul %[[X0]], %arg1 : tensor<128x2xf32>, tensor<2x100000xf32>
// CHECK: %[[DX0:.*]] = nn.matmul %[[G0:.*]], %arg1 {transpose_b} : tensor<128x100000xf32>
// CHECK: %[[DW0:.*]] = nn.matmul %[[X0]], %[[G0]] {transpose_a} :
// CHECK: %[[X1:.*]] = nn.slice %arg0 [128, 0]
// CHECK: %[[DX1:.*]] = nn.matmul %[[G1:.*]], %arg1 {transpose_b}
// CHECK: nn.matmul %[[X1]], %[[G1]] accumulate %[[DW0]] {transpose_a}
// CHECK: nn.concat %[[DX0]], %[[DX1]] {axis = 0 : i64}

// Slices and the concat are views, so that both blocks run one kernel, which
// reads a row of logits and writes its gradient.
// KERNELS-LABEL: func.func @microbatch
// KERNELS: nn.slice
// KERNELS: %[[L:.*]] = nn.matmul
// KERNELS: nn.launch @[[K:[a-z_0-9x]+]](%{{.*}}) : {{.*}} -> (tensor<128xf32>, tensor<128x100000xf32>)
// KERNELS: nn.launch @[[K]](
// KERNELS: nn.concat

// On a GPU a block may be four times as large.
// RUN: sed 's/^module {/module attributes {fsdp.options = {"target" = "cuda"}} {/; s/x100000x/x98304x/g' %s | fsdpc-opt --decompose-linear-cross-entropy | FileCheck %s --check-prefix=CUDA
// CUDA-LABEL: func.func @microbatch
// CUDA-NOT: nn.slice
// CUDA: nn.matmul %arg0, %arg1 : tensor<256x2xf32>, tensor<2x98304xf32>

// On a GPU the gradient of a bf16 weight is summed over its blocks in f32 and
// rounded once. On the host every block rounds it.
// RUN: sed 's/^module {/module attributes {fsdp.options = {"target" = "cuda"}} {/; s/xf32>/xbf16>/g; s/256x/2560x/g; s/<256xi64>/<2560xi64>/g; s/x100000x/x98304x/g' %s | fsdpc-opt --decompose-linear-cross-entropy | FileCheck %s --check-prefix=SUMS
// SUMS-LABEL: func.func @microbatch
// SUMS: %[[S0:.*]] = nn.matmul %{{.*}} {transpose_a} : tensor<1280x2xbf16>, tensor<1280x98304xbf16> -> tensor<2x98304xf32>
// SUMS: %[[S1:.*]] = nn.matmul %{{.*}} accumulate %[[S0]] {transpose_a} : {{.*}} -> tensor<2x98304xf32>
// SUMS: nn.cast %[[S1]] : tensor<2x98304xf32> -> tensor<2x98304xbf16>

// On a GPU, rows of logits begin at multiples of 64 elements. The padding is -inf
// by a bias, and no gradient leaves it: a copy has memory of its own, as the
// buffer of a unit's gradients asks for.
// RUN: sed 's/^module {/module attributes {fsdp.options = {"target" = "cuda"}} {/; s/x100000x/x50257x/g' %s | fsdpc-opt --decompose-linear-cross-entropy | FileCheck %s --check-prefix=PADDED
// PADDED-LABEL: func.func @microbatch
// PADDED: %[[W:.*]] = nn.pad %arg1 [0, 0] by [1, 1] : tensor<2x50257xf32> -> tensor<2x50304xf32>
// PADDED: %[[COLUMN:.*]] = nn.iota {{.*}} : tensor<50304xi32>
// PADDED: %[[COUNTS:.*]] = nn.cmp lt %[[COLUMN]]
// PADDED: %[[MARKS:.*]] = nn.select %[[COUNTS]]
// PADDED: nn.matmul %arg0, %[[W]] accumulate %[[MARKS]] : {{.*}} -> tensor<256x50304xf32>
// PADDED: %{{.*}}, %[[G:.*]] = nn.cross_entropy_rows {{.*}} : tensor<256x50304xf32>
// PADDED: nn.matmul %[[G]], %[[W]] {transpose_b} : {{.*}} -> tensor<256x2xf32>
// PADDED: %[[DW:.*]] = nn.matmul %arg0, %[[G]] {transpose_a} : {{.*}} -> tensor<2x50304xf32>
// PADDED: %[[PART:.*]] = nn.slice %[[DW]] [0, 0] by [1, 1] : tensor<2x50304xf32> -> tensor<2x50257xf32>
// PADDED: nn.copy %[[PART]]

// The full logits never exist, and a block's gradients overwrite its logits:
// 51.2 MB.
// MEMORY: fsdp.arena = {{{.*}}bytes = 52{{[0-9]*}} : i64
module {
  func.func @microbatch(%x: tensor<256x2xf32> {fsdp.input = "x"}, %w: tensor<2x100000xf32> {fsdp.input = "w"}, %t: tensor<256xi64> {fsdp.input = "t"}) {
    %l, %v, %dx, %dw = nn.linear_cross_entropy mean %x, %w, %t : tensor<256x2xf32>, tensor<2x100000xf32>, tensor<256xi64> -> tensor<f32>, tensor<f32>
    fsdp.report_loss %l valid %v : tensor<f32>, tensor<f32>
    %y = nn.matmul %dx, %dx {transpose_a} : tensor<256x2xf32>, tensor<256x2xf32> -> tensor<2x2xf32>
    %z = nn.matmul %dw, %dw {transpose_b} : tensor<2x100000xf32>, tensor<2x100000xf32> -> tensor<2x2xf32>
    return
  }
}
