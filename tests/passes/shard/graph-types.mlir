// mixed-precision where the model's file says the types (--param-dtype=graph).
// RUN: fsdpc-opt %s --shard-parameters --mixed-precision | FileCheck %s --implicit-check-not=nn.type

// An op with nn.type has that type, whatever it reads: the sum of data in bf16,
// and 1 + w in bf16, which the rule would keep in f32. Without it the rule
// counts.
// CHECK-LABEL: func.func @microbatch
module attributes {fsdp.options = {"param-dtype" = "graph:bf16"}} {
  fsdp.parameter @w : tensor<8x8xf32> trainable unit @u
  fsdp.unit @u
  func.func @microbatch(%x: tensor<8x8xf32>) {
    // CHECK: nn.add {{.*}} : tensor<8x8xf32>
    %t = nn.add %x, %x {fsdp.unit = @u} : tensor<8x8xf32>
    // CHECK: nn.add {{.*}} : tensor<8x8xbf16>
    %s = nn.add %x, %x {fsdp.unit = @u, nn.type = bf16} : tensor<8x8xf32>
    %w = fsdp.load @w {fsdp.unit = @u} : tensor<8x8xf32>
    // CHECK: nn.add {{.*}} : tensor<8x8xbf16>
    %b = nn.add %w, %x {fsdp.unit = @u, nn.type = bf16} : tensor<8x8xf32>
    // CHECK: nn.matmul {{.*}} -> tensor<8x8xf32>
    %y = nn.matmul %s, %b {fsdp.unit = @u, nn.type = f32} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    // CHECK: nn.matmul {{.*}} -> tensor<8x8xbf16>
    %z = nn.matmul %t, %w {fsdp.unit = @u, nn.type = bf16} : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %a = nn.add %y, %z {fsdp.unit = @u} : tensor<8x8xf32>
    fsdp.gradient @w, %a {fsdp.unit = @u, fsdp.backward} : tensor<8x8xf32>
    return
  }
}
