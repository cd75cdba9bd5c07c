// Factors of averages of squares in @update, and optimizers that take them.
// RUN: fsdpc-opt %s --verify-diagnostics --split-input-file

// A small matrix has the square of each element.
fsdp.parameter @a : tensor<2x4xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>) {
  // expected-error@+1 {{has sums of type 'tensor<6xf64>', but those of the members are 8}}
  %s = fsdp.factor_sums [@u.flat], %c {clip_value = 0.0 : f64} : tensor<f32> -> tensor<6xf64>
  return
}

// -----

// A large one has 16 digits per row and column.
fsdp.parameter @a : tensor<64x40xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 2560 : f32 states 0 {members = [
  #fsdp.member<@a[0, 2560] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>) {
  // expected-error@+1 {{has sums of type 'tensor<2560xf64>', but those of the members are 1664}}
  %s = fsdp.factor_sums [@u.flat], %c {clip_value = 0.0 : f64} : tensor<f32> -> tensor<2560xf64>
  return
}

// -----

// Factors are numbers of rows and columns in any case.
fsdp.parameter @a : tensor<2x4xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%r: tensor<8xf64>) {
  // expected-error@+1 {{has type 'tensor<8xf64>' for 6 rows and columns of the members}}
  %f = fsdp.update_factors [@u.flat], %r {eps = 0.0 : f64, power = -1.0 : f64} : tensor<8xf64> -> tensor<8xf64>
  return
}

// -----

// The averages have buffers of their own, which are not the model's.
fsdp.parameter @a : tensor<2x4xf32> trainable unit @u
fsdp.buffer @a.row_var : tensor<2x1xf32> state {rule = "zeros"}
fsdp.buffer @a.col_var : tensor<1x4xf32> {rule = "zeros"}
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%r: tensor<8xf64>) {
  // expected-error@+1 {{needs a buffer 'a.col_var' of 'tensor<1x4xf32>', marked 'state'}}
  %f = fsdp.update_factors [@u.flat], %r {eps = 0.0 : f64, power = -1.0 : f64} : tensor<8xf64> -> tensor<6xf64>
  return
}

// -----

// An optimizer reads factors that are there.
fsdp.parameter @a : tensor<2x4xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>, %n: tensor<1x16xf64>, %f: tensor<6xf64>) {
  // expected-error@+1 {{reads 6 factors from 1 on, of 6}}
  fsdp.optimizer @u.flat, %c sums %n[0] factors %f[1] : tensor<f32>, tensor<1x16xf64>, tensor<6xf64> {
  ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
    fsdp.yield %p : f32
  }
  return
}

// -----

// Its region takes the average of squares, and yields none.
fsdp.parameter @a : tensor<2x4xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>, %n: tensor<1x16xf64>, %f: tensor<6xf64>) {
  // expected-error@+1 {{argument 3 of the region has type 'f64', expected f32}}
  fsdp.optimizer @u.flat, %c sums %n[0] factors %f[0] : tensor<f32>, tensor<1x16xf64>, tensor<6xf64> {
  ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
    fsdp.yield %p, %v : f32, f32
  }
  return
}

// -----

// Without it the arguments would be shifted by one.
fsdp.parameter @a : tensor<2x4xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @update(%c: tensor<f32>, %n: tensor<1x16xf64>, %f: tensor<6xf64>) {
  // expected-error@+1 {{argument 2 of the region has type 'f64', expected f32}}
  fsdp.optimizer @u.flat, %c sums %n[0] factors %f[0] : tensor<f32>, tensor<1x16xf64>, tensor<6xf64> {
  ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %sum: f64):
    fsdp.yield %p : f32
  }
  return
}
