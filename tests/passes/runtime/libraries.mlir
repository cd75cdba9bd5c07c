// The plans name a GPU's libraries; its attention has no row kernel.
// RUN: fsdpc-opt %s --convert-to-rt --verify-rt | FileCheck %s

// CHECK: rt.matmul <{{.*}} accumulate false library "cublaslt">
// A product also reads its bias.
// CHECK: %[[ROW:.*]] = rt.pointer input @b + 0 bytes 16
// CHECK: rt.matmul <{{.*}} accumulate false bias true library "cublaslt"> %{{.*}}, %{{.*}} bias %[[ROW]] -> %
// Whatever surrounds a product has operands and results of its own.
// CHECK: rt.matmul <{{.*}} accumulate false bias true epilogue "gelu_extra" library "cublaslt"> %{{.*}}, %{{.*}} bias %{{.*}} -> %[[E:.*]], %[[H:[0-9]+]]
// CHECK: rt.matmul <{{.*}} accumulate false addend true library "cublaslt"> %{{.*}}, %{{.*}} plus %{{.*}} -> %{{[0-9]+}}{{$| }}
// CHECK: rt.matmul <{{.*}} accumulate false epilogue "gelu_grad" library "cublaslt"> %{{.*}}, %{{.*}} input %{{.*}} -> %{{[0-9]+}}
// CHECK: rt.matmul <{{.*}} accumulate false epilogue "sum_lhs" library "cublaslt"> %{{.*}}, %{{.*}} -> %{{.*}}, %{{[0-9]+}}
// CHECK: rt.attention <bf16, {{.*}} library "cudnn">({{.*}}) -> %{{.*}}, %
// CHECK-NOT: nn.rows
module attributes {fsdp.arena = {bytes = 4096 : i64}, fsdp.options = {"max-ranks" = 2 : i64, target = "cuda"}} {
  func.func @microbatch(%q: tensor<1x2x4x8xbf16> {fsdp.input = "q"}, %x: tensor<4x4xf32> {fsdp.input = "x"},
                        %b: tensor<4xf32> {fsdp.input = "b"}, %g: tensor<8x8xbf16> {fsdp.input = "g"}, %row: tensor<8xbf16> {fsdp.input = "row"}) {
    %y = nn.matmul %x, %x {fsdp.offsets = array<i64: 0>, nn.library = "cublaslt"} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %z = nn.matmul %x, %x accumulate %b {fsdp.offsets = array<i64: 64>, nn.library = "cublaslt"} : tensor<4x4xf32>, tensor<4x4xf32>, accumulate tensor<4xf32> -> tensor<4x4xf32>
    %e, %h = nn.fused_matmul gelu %g, %g bias %row {fsdp.offsets = array<i64: 128, 256>, nn.library = "cublaslt"} : (tensor<8x8xbf16>, tensor<8x8xbf16>, tensor<8xbf16>) -> (tensor<8x8xbf16>, tensor<8x8xbf16>)
    %r = nn.fused_matmul none %e, %g plus %g {fsdp.offsets = array<i64: 1152>, nn.library = "cublaslt"} : (tensor<8x8xbf16>, tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xbf16>
    %d = nn.fused_matmul gelu_grad %r, %g input %h {fsdp.offsets = array<i64: 1280>, nn.library = "cublaslt"} : (tensor<8x8xbf16>, tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xbf16>
    %dw, %db = nn.fused_matmul sum_lhs %d, %g {fsdp.offsets = array<i64: 1408, 1536>, nn.library = "cublaslt", transpose_a} : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> (tensor<8x8xbf16>, tensor<8xbf16>)
    %o, %l = nn.attention %q, %q, %q {fsdp.offsets = array<i64: 512, 1024>, nn.library = "cudnn", scale = 0.5 : f64}
      : tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16> -> tensor<1x2x4x8xbf16>, tensor<1x2x4xf32>
    return
  }
  func.func @update() { return }
}
