// A product is bound by its flops or its bytes, and on this machine a kernel by
// its bytes. A lookup reads rows, not the table.
// RUN: fsdpc-opt %s --annotate-costs | FileCheck %s

// CHECK-LABEL: func.func @microbatch
// 2 x 256^3 flops at 80 GF/s.
// CHECK: nn.matmul {{.*}} {fsdp.bytes = 786432 : i64, fsdp.cost_us = 4.194300e+02 : f64, fsdp.flops = 33554432 : i64}
// Read and written once at 10 GB/s. An exp is twelve operations.
// CHECK: nn.launch @exp{{.*}} {fsdp.bytes = 524288 : i64, fsdp.cost_us = 5.242900e+01 : f64, fsdp.flops = 786432 : i64}
// What a reduction adds are its operand's elements; a broadcast adds nothing.
// CHECK: nn.launch @centre{{.*}} {fsdp.bytes = 525312 : i64, {{.*}}fsdp.flops = 131072 : i64}
// 4 ids, 4 rows read, 4 rows written.
// CHECK: nn.launch @rows{{.*}} {fsdp.bytes = 8224 : i64
// Causal, of 4 queries and 5 keys: 2 + 3 + 4 + 5 pairs in each of 2 heads; two products
// of depth 8 forward, five backward.
// CHECK: nn.attention {{.*}}fsdp.flops = 896 : i64
// CHECK: nn.attention_grad {{.*}}fsdp.flops = 2240 : i64
module {
  func.func private @exp(%x: tensor<256x256xf32>) -> tensor<256x256xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<256x256xf32>
    return %y : tensor<256x256xf32>
  }
  func.func private @centre(%x: tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<256x1xf32>) attributes {nn.kernel} {
    %s = nn.reduce sum %x [1] : tensor<256x256xf32> -> tensor<256x1xf32>
    %b = nn.broadcast %s : tensor<256x1xf32> -> tensor<256x256xf32>
    %y = nn.sub %x, %b : tensor<256x256xf32>
    return %y, %s : tensor<256x256xf32>, tensor<256x1xf32>
  }
  func.func private @rows(%t: tensor<256x256xf32>, %i: tensor<4xi64>) -> tensor<4x256xf32> attributes {nn.kernel} {
    %y = nn.embedding %t, %i : tensor<256x256xf32>, tensor<4xi64> -> tensor<4x256xf32>
    return %y : tensor<4x256xf32>
  }
  func.func @microbatch(%x: tensor<256x256xf32> {fsdp.input = "x"}, %i: tensor<4xi64> {fsdp.input = "i"},
                        %q: tensor<1x2x4x8xf32> {fsdp.input = "q"}, %k: tensor<1x1x5x8xf32> {fsdp.input = "k"}) {
    %a = nn.matmul %x, %x : tensor<256x256xf32>, tensor<256x256xf32> -> tensor<256x256xf32>
    %b = nn.launch @exp(%a) : (tensor<256x256xf32>) -> tensor<256x256xf32>
    %m:2 = nn.launch @centre(%b) : (tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<256x1xf32>)
    %c = nn.launch @rows(%b, %i) : (tensor<256x256xf32>, tensor<4xi64>) -> tensor<4x256xf32>
    %o, %l = nn.attention %q, %k, %k {causal, scale = 1.0 : f64} : tensor<1x2x4x8xf32>, tensor<1x1x5x8xf32>, tensor<1x1x5x8xf32>
      -> tensor<1x2x4x8xf32>, tensor<1x2x4xf32>
    %d:3 = nn.attention_grad %o, %q, %k, %k, %o, %l {causal, scale = 1.0 : f64}
      : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x1x5x8xf32>, tensor<1x1x5x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4xf32>
      -> tensor<1x2x4x8xf32>, tensor<1x1x5x8xf32>, tensor<1x1x5x8xf32>
    return
  }
}
