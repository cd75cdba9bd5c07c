// Kernels for kernel_bench: one per template and float type. As bare kernels
// they have no launches, so kernel_bench counts all operands and results as
// bytes moved. The test only checks that they parse.
// RUN: fsdpc-opt %s -o %t
func.func private @bias_gelu_tanh(%x: tensor<4096x1536xf32>, %b: tensor<1536xf32>) -> tensor<4096x1536xf32> attributes {nn.kernel} {
  %0 = nn.broadcast %b : tensor<1536xf32> -> tensor<4096x1536xf32>
  %1 = nn.add %x, %0 : tensor<4096x1536xf32>
  %2 = nn.gelu tanh %1 : tensor<4096x1536xf32>
  return %2 : tensor<4096x1536xf32> }
func.func private @bias_gelu_erf(%x: tensor<4096x1536xf32>, %b: tensor<1536xf32>) -> tensor<4096x1536xf32> attributes {nn.kernel} {
  %0 = nn.broadcast %b : tensor<1536xf32> -> tensor<4096x1536xf32>
  %1 = nn.add %x, %0 : tensor<4096x1536xf32>
  %2 = nn.gelu erf %1 : tensor<4096x1536xf32>
  return %2 : tensor<4096x1536xf32> }
func.func private @gelu_grad_erf(%x: tensor<4096x1536xf32>, %g: tensor<4096x1536xf32>) -> tensor<4096x1536xf32> attributes {nn.kernel} {
  %2 = nn.gelu_grad erf %x, %g : tensor<4096x1536xf32>
  return %2 : tensor<4096x1536xf32> }
func.func private @bias_gelu_bf16(%x: tensor<4096x1536xbf16>, %b: tensor<1536xbf16>) -> tensor<4096x1536xbf16> attributes {nn.kernel} {
  %0 = nn.broadcast %b : tensor<1536xbf16> -> tensor<4096x1536xbf16>
  %1 = nn.add %x, %0 : tensor<4096x1536xbf16>
  %2 = nn.gelu tanh %1 : tensor<4096x1536xbf16>
  return %2 : tensor<4096x1536xbf16> }
