// RUN: fsdpc-opt %s --verify-diagnostics --split-input-file

// A load has its parameter's type.
fsdp.parameter @w : tensor<8xf32> trainable
func.func @f() {
  // expected-error@+1 {{has result type 'tensor<4xf32>' for 'w' of type 'tensor<8xf32>'}}
  %0 = fsdp.load @w : tensor<4xf32>
  return
}

// -----

// A unit cannot be loaded like a parameter.
fsdp.unit @u
func.func @f() {
  // expected-error@+1 {{references 'u', which is not a parameter or buffer}}
  %0 = fsdp.load @u : tensor<4xf32>
  return
}

// -----

// A frozen parameter has no gradient.
fsdp.parameter @w : tensor<8xf32>
func.func @f(%g: tensor<8xf32>) {
  // expected-error@+1 {{computes the gradient of parameter 'w', which is frozen}}
  fsdp.gradient @w, %g : tensor<8xf32>
  return
}

// -----

// A view takes a member at its offset in the layout.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.parameter @b : tensor<8xf32> trainable unit @u
fsdp.unit @u
// expected-note@+1 {{layout defined here}}
fsdp.layout @u.flat of @u trainable elements 24 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>,
  #fsdp.member<@b[16, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @f() {
  %0 = fsdp.all_gather [@u.flat] : tensor<24xf32>
  // expected-error@+1 {{views 'b' at 8, but layout 'u.flat' does not have it there}}
  %1 = fsdp.view %0[@b at 8] : tensor<24xf32> -> tensor<8xf32>
  return
}

// -----

// A gathered buffer has the layout's size and type.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
// expected-note@+1 {{layout defined here}}
fsdp.layout @u.flat of @u trainable elements 8 : bf16 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @f() {
  // expected-error@+1 {{has a buffer of type 'tensor<8xf32>' for layout 'u.flat', which requires 'tensor<8xbf16>'}}
  %0 = fsdp.all_gather [@u.flat] : tensor<8xf32>
  return
}

// -----

// Only gathered buffers are freed.
func.func @f(%x: tensor<8xf32>) {
  // expected-error@+1 {{frees a value that is not the result of an all_gather}}
  fsdp.free %x : tensor<8xf32>
  return
}

// -----

// A pack has one value per member.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @f(%x: tensor<8xf32>) {
  // expected-error@+1 {{has 2 values for the 1 members of layout 'u.flat'}}
  %0 = fsdp.pack @u.flat(%x, %x) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

// A wait takes its own kind of token.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @f() {
  %t = fsdp.all_gather_start [@u.flat]
  // expected-error@+1 {{waits for a token that reduce_scatter_start did not produce}}
  fsdp.reduce_scatter_wait %t
  return
}

// -----

// The optimizer's program has one argument per state of the layout.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 2 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>) {
  // expected-error@+1 {{has 5 arguments, but parameter, gradient, 2 states, lr, step and decay need 7}}
  fsdp.optimizer @u.flat, %c : tensor<f32> {
  ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
    fsdp.yield %p : f32
  }
  return
}

// -----

// It yields the parameter and the states.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 1 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>) {
  fsdp.optimizer @u.flat, %c : tensor<f32> {
  ^bb0(%p: f32, %g: f32, %m: f32, %lr: f64, %step: f64, %decay: f64):
    // expected-error@+1 {{has 1 values, but the parameter and its states need 2}}
    fsdp.yield %p : f32
  }
  return
}

// -----

// The mode of an update of running statistics is one of --buffers.
fsdp.buffer @m : tensor<4xf32>
func.func @f(%x: tensor<4xf32>) {
  // expected-error@+1 {{has mode 'mean', which is none of sequential|local|broadcast|average}}
  fsdp.update_statistics @m, %x {mode = "mean", momentum = 0.1 : f64} : tensor<4xf32>
  return
}
