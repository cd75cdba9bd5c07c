// RUN: fsdpc-opt %s --outline-kernels | FileCheck %s

// The codes of a quantised weight are unpacked, looked up and scaled in one
// kernel: neither reshapes nor the concat of two codes of a byte end it.
// CHECK-LABEL: func.func @microbatch
// CHECK: %[[W:.*]] = nn.launch @[[NAME:[^(]*]](%{{.*}}, %{{.*}}, %{{.*}})
// CHECK-NOT: nn.launch
// CHECK: nn.matmul
// CHECK: func.func private @[[NAME]](
// CHECK: nn.concat
// CHECK: nn.embedding
// CHECK: nn.mul
module {
  fsdp.parameter @codes : tensor<128xui8> stored unit @u
  fsdp.parameter @scales : tensor<4x1xf32> stored unit @u
  fsdp.unit @u
  fsdp.layout @u.frozen.bytes of @u elements 144 : ui8 states 0 {members = [
    #fsdp.member<@codes[0, 128] rate 1.0 : f64 decay 0.0 : f64>,
    #fsdp.member<@scales[128, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x16xf32> {fsdp.input = "x"}) {
    %flat = fsdp.flat @u.frozen.bytes {fsdp.unit = @u} : tensor<144xui8>
    %q = fsdp.view %flat[@codes at 0] {fsdp.unit = @u} : tensor<144xui8> -> tensor<128xui8>
    %s = fsdp.view %flat[@scales at 128] {fsdp.unit = @u} : tensor<144xui8> -> tensor<4x1xf32>
    %book = nn.constant {fsdp.unit = @u} dense<[[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [7.0], [8.0], [9.0], [10.0], [11.0], [12.0], [13.0], [14.0], [15.0]]> : tensor<16x1xf32>
    %c = nn.constant {fsdp.unit = @u} dense<16> : tensor<128xi64>
    %i = nn.cast %q {fsdp.unit = @u} : tensor<128xui8> -> tensor<128xi64>
    %h = nn.div %i, %c {fsdp.unit = @u} : tensor<128xi64>
    %l = nn.mod %i, %c {fsdp.unit = @u} : tensor<128xi64>
    %h1 = nn.reshape %h {fsdp.unit = @u} : tensor<128xi64> -> tensor<128x1xi64>
    %l1 = nn.reshape %l {fsdp.unit = @u} : tensor<128xi64> -> tensor<128x1xi64>
    %b = nn.concat %h1, %l1 {axis = 1 : i64, fsdp.unit = @u} : (tensor<128x1xi64>, tensor<128x1xi64>) -> tensor<128x2xi64>
    %k = nn.reshape %b {fsdp.unit = @u} : tensor<128x2xi64> -> tensor<4x64xi64>
    %v = nn.embedding %book, %k {fsdp.unit = @u} : tensor<16x1xf32>, tensor<4x64xi64> -> tensor<4x64x1xf32>
    %v1 = nn.reshape %v {fsdp.unit = @u} : tensor<4x64x1xf32> -> tensor<4x64xf32>
    %r = nn.broadcast %s {fsdp.unit = @u} : tensor<4x1xf32> -> tensor<4x64xf32>
    %d = nn.mul %v1, %r {fsdp.unit = @u} : tensor<4x64xf32>
    %w = nn.reshape %d {fsdp.unit = @u} : tensor<4x64xf32> -> tensor<16x16xf32>
    %y = nn.matmul %x, %w {fsdp.unit = @u} : tensor<4x16xf32>, tensor<16x16xf32> -> tensor<4x16xf32>
    return
  }
}
