// RUN: fsdpc-opt %s --verify-input --verify-diagnostics --split-input-file

// The module has a @microbatch.
// expected-error @below {{expected a function '@microbatch'}}
module {}

// -----

fsdp.parameter @w : tensor<f32> trainable
// Inputs have names.
// expected-error @below {{argument '0' has no 'fsdp.input'}}
func.func @microbatch(%x: tensor<f32>) {
  return
}

// -----

fsdp.parameter @w : tensor<f32> trainable
// Names are unique.
// expected-error @below {{input 'x' is declared twice}}
func.func @microbatch(%x: tensor<f32> {fsdp.input = "x"}, %y: tensor<f32> {fsdp.input = "x"}) {
  return
}

// -----

fsdp.parameter @w : tensor<f32> trainable
// Exactly one loss is reported.
// expected-error @below {{'@microbatch' reports 0 losses; expected exactly one}}
func.func @microbatch(%x: tensor<f32> {fsdp.input = "x"}) {
  return
}

// -----

fsdp.parameter @w : tensor<f32>
// A trainable parameter leads to the loss.
func.func @microbatch(%x: tensor<f32> {fsdp.input = "x"}) {
  %w = fsdp.load @w : tensor<f32>
  %y = nn.mul %x, %w : tensor<f32>
  // expected-error @below {{no trainable parameter affects the loss}}
  fsdp.report_loss %y : tensor<f32>
  return
}

// -----

fsdp.parameter @w : tensor<f32> trainable
func.func @microbatch(%x: tensor<f32> {fsdp.input = "x"}) {
  %w = fsdp.load @w : tensor<f32>
  %y = nn.mul %x, %w : tensor<f32>
  fsdp.report_loss %y : tensor<f32>
  return
}
// The runtime fills one set of inputs for both functions.
// expected-error @below {{'@evaluate' must have the inputs of '@microbatch'}}
func.func @evaluate(%x: tensor<f32> {fsdp.input = "z"}) {
  fsdp.report_loss %x : tensor<f32>
  return
}

// -----

fsdp.parameter @w : tensor<f32> trainable
func.func @microbatch(%x: tensor<f32> {fsdp.input = "x"}) {
  %w = fsdp.load @w : tensor<f32>
  %y = nn.mul %x, %w : tensor<f32>
  fsdp.report_loss %y : tensor<f32>
  return
}
// An evaluation reports one loss.
// expected-error @below {{'@evaluate' must report exactly one loss}}
func.func @evaluate(%x: tensor<f32> {fsdp.input = "x"}) {
  return
}

// -----

fsdp.parameter @w : tensor<f32> trainable
// A name stands for one output.
func.func @microbatch(%x: tensor<f32> {fsdp.input = "x"}) {
  %w = fsdp.load @w : tensor<f32>
  %y = nn.mul %x, %w : tensor<f32>
  fsdp.report_output "y" %y : tensor<f32>
  // expected-error @below {{output 'y' is reported twice}}
  fsdp.report_output "y" %x : tensor<f32>
  fsdp.report_loss %y : tensor<f32>
  return
}

// -----

fsdp.parameter @w : tensor<f32> trainable
func.func @microbatch(%x: tensor<f32> {fsdp.input = "x"}) {
  %w = fsdp.load @w : tensor<f32>
  %y = nn.mul %x, %w : tensor<f32>
  fsdp.report_output "y" %y : tensor<f32>
  fsdp.report_loss %y : tensor<f32>
  return
}
// An evaluation logs the metrics of the training.
// expected-error @below {{'@evaluate' does not report the output 'y' of '@microbatch'}}
func.func @evaluate(%x: tensor<f32> {fsdp.input = "x"}) {
  fsdp.report_loss %x : tensor<f32>
  return
}

// -----

fsdp.parameter @w : tensor<f32> trainable
func.func @microbatch(%x: tensor<f32> {fsdp.input = "x"}) {
  %w = fsdp.load @w : tensor<f32>
  %y = nn.mul %x, %w : tensor<f32>
  fsdp.report_loss %y : tensor<f32>
  return
}
// And the training those of an evaluation.
func.func @evaluate(%x: tensor<f32> {fsdp.input = "x"}) {
  // expected-error @below {{metric 'y' is not reported in '@microbatch'}}
  fsdp.report_output "y" %x : tensor<f32>
  fsdp.report_loss %x : tensor<f32>
  return
}

// -----

// Saved files replace what is not UTF-8, so they would hold two tensors of one name.
fsdp.parameter @"a\FF" : tensor<f32> trainable
// expected-error-re @below {{files cannot tell tensor '{{.*}}' from '{{.*}}'}}
fsdp.buffer @"a\FE" : tensor<f32>
func.func @microbatch(%x: tensor<f32> {fsdp.input = "x"}) {
  return
}

// -----

// In a safetensors file this is the key of what is no tensor.
// expected-error @below {{tensor name '__metadata__' is reserved by the safetensors format}}
fsdp.parameter @__metadata__ : tensor<f32> trainable
func.func @microbatch(%x: tensor<f32> {fsdp.input = "x"}) {
  return
}

// -----

// Tied parameters are found by their other names, too.
fsdp.parameter @v : tensor<f32> trainable {aliases = ["b\FF", "same"]}
// expected-error-re @below {{files cannot tell tensor '{{.*}}' from '{{.*}}'}}
fsdp.parameter @w : tensor<f32> trainable {aliases = ["same", "b\FE"]}
func.func @microbatch(%x: tensor<f32> {fsdp.input = "x"}) {
  return
}
