// RUN: fsdpc-opt %s --materialize-collectives --verify-diagnostics

// A unit that turns with its only gather has nothing to keep.
// expected-error @below {{'--reshard-to=2' has no effect: no unit of zero3 is gathered twice in a microbatch}}
module attributes {fsdp.options = {"reshard-to" = 2 : i64}} {
  fsdp.parameter @w : tensor<8x8xf32> unit @a
  fsdp.unit @a
  fsdp.layout @a.frozen of @a elements 64 : f32 states 0 {
    members = [#fsdp.member<@w[0, 64] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<8x8xf32>) {
    %f = fsdp.flat @a.frozen {fsdp.unit = @a} : tensor<64xf32>
    %w = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<64xf32> -> tensor<8x8xf32>
    %y = nn.mul %x, %w {fsdp.unit = @a} : tensor<8x8xf32>
    %d = nn.mul %y, %w {fsdp.unit = @a, fsdp.backward} : tensor<8x8xf32>
    return
  }
  func.func @update() { return }
}
