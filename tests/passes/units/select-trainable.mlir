// RUN: fsdpc-opt %s --select-trainable --split-input-file --verify-diagnostics | FileCheck %s

// --frozen matches names anywhere, and aliases.
module attributes {fsdp.options = {frozen = ["^wte", "bias$"]}} {
  // CHECK: fsdp.parameter @lm_head.weight : tensor<8xf32> {
  fsdp.parameter @lm_head.weight : tensor<8xf32> trainable {aliases = ["wte.weight"]}
  // CHECK: fsdp.parameter @fc.weight : tensor<8xf32> trainable
  fsdp.parameter @fc.weight : tensor<8xf32> trainable
  // CHECK: fsdp.parameter @fc.bias : tensor<8xf32>{{$}}
  fsdp.parameter @fc.bias : tensor<8xf32> trainable
}

// -----

// --trainable selects what it matches, except what --frozen matches.
module attributes {fsdp.options = {trainable = ["h\\.\\d+\\."], frozen = ["h.0"]}} {
  // CHECK: fsdp.parameter @h.0.w : tensor<8xf32>{{$}}
  fsdp.parameter @h.0.w : tensor<8xf32> trainable
  // CHECK: fsdp.parameter @h.1.w : tensor<8xf32> trainable
  fsdp.parameter @h.1.w : tensor<8xf32> trainable
  // CHECK: fsdp.parameter @head.w : tensor<8xf32>{{$}}
  fsdp.parameter @head.w : tensor<8xf32> trainable
}

// -----

// An expression that matches nothing is an error that names the nearest.
// expected-error@+1 {{--frozen 'fc.wieght' matches no parameter; available: 'fc.weight', 'fc.bias'}}
module attributes {fsdp.options = {frozen = ["fc.wieght"]}} {
  fsdp.parameter @fc.bias : tensor<8xf32> trainable
  fsdp.parameter @fc.weight : tensor<8xf32> trainable
}

// -----

// At least one parameter must remain trainable.
// expected-error@+1 {{no parameter is trainable; relax --frozen or --trainable}}
module attributes {fsdp.options = {frozen = ["."]}} {
  fsdp.parameter @fc.weight : tensor<8xf32> trainable
}
