// For a GPU each library call names its library; on the host there is nothing
// to choose.
// RUN: sed 's/@TARGET@/cuda/; s/@ATTENTION@/auto/' %s > %t.mlir
// RUN: fsdpc-opt %t.mlir --choose-libraries | FileCheck %s
// RUN: sed 's/@TARGET@/cuda-emulation/; s/@ATTENTION@/products/' %s | fsdpc-opt --choose-libraries | FileCheck %s --check-prefix=PRODUCTS
// RUN: sed 's/@TARGET@/host/; s/, "attention" = "@ATTENTION@"//' %s | fsdpc-opt --choose-libraries | FileCheck %s --check-prefix=HOST
// RUN: sed 's/@TARGET@/cuda/; s/@ATTENTION@/cudnn/' %s > %t.mlir
// RUN: not fsdpc-opt %t.mlir --choose-libraries 2>&1 | FileCheck %s --check-prefix=REFUSED

// CHECK: nn.matmul {{.*}}{nn.library = "cublaslt"}
// CHECK: nn.conv2d {{.*}}nn.library = "cudnn"
// CHECK: nn.max_pool2d {{.*}}nn.library = "own"
// cuDNN's attention takes bf16, forward and backward alike.
// CHECK: nn.attention {{.*}}causal, nn.library = "cudnn"
// CHECK: nn.attention_grad {{.*}}causal, nn.library = "cudnn"
// It takes neither masks from memory, nor other types or widths, nor a causal
// mask whose rows end elsewhere.
// CHECK: nn.attention {{.*}}nn.library = "products"
// CHECK: nn.attention {{.*}}nn.library = "products"
// CHECK: nn.attention {{.*}}nn.library = "products"
// CHECK: nn.attention {{.*}}nn.library = "products"
// PRODUCTS: nn.attention_grad {{.*}}nn.library = "products"
// HOST-NOT: nn.library
// REFUSED: error: cuDNN does not support this attention, but '--attention=cudnn' requires it: it has a mask; use '--attention=auto'
module attributes {fsdp.options = {"target" = "@TARGET@", "attention" = "@ATTENTION@"}} {
  func.func @microbatch(%x: tensor<4x4xf32>, %i: tensor<1x2x6x6xf32>, %w: tensor<3x2x3x3xf32>, %q: tensor<1x2x4x8xbf16>,
                        %m: tensor<1x1x1x4xi1>, %f: tensor<1x2x4x8xf32>, %d: tensor<1x2x4x12xbf16>, %k: tensor<1x2x5x8xbf16>) {
    %a = nn.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %c = nn.conv2d %i, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64}
      : tensor<1x2x6x6xf32>, tensor<3x2x3x3xf32> -> tensor<1x3x6x6xf32>
    %p, %n = nn.max_pool2d %c {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>}
      : tensor<1x3x6x6xf32> -> tensor<1x3x3x3xf32>, tensor<1x3x3x3xi32>
    %o, %l = nn.attention %q, %q, %q {causal, scale = 1.0 : f64}
      : tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16> -> tensor<1x2x4x8xbf16>, tensor<1x2x4xf32>
    %g:3 = nn.attention_grad %q, %q, %q, %q, %o, %l {causal, scale = 1.0 : f64}
      : tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16>, tensor<1x2x4xf32>
      -> tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16>
    %o1, %l1 = nn.attention %q, %q, %q mask %m {scale = 1.0 : f64}
      : tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16>, mask tensor<1x1x1x4xi1> -> tensor<1x2x4x8xbf16>, tensor<1x2x4xf32>
    %o2, %l2 = nn.attention %f, %f, %f {scale = 1.0 : f64}
      : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32> -> tensor<1x2x4x8xf32>, tensor<1x2x4xf32>
    %o3, %l3 = nn.attention %d, %d, %d {scale = 1.0 : f64}
      : tensor<1x2x4x12xbf16>, tensor<1x2x4x12xbf16>, tensor<1x2x4x12xbf16> -> tensor<1x2x4x12xbf16>, tensor<1x2x4xf32>
    %o4, %l4 = nn.attention %q, %k, %k {causal, scale = 1.0 : f64}
      : tensor<1x2x4x8xbf16>, tensor<1x2x5x8xbf16>, tensor<1x2x5x8xbf16> -> tensor<1x2x4x8xbf16>, tensor<1x2x4xf32>
    return
  }
}
