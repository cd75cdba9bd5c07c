// On a GPU a product takes whole waves of tiles at the measured rate: of an
// H200, 132 processors and 794.5 TFLOP/s in bf16.
// RUN: fsdpc-opt %s --annotate-costs | FileCheck %s

// CHECK-LABEL: func.func @microbatch
module attributes {fsdp.options = {"gpu-arch" = "sm_90", target = "cuda"}} {
  func.func @microbatch(%x: tensor<8192x1600xbf16> {fsdp.input = "x"}, %b: tensor<4x2048x1600xbf16> {fsdp.input = "b"},
                        %w: tensor<1600x1600xbf16> {fsdp.input = "w"}) {
    // 2 x 8192 x 1600^2 flops. The result would fill 800 tiles of 128 x 128, and takes 7 waves of 132.
    // CHECK: nn.matmul {{.*}}fsdp.cost_us = 60.97
    %a = nn.matmul %x, %w : tensor<8192x1600xbf16>, tensor<1600x1600xbf16> -> tensor<8192x1600xbf16>
    // Batches that share B are one product.
    // CHECK: nn.matmul {{.*}}fsdp.cost_us = 60.97
    %c = nn.matmul %b, %w : tensor<4x2048x1600xbf16>, tensor<1600x1600xbf16> -> tensor<4x2048x1600xbf16>
    // Batches of a transposed A are not. Four times 13 x 13 tiles are 6 waves.
    // CHECK: nn.matmul {{.*}}fsdp.cost_us = 6.689800e+01
    %d = nn.matmul %b, %b {transpose_a} : tensor<4x2048x1600xbf16>, tensor<4x2048x1600xbf16> -> tensor<4x1600x1600xbf16>
    return
  }
}
