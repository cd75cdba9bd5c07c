// @evaluate gathers and frees as @microbatch does, and hands over nothing.
// RUN: fsdpc-opt %s --verify-collectives --verify-diagnostics --split-input-file

// It must leave the training as it is.
module {
  fsdp.unit @a
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    fsdp.enter @a backward
    %g = fsdp.pack @a.flat(%x) {fsdp.unit = @a, fsdp.backward} : (tensor<16xf32>) -> tensor<16xf32>
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a, fsdp.backward} : tensor<16xf32>
    fsdp.exit @a backward
    return
  }
  func.func @evaluate(%x: tensor<16xf32>) {
    fsdp.enter @a
    %f = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<16xf32>
    %v = fsdp.view %f[@w at 0] {fsdp.unit = @a} : tensor<16xf32> -> tensor<16xf32>
    %y = nn.mul %x, %v {fsdp.unit = @a} : tensor<16xf32>
    fsdp.free %f {fsdp.unit = @a} : tensor<16xf32>
    %g = fsdp.pack @a.flat(%y) {fsdp.unit = @a} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-error @below {{breaks rule 'evaluate': it changes the state of the training}}
    fsdp.reduce_scatter [@a.flat], %g {fsdp.unit = @a} : tensor<16xf32>
    fsdp.exit @a
    return
  }
  func.func @update() { return }
}
