// Each rule of verify-units, kept and broken.
// RUN: fsdpc-opt %s --verify-units --verify-diagnostics --split-input-file

// Each unit loads the tied weight itself, the first one owns it, and what is
// made of the weight belongs to the unit that uses it. Loads of buffers, and ops
// that read no weight, may be in any unit.
module {
  fsdp.parameter @w : tensor<8x8xf32> trainable unit @a
  fsdp.parameter @unused : tensor<4xf32> unit @b
  fsdp.buffer @scale : tensor<4x8xf32>
  fsdp.unit @a
  fsdp.unit @b
  func.func @microbatch(%x: tensor<4x8xf32>) {
    %scale = fsdp.load @scale {fsdp.unit = @b} : tensor<4x8xf32>
    %w = fsdp.load @w {fsdp.unit = @a} : tensor<8x8xf32>
    %t = nn.transpose %w [1, 0] {fsdp.unit = @a} : tensor<8x8xf32> -> tensor<8x8xf32>
    %y = nn.matmul %x, %t {fsdp.unit = @a} : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    %s = nn.mul %y, %scale {fsdp.unit = @a} : tensor<4x8xf32>
    %w1 = fsdp.load @w {fsdp.unit = @b} : tensor<8x8xf32>
    %z = nn.matmul %s, %w1 {fsdp.unit = @b} : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    %r = nn.tanh %z {fsdp.unit = @a} : tensor<4x8xf32>
    return
  }
}

// -----

// Every op has a unit.
module {
  fsdp.unit @a
  func.func @microbatch(%x: tensor<4xf32>) {
    // expected-error @below {{breaks rule 'unit': it has no 'fsdp.unit'; give it the unit of the op before it}}
    %y = nn.tanh %x : tensor<4xf32>
    return
  }
}

// -----

// The unit of an op exists.
module {
  fsdp.unit @a
  func.func @microbatch(%x: tensor<4xf32>) {
    // expected-error @below {{breaks rule 'unit': it belongs to 'b', which is not an fsdp.unit}}
    %y = nn.tanh %x {fsdp.unit = @b} : tensor<4xf32>
    return
  }
}

// -----

// The backward is not written yet.
module {
  fsdp.unit @a
  func.func @microbatch(%x: tensor<4xf32>) {
    // expected-error @below {{breaks rule 'forward': it has 'fsdp.backward', but the backward is written by the phase 'grad'}}
    %y = nn.tanh %x {fsdp.unit = @a, fsdp.backward} : tensor<4xf32>
    return
  }
}

// -----

// There are no gradients yet.
module {
  fsdp.parameter @w : tensor<4xf32> trainable unit @a
  fsdp.unit @a
  func.func @microbatch(%x: tensor<4xf32>) {
    // expected-error @below {{breaks rule 'forward': it touches the gradients, which exist from the phase 'grad' on}}
    fsdp.gradient @w, %x {fsdp.unit = @a} : tensor<4xf32>
    return
  }
}

// -----

// With --gradient the model hands over gradients of its own.
module attributes {fsdp.options = {gradient = ["dw=w"]}} {
  fsdp.parameter @w : tensor<4xf32> trainable unit @a
  fsdp.unit @a
  func.func @microbatch(%x: tensor<4xf32>) {
    %w = fsdp.load @w {fsdp.unit = @a} : tensor<4xf32>
    %y = nn.mul %x, %w {fsdp.unit = @a} : tensor<4xf32>
    fsdp.gradient @w, %y {fsdp.unit = @a} : tensor<4xf32>
    return
  }
}

// -----

// There are no layouts yet.
module {
  fsdp.parameter @w : tensor<4xf32> trainable unit @a
  fsdp.unit @a
  // expected-error @below {{breaks rule 'forward': there are no layouts before the phase 'shard'}}
  fsdp.layout @a.flat of @a trainable elements 4 : f32 states 0 {
    members = [#fsdp.member<@w[0, 4] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() {
    return
  }
}

// -----

// An op that does not say what memory it touches is refused, as everywhere.
module {
  fsdp.unit @a
  func.func private @unknown()
  func.func @microbatch() {
    // expected-error @below {{does not declare its memory effects; declare them in ODS}}
    func.call @unknown() {fsdp.unit = @a} : () -> ()
    return
  }
}

// -----

// An op belongs to the unit that loads its weight.
module {
  fsdp.parameter @w : tensor<8x8xf32> trainable unit @a
  fsdp.unit @a
  fsdp.unit @b
  func.func @microbatch(%x: tensor<4x8xf32>) {
    // expected-note @below {{the weight is loaded here}}
    %w = fsdp.load @w {fsdp.unit = @a} : tensor<8x8xf32>
    // expected-error @below {{breaks rule 'weight-of-unit': it belongs to unit 'b' and reads 'w' in unit 'a'; each unit has loads of its own}}
    %y = nn.matmul %x, %w {fsdp.unit = @b} : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    return
  }
}

// -----

// So does an op that reads a rearranged weight.
module {
  fsdp.parameter @w : tensor<8x8xf32> trainable unit @a
  fsdp.unit @a
  fsdp.unit @b
  func.func @microbatch(%x: tensor<4x8xf32>) {
    %w = fsdp.load @w {fsdp.unit = @a} : tensor<8x8xf32>
    // expected-note @below {{the weight is loaded here}}
    %t = nn.transpose %w [1, 0] {fsdp.unit = @a} : tensor<8x8xf32> -> tensor<8x8xf32>
    // expected-error @below {{breaks rule 'weight-of-unit': it belongs to unit 'b' and reads 'w' in unit 'a'}}
    %y = nn.matmul %x, %t {fsdp.unit = @b} : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    return
  }
}

// -----

// Every parameter has an owner.
module {
  // expected-error @below {{breaks rule 'owner': parameter 'w' belongs to no unit}}
  fsdp.parameter @w : tensor<4xf32> trainable
  func.func @microbatch() {
    return
  }
}

// -----

// The owner is the unit that reads the parameter first.
module {
  // expected-error @below {{breaks rule 'owner': parameter 'w' belongs to unit 'b', but unit 'a' reads it first}}
  fsdp.parameter @w : tensor<4xf32> trainable unit @b
  fsdp.unit @a
  fsdp.unit @b
  func.func @microbatch() {
    // expected-note @below {{the first load is here}}
    %w = fsdp.load @w {fsdp.unit = @a} : tensor<4xf32>
    %y = nn.tanh %w {fsdp.unit = @a} : tensor<4xf32>
    %w1 = fsdp.load @w {fsdp.unit = @b} : tensor<4xf32>
    %z = nn.tanh %w1 {fsdp.unit = @b} : tensor<4xf32>
    return
  }
}

// -----

// Something is trained.
// expected-error @below {{breaks rule 'trainable': no parameter is trainable; loosen --frozen or --trainable}}
module {
  fsdp.parameter @w : tensor<4xf32> unit @a
  fsdp.unit @a
  func.func @microbatch() {
    return
  }
}
