// RUN: fsdpc-opt %s --split-input-file --verify-diagnostics

func.func @inner(%a: tensor<2x3xf32>, %b: tensor<4x5xf32>) {
  // expected-error @+1 {{inner dimensions differ: 3 and 4}}
  %0 = nn.matmul %a, %b : tensor<2x3xf32>, tensor<4x5xf32> -> tensor<2x5xf32>
  return
}

// -----

func.func @result(%a: tensor<2x3xf32>, %b: tensor<3x5xf32>) {
  // expected-error @+1 {{result must end in 2x5, but has type 'tensor<5x2xf32>'}}
  %0 = nn.matmul %a, %b : tensor<2x3xf32>, tensor<3x5xf32> -> tensor<5x2xf32>
  return
}

// -----

func.func @batch(%a: tensor<4x2x3xf32>, %b: tensor<7x3x5xf32>) {
  // expected-error @+1 {{do not broadcast to those of 'tensor<4x2x5xf32>'}}
  %0 = nn.matmul %a, %b : tensor<4x2x3xf32>, tensor<7x3x5xf32> -> tensor<4x2x5xf32>
  return
}

// -----

func.func @batch_of_none(%a: tensor<1x2x3xf32>, %b: tensor<3x5xf32>) {
  // expected-error @+1 {{a batch dimension of the result, 4, is not a batch dimension of either operand}}
  %0 = nn.matmul %a, %b : tensor<1x2x3xf32>, tensor<3x5xf32> -> tensor<4x2x5xf32>
  return
}

// -----

func.func @elements(%a: tensor<2x3xf32>, %b: tensor<3x5xbf16>) {
  // expected-error @+1 {{operands differ in element type}}
  %0 = nn.matmul %a, %b : tensor<2x3xf32>, tensor<3x5xbf16> -> tensor<2x5xf32>
  return
}

// -----

func.func @accumulator(%a: tensor<2x3xf32>, %b: tensor<3x5xf32>, %c: tensor<3xf32>) {
  // expected-error @+1 {{accumulator 'tensor<3xf32>' must have the result's type 'tensor<2x5xf32>', or be a row of it, 'tensor<5xf32>'}}
  %0 = nn.matmul %a, %b accumulate %c : tensor<2x3xf32>, tensor<3x5xf32>, accumulate tensor<3xf32> -> tensor<2x5xf32>
  return
}

// -----

func.func @conv_size(%x: tensor<2x4x8x8xf32>, %f: tensor<6x4x3x3xf32>) {
  // expected-error @+1 {{windows over 'tensor<2x4x8x8xf32>' produce 'tensor<2x6x6x6xf32>', not 'tensor<2x6x8x8xf32>'}}
  %y = nn.conv2d %x, %f {dilations = array<i64: 1, 1>, groups = 1 : i64, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : tensor<2x4x8x8xf32>, tensor<6x4x3x3xf32> -> tensor<2x6x8x8xf32>
  return
}

// -----

// The gradient's window moves over the result, not over the operand.
func.func @conv_grad_input_size(%y: tensor<2x6x6x6xf32>, %f: tensor<6x4x3x3xf32>) {
  // expected-error @+1 {{windows over 'tensor<2x4x6x6xf32>' produce 'tensor<2x6x4x4xf32>', not 'tensor<2x6x6x6xf32>'}}
  %x = nn.conv2d_grad_input %y, %f {dilations = array<i64: 1, 1>, groups = 1 : i64, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : tensor<2x6x6x6xf32>, tensor<6x4x3x3xf32> -> tensor<2x4x6x6xf32>
  return
}

// -----

func.func @conv_groups(%x: tensor<2x4x8x8xf32>, %f: tensor<6x4x3x3xf32>) {
  // expected-error @+1 {{filter 'tensor<6x4x3x3xf32>' in 2 groups does not match 4 input channels}}
  %y = nn.conv2d %x, %f {dilations = array<i64: 1, 1>, groups = 2 : i64, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : tensor<2x4x8x8xf32>, tensor<6x4x3x3xf32> -> tensor<2x6x6x6xf32>
  return
}

// -----

func.func @conv_strides(%x: tensor<2x4x8x8xf32>, %f: tensor<6x4x3x3xf32>) {
  // expected-error @+1 {{kernel sizes, strides and dilations must be positive, not 0}}
  %y = nn.conv2d %x, %f {dilations = array<i64: 1, 1>, groups = 1 : i64, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 0, 1>} : tensor<2x4x8x8xf32>, tensor<6x4x3x3xf32> -> tensor<2x6x6x6xf32>
  return
}

// -----

func.func @pool_pads(%x: tensor<2x4x8x8xf32>) {
  // expected-error @+1 {{pad 2 must be smaller than the kernel size 2}}
  %y = nn.avg_pool2d %x {kernel = array<i64: 2, 2>, pads = array<i64: 2, 0, 0, 0>, strides = array<i64: 1, 1>} : tensor<2x4x8x8xf32> -> tensor<2x4x9x7xf32>
  return
}

// -----

func.func @pool_index(%x: tensor<2x4x8x8xf32>) {
  // expected-error @+1 {{index 'tensor<2x4x3x3xi32>' must have the shape of 'tensor<2x4x4x4xf32>'}}
  %y, %i = nn.max_pool2d %x {kernel = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 2, 2>} : tensor<2x4x8x8xf32> -> tensor<2x4x4x4xf32>, tensor<2x4x3x3xi32>
  return
}

// -----

func.func private @other(tensor<3xf32>) -> tensor<3xf32>
func.func @launch_kind(%x: tensor<3xf32>) {
  // expected-error @+1 {{'@other' is not a function marked 'nn.kernel'}}
  %0 = nn.launch @other(%x) : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

// expected-note @+1 {{the kernel has type}}
func.func private @kernel(%x: tensor<3xf32>) -> tensor<3xf32> attributes {nn.kernel} {
  return %x : tensor<3xf32>
}
func.func @launch_type(%x: tensor<4xf32>) {
  // expected-error @+1 {{operands and results do not match the type of kernel '@kernel'}}
  %0 = nn.launch @kernel(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func private @kernel(%x: tensor<3xf32>) -> tensor<3xf32> attributes {nn.kernel} {
  return %x : tensor<3xf32>
}
func.func @launch_tied(%x: tensor<3xf32>) {
  // expected-error @+1 {{result 0 is tied to operand 1, but the op has 1 operands}}
  %0 = nn.launch @kernel(%x) {tied = array<i64: 1>} : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func private @kernel(%x: tensor<3xf32>) -> tensor<3xf32> attributes {nn.kernel} {
  return %x : tensor<3xf32>
}
func.func @launch_tied_count(%x: tensor<3xf32>) {
  // expected-error @+1 {{tied has 2 entries for 1 results}}
  %0 = nn.launch @kernel(%x) {tied = array<i64: 0, -1>} : (tensor<3xf32>) -> tensor<3xf32>
  return
}
