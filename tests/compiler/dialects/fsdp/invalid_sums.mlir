// Sums over whole parameters in @update, and optimizers that take them.
// RUN: fsdpc-opt %s --verify-diagnostics --split-input-file --allow-unregistered-dialect

// An optimizer that names sums takes them.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>, %n: tensor<2x16xf64>) {
  // expected-error@+1 {{has 'sums', but its region takes none}}
  fsdp.optimizer @u.flat, %c sums %n[0] : tensor<f32>, tensor<2x16xf64> {
  ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
    fsdp.yield %p : f32
  }
  return
}

// -----

// It reads sums that are there.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>, %n: tensor<2x16xf64>) {
  // expected-error@+1 {{reads 2 sums from 1 on, of 2}}
  fsdp.optimizer @u.flat, %c sums %n[1] : tensor<f32>, tensor<2x16xf64> {
  ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %x: f64, %y: f64):
    fsdp.yield %p : f32
  }
  return
}

// -----

// Each is a row of digits.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>, %n: tensor<2xf64>) {
  // expected-error@+1 {{has sums of type 'tensor<2xf64>', without rows of 16 digits}}
  fsdp.optimizer @u.flat, %c sums %n[0] : tensor<f32>, tensor<2xf64> {
  ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %x: f64, %y: f64):
    fsdp.yield %p : f32
  }
  return
}

// -----

// Sums are numbers, and stand behind the decay.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>, %n: tensor<2x16xf64>) {
  // expected-error@+1 {{argument 5 of the region has type 'f32', expected f64}}
  fsdp.optimizer @u.flat, %c sums %n[0] : tensor<f32>, tensor<2x16xf64> {
  ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %x: f32):
    fsdp.yield %p : f32
  }
  return
}

// -----

// Sums over ranks are f64.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>, %n: tensor<2x16xf64>) {
  %s = fsdp.member_sums [@u.flat], %c : tensor<f32> -> tensor<1x16xf64> {
  ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
    // expected-error@+1 {{has a value of type 'f32', expected 'f64'}}
    fsdp.yield %p : f32
  }
  return
}

// -----

// There is something to sum.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>, %n: tensor<2x16xf64>) {
  %s = fsdp.member_sums [@u.flat], %c : tensor<f32> -> tensor<0x16xf64> {
  ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
    // expected-error@+1 {{has no value to sum}}
    fsdp.yield
  }
  return
}

// -----

// A kernel has room for eight sums.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>, %n: tensor<2x16xf64>) {
  %s = fsdp.member_sums [@u.flat], %c : tensor<f32> -> tensor<9x16xf64> {
  ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
    // expected-error@+1 {{has 9 values to sum; the most are 8}}
    fsdp.yield %lr, %lr, %lr, %lr, %lr, %lr, %lr, %lr, %lr : f64, f64, f64, f64, f64, f64, f64, f64, f64
  }
  return
}

// -----

// The result has the sums of each member.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>, %n: tensor<2x16xf64>) {
  // expected-error@+1 {{has result type 'tensor<1x16xf64>' for 2 sums of each of 1 members}}
  %s = fsdp.member_sums [@u.flat], %c : tensor<f32> -> tensor<1x16xf64> {
  ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
    fsdp.yield %lr, %step : f64, f64
  }
  return
}

// -----

// The program of sums reads all states.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>, %n: tensor<2x16xf64>) {
  // expected-error@+1 {{has 6 arguments, but parameter, gradient, 0 states, lr, step and decay need 5}}
  %s = fsdp.member_sums [@u.flat], %c : tensor<f32> -> tensor<1x16xf64> {
  ^bb0(%p: f32, %g: f32, %m: f32, %lr: f64, %step: f64, %decay: f64):
    fsdp.yield %lr : f64
  }
  return
}

// -----

// It has no effects.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>, %n: tensor<2x16xf64>) {
  %s = fsdp.member_sums [@u.flat], %c : tensor<f32> -> tensor<1x16xf64> {
  ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
    // expected-error@+1 {{is not a scalar computation}}
    "test.effect"() : () -> ()
    fsdp.yield %lr : f64
  }
  return
}
