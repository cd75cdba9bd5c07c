// Lion (Chen et al., Symbolic Discovery of Optimization Algorithms, 2023) with
// betas of 0.7 and 0.4, as a user writes it for --optimizer=FILE.mlir: the
// parameter, the gradient and the states to the new parameter and states.
func.func @lion(%p: f32, %g: f32, %mean: f32 {fsdp.state = "mean"},
                %lr: f64, %step: f64, %decay: f64) -> (f32, f32) {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f64
  %beta1 = arith.constant 0.7 : f64
  %beta2 = arith.constant 0.4 : f64

  // The decay is decoupled.
  %product = arith.mulf %lr, %decay : f64
  %rest = arith.subf %one, %product : f64
  %shrink = arith.truncf %rest : f64 to f32
  %decayed = arith.mulf %p, %shrink : f32

  // direction = sign(0.7 mean + 0.3 g)
  %kept1 = arith.truncf %beta1 : f64 to f32
  %old1 = arith.mulf %mean, %kept1 : f32
  %share1 = arith.subf %one, %beta1 : f64
  %weight1 = arith.truncf %share1 : f64 to f32
  %new1 = arith.mulf %weight1, %g : f32
  %mix1 = arith.addf %old1, %new1 : f32
  %size = arith.truncf %one : f64 to f32
  %signed = math.copysign %size, %mix1 : f32
  %is_zero = arith.cmpf oeq, %mix1, %zero : f32
  %direction = arith.select %is_zero, %zero, %signed : f32

  %rate = arith.truncf %lr : f64 to f32
  %change = arith.mulf %rate, %direction : f32
  %p1 = arith.subf %decayed, %change : f32

  %kept2 = arith.truncf %beta2 : f64 to f32
  %old2 = arith.mulf %mean, %kept2 : f32
  %share2 = arith.subf %one, %beta2 : f64
  %weight2 = arith.truncf %share2 : f64 to f32
  %new2 = arith.mulf %weight2, %g : f32
  %mean1 = arith.addf %old2, %new2 : f32
  return %p1, %mean1 : f32, f32
}