func.func private @residual_layer_norm(%r: tensor<8192x384xf32>, %z: tensor<8192x384xf32>, %w: tensor<384xf32>, %b: tensor<384xf32>)
  -> (tensor<8192x384xf32>, tensor<8192x384xf32>, tensor<8192xf32>, tensor<8192xf32>) attributes {nn.kernel} {
  %x = nn.add %r, %z : tensor<8192x384xf32>
  %y:3 = nn.layer_norm %x weight %w bias %b {epsilon = 1.0e-5 : f64} : tensor<8192x384xf32>, weight tensor<384xf32>, bias tensor<384xf32>
    -> tensor<8192x384xf32>, tensor<8192xf32>, tensor<8192xf32>
  return %x, %y#0, %y#1, %y#2 : tensor<8192x384xf32>, tensor<8192x384xf32>, tensor<8192xf32>, tensor<8192xf32> }
func.func private @layer_norm_grad(%g: tensor<8192x384xf32>, %x: tensor<8192x384xf32>, %m: tensor<8192xf32>, %r: tensor<8192xf32>, %w: tensor<384xf32>)
  -> tensor<8192x384xf32> attributes {nn.kernel} {
  %y = nn.layer_norm_grad %g, %x, %m, %r weight %w : tensor<8192x384xf32>, tensor<8192xf32>, weight tensor<384xf32> -> tensor<8192x384xf32>
  return %y : tensor<8192x384xf32> }
func.func private @norm_weight_grad(%g: tensor<8192x384xf32>, %x: tensor<8192x384xf32>, %m: tensor<8192xf32>, %r: tensor<8192xf32>)
  -> tensor<384xf32> attributes {nn.kernel} {
  %y = nn.norm_weight_grad %g, %x mean %m rstd %r : tensor<8192x384xf32>, tensor<8192xf32>, mean tensor<8192xf32> -> tensor<384xf32>
  return %y : tensor<384xf32> }
func.func private @bias_grad(%x: tensor<4096x1536xf32>) -> tensor<1x1536xf32> attributes {nn.kernel} {
  %y = nn.reduce sum %x [0] : tensor<4096x1536xf32> -> tensor<1x1536xf32>
  return %y : tensor<1x1536xf32> }
func.func private @causal_softmax(%x: tensor<24x256x256xf32>) -> tensor<24x256x256xf32> attributes {nn.kernel} {
  %s = nn.constant dense<0.125> : tensor<24x256x256xf32>
  %0 = nn.mul %x, %s : tensor<24x256x256xf32>
  %q = nn.iota {axis = 1} : tensor<24x256x256xi32>
  %k = nn.iota {axis = 2} : tensor<24x256x256xi32>
  %c = nn.cmp le %k, %q : tensor<24x256x256xi32> -> tensor<24x256x256xi1>
  %n = nn.constant dense<0xFF800000> : tensor<24x256x256xf32>
  %1 = nn.select %c, %0, %n : tensor<24x256x256xi1>, tensor<24x256x256xf32>
  %2 = nn.softmax %1 : tensor<24x256x256xf32>
  return %2 : tensor<24x256x256xf32> }
func.func private @cross_entropy_rows(%x: tensor<1024x50257xf32>, %t: tensor<1024xi64>) -> (tensor<1024xf32>, tensor<1024x1xf32>) attributes {nn.kernel} {
  %m = nn.reduce max %x [1] : tensor<1024x50257xf32> -> tensor<1024x1xf32>
  %0 = nn.broadcast %m : tensor<1024x1xf32> -> tensor<1024x50257xf32>
  %1 = nn.sub %x, %0 : tensor<1024x50257xf32>
  %2 = nn.exp %1 : tensor<1024x50257xf32>
  %s = nn.reduce sum %2 [1] : tensor<1024x50257xf32> -> tensor<1024x1xf32>
  %3 = nn.log %s : tensor<1024x1xf32>
  %4 = nn.add %m, %3 : tensor<1024x1xf32>
  %i = nn.reshape %t : tensor<1024xi64> -> tensor<1024x1xi64>
  %p = nn.take_along_axis %x, %i : tensor<1024x50257xf32>, tensor<1024x1xi64> -> tensor<1024x1xf32>
  %5 = nn.sub %4, %p : tensor<1024x1xf32>
  %6 = nn.reshape %4 : tensor<1024x1xf32> -> tensor<1024xf32>
  return %6, %5 : tensor<1024xf32>, tensor<1024x1xf32> }
func.func private @cross_entropy_grad(%g: tensor<f32>, %x: tensor<1024x50257xf32>, %t: tensor<1024xi64>, %l: tensor<1024xf32>, %v: tensor<f32>)
  -> tensor<1024x50257xf32> attributes {nn.kernel} {
  %y = nn.cross_entropy_grad mean %g, %x, %t, %l, %v : tensor<f32>, tensor<1024x50257xf32>, tensor<1024xi64>, tensor<1024xf32> -> tensor<1024x50257xf32>
  return %y : tensor<1024x50257xf32> }
func.func private @loss_and_grad(%x: tensor<1024x50257xf32>, %t: tensor<1024x1xi64>) -> (tensor<1024x50257xf32>, tensor<1024x1xf32>) attributes {nn.kernel} {
  %m = nn.reduce max %x [1] : tensor<1024x50257xf32> -> tensor<1024x1xf32>
  %b = nn.broadcast %m : tensor<1024x1xf32> -> tensor<1024x50257xf32>
  %d = nn.sub %x, %b : tensor<1024x50257xf32>
  %e = nn.exp %d : tensor<1024x50257xf32>
  %s = nn.reduce sum %e [1] : tensor<1024x50257xf32> -> tensor<1024x1xf32>
  %l = nn.log %s : tensor<1024x1xf32>
  %z = nn.add %m, %l : tensor<1024x1xf32>
  %p = nn.take_along_axis %x, %t : tensor<1024x50257xf32>, tensor<1024x1xi64> -> tensor<1024x1xf32>
  %loss = nn.sub %z, %p : tensor<1024x1xf32>
  %one1 = nn.constant dense<1.0> : tensor<1024x1xf32>
  %r = nn.div %one1, %s : tensor<1024x1xf32>
  %c = nn.broadcast %r : tensor<1024x1xf32> -> tensor<1024x50257xf32>
  %q = nn.mul %e, %c : tensor<1024x50257xf32>
  %k = nn.iota {axis = 1} : tensor<1024x50257xi32>
  %t32 = nn.cast %t : tensor<1024x1xi64> -> tensor<1024x1xi32>
  %u = nn.broadcast %t32 : tensor<1024x1xi32> -> tensor<1024x50257xi32>
  %h = nn.cmp eq %k, %u : tensor<1024x50257xi32> -> tensor<1024x50257xi1>
  %one = nn.constant dense<1.0> : tensor<1024x50257xf32>
  %zero = nn.constant dense<0.0> : tensor<1024x50257xf32>
  %o = nn.select %h, %one, %zero : tensor<1024x50257xi1>, tensor<1024x50257xf32>
  %g = nn.sub %q, %o : tensor<1024x50257xf32>
  return %g, %loss : tensor<1024x50257xf32>, tensor<1024x1xf32> }
func.func private @split_heads(%x: tensor<4096x1152xf32>) -> tensor<16x6x256x64xf32> attributes {nn.kernel} {
  %s = nn.slice %x [0, 384] by [1, 1] : tensor<4096x1152xf32> -> tensor<4096x384xf32>
  %0 = nn.reshape %s : tensor<4096x384xf32> -> tensor<16x256x6x64xf32>
  %1 = nn.transpose %0 [0, 2, 1, 3] : tensor<16x256x6x64xf32> -> tensor<16x6x256x64xf32>
  return %1 : tensor<16x6x256x64xf32> }
func.func private @transpose(%x: tensor<2048x1536xf32>) -> tensor<1536x2048xf32> attributes {nn.kernel} {
  %1 = nn.transpose %x [1, 0] : tensor<2048x1536xf32> -> tensor<1536x2048xf32>
  return %1 : tensor<1536x2048xf32> }
func.func private @dropout(%x: tensor<4096x1536xf32>, %r: tensor<4xi32>) -> tensor<4096x1536xf32> attributes {nn.kernel} {
  %y = nn.dropout %x, %r {ratio = 0.1 : f64, op = 3} : tensor<4096x1536xf32>, tensor<4xi32>
  return %y : tensor<4096x1536xf32> }
func.func private @embedding_grad(%g: tensor<1024x384xf32>, %i: tensor<1024xi64>) -> tensor<50257x384xf32> attributes {nn.kernel} {
  %y = nn.embedding_grad %g, %i : tensor<1024x384xf32>, tensor<1024xi64> -> tensor<50257x384xf32>
  return %y : tensor<50257x384xf32> }
func.func private @embedding_grad_bf16(%g: tensor<1024x384xbf16>, %i: tensor<1024xi64>) -> tensor<50257x384xbf16> attributes {nn.kernel} {
  %y = nn.embedding_grad %g, %i : tensor<1024x384xbf16>, tensor<1024xi64> -> tensor<50257x384xbf16>
  return %y : tensor<50257x384xbf16> }
func.func private @adamw(%arg0: f32, %arg1: f32, %arg2: f32, %arg3: f32, %arg4: f64, %arg5: f64, %arg6: f64) -> (f32, f32, f32) attributes {nn.compute = f32, nn.kernel, nn.optimizer} {
  %cst = arith.constant 1.000000e+00 : f64
  %cst_0 = arith.constant 9.000000e-01 : f64
  %cst_1 = arith.constant 0.99899999999999999 : f64
  %cst_2 = arith.constant 1.000000e-08 : f64
  %0 = arith.truncf %cst_2 : f64 to f32
  %1 = arith.mulf %arg4, %arg6 : f64
  %2 = arith.subf %cst, %1 : f64
  %3 = arith.truncf %2 : f64 to f32
  %4 = arith.mulf %arg0, %3 : f32
  %5 = arith.subf %arg1, %arg2 : f32
  %6 = arith.subf %cst, %cst_0 : f64
  %7 = arith.truncf %6 : f64 to f32
  %8 = arith.mulf %7, %5 : f32
  %9 = arith.addf %arg2, %8 : f32
  %10 = arith.truncf %cst_1 : f64 to f32
  %11 = arith.mulf %arg3, %10 : f32
  %12 = arith.subf %cst, %cst_1 : f64
  %13 = arith.truncf %12 : f64 to f32
  %14 = arith.mulf %13, %arg1 : f32
  %15 = arith.mulf %14, %arg1 : f32
  %16 = arith.addf %11, %15 : f32
  %17 = math.powf %cst_0, %arg5 : f64
  %18 = arith.subf %cst, %17 : f64
  %19 = math.powf %cst_1, %arg5 : f64
  %20 = arith.subf %cst, %19 : f64
  %21 = math.sqrt %20 : f64
  %22 = arith.truncf %21 : f64 to f32
  %23 = math.sqrt %16 : f32
  %24 = arith.divf %23, %22 : f32
  %25 = arith.addf %24, %0 : f32
  %26 = arith.divf %arg4, %18 : f64
  %27 = arith.negf %26 : f64
  %28 = arith.truncf %27 : f64 to f32
  %29 = arith.mulf %28, %9 : f32
  %30 = arith.divf %29, %25 : f32
  %31 = arith.addf %4, %30 : f32
  return %31, %9, %16 : f32, f32, f32
}
func.func private @bias_grad_blocks(%x: tensor<4096x1536xf32>) -> tensor<64x1x1536xf32> attributes {nn.kernel} {
  %r = nn.reshape %x : tensor<4096x1536xf32> -> tensor<64x64x1536xf32>
  %y = nn.reduce sum %r [1] : tensor<64x64x1536xf32> -> tensor<64x1x1536xf32>
  return %y : tensor<64x1x1536xf32> }
func.func private @layer_norm_grads(%g: tensor<8192x384xf32>, %x: tensor<8192x384xf32>, %m: tensor<8192x1xf32>, %r: tensor<8192x1xf32>, %w: tensor<384xf32>)
  -> (tensor<8192x384xf32>, tensor<128x1x384xf32>, tensor<128x1x384xf32>) attributes {nn.kernel} {
  %m1 = nn.reshape %m : tensor<8192x1xf32> -> tensor<8192xf32>
  %r1 = nn.reshape %r : tensor<8192x1xf32> -> tensor<8192xf32>
  %y = nn.layer_norm_grad %g, %x, %m1, %r1 weight %w : tensor<8192x384xf32>, tensor<8192xf32>, weight tensor<384xf32> -> tensor<8192x384xf32>
  %mb = nn.broadcast %m : tensor<8192x1xf32> -> tensor<8192x384xf32>
  %rb = nn.broadcast %r : tensor<8192x1xf32> -> tensor<8192x384xf32>
  %c = nn.sub %x, %mb : tensor<8192x384xf32>
  %n = nn.mul %c, %rb : tensor<8192x384xf32>
  %p = nn.mul %g, %n : tensor<8192x384xf32>
  %pr = nn.reshape %p : tensor<8192x384xf32> -> tensor<128x64x384xf32>
  %dw = nn.reduce sum %pr [1] : tensor<128x64x384xf32> -> tensor<128x1x384xf32>
  %gr = nn.reshape %g : tensor<8192x384xf32> -> tensor<128x64x384xf32>
  %db = nn.reduce sum %gr [1] : tensor<128x64x384xf32> -> tensor<128x1x384xf32>
  return %y, %dw, %db : tensor<8192x384xf32>, tensor<128x1x384xf32>, tensor<128x1x384xf32> }
