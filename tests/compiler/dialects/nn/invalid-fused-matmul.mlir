// RUN: fsdpc-opt %s --split-input-file --verify-diagnostics

func.func @plain(%a: tensor<2x3xbf16>, %b: tensor<3x8xbf16>) {
  // expected-error @+1 {{has no epilogue, bias or addend; use nn.matmul}}
  %0 = nn.fused_matmul none %a, %b : (tensor<2x3xbf16>, tensor<3x8xbf16>) -> tensor<2x8xbf16>
  return
}

// -----

func.func @inner(%a: tensor<2x3xbf16>, %b: tensor<4x8xbf16>) {
  // expected-error @+1 {{inner dimensions differ: 3 and 4}}
  %0 = nn.fused_matmul gelu %a, %b : (tensor<2x3xbf16>, tensor<4x8xbf16>) -> tensor<2x8xbf16>
  return
}

// -----

func.func @elements(%a: tensor<2x3xbf16>, %b: tensor<3x8xbf16>) {
  // expected-error @+1 {{operands and result differ in element type: 'tensor<2x3xbf16>' and 'tensor<2x8xf32>'}}
  %0 = nn.fused_matmul gelu %a, %b : (tensor<2x3xbf16>, tensor<3x8xbf16>) -> tensor<2x8xf32>
  return
}

// -----

func.func @transposed_batch(%a: tensor<2x4x3xbf16>, %b: tensor<4x8xbf16>) {
  // expected-error @+1 {{needs one matrix as the right operand, and as the left if it is transposed}}
  %0 = nn.fused_matmul gelu %a, %b {transpose_a} : (tensor<2x4x3xbf16>, tensor<4x8xbf16>) -> tensor<2x3x8xbf16>
  return
}

// -----

func.func @batch(%a: tensor<2x3x4xbf16>, %b: tensor<2x4x8xbf16>) {
  // expected-error @+1 {{needs one matrix as the right operand}}
  %0 = nn.fused_matmul gelu %a, %b : (tensor<2x3x4xbf16>, tensor<2x4x8xbf16>) -> tensor<2x3x8xbf16>
  return
}

// -----

func.func @rows(%a: tensor<2x3xbf16>, %b: tensor<3x12xbf16>) {
  // expected-error @+1 {{has rows of 12 elements, but 'gelu' needs a multiple of 8}}
  %0 = nn.fused_matmul gelu %a, %b : (tensor<2x3xbf16>, tensor<3x12xbf16>) -> tensor<2x12xbf16>
  return
}

// -----

func.func @bias(%a: tensor<2x3xbf16>, %b: tensor<3x8xbf16>, %bias: tensor<2xbf16>) {
  // expected-error @+1 {{bias 'tensor<2xbf16>' must be a row of the result, 'tensor<8xbf16>'}}
  %0 = nn.fused_matmul gelu %a, %b bias %bias : (tensor<2x3xbf16>, tensor<3x8xbf16>, tensor<2xbf16>) -> tensor<2x8xbf16>
  return
}

// -----

func.func @addend(%a: tensor<2x3xbf16>, %b: tensor<3x8xbf16>, %row: tensor<8xbf16>) {
  // expected-error @+1 {{operand 'tensor<8xbf16>' must have the result's type 'tensor<2x8xbf16>'}}
  %0 = nn.fused_matmul none %a, %b plus %row : (tensor<2x3xbf16>, tensor<3x8xbf16>, tensor<8xbf16>) -> tensor<2x8xbf16>
  return
}

// -----

func.func @no_input(%a: tensor<2x3xbf16>, %b: tensor<3x8xbf16>) {
  // expected-error @+1 {{has an input with 'gelu_grad', and only there}}
  %0 = nn.fused_matmul gelu_grad %a, %b : (tensor<2x3xbf16>, tensor<3x8xbf16>) -> tensor<2x8xbf16>
  return
}

// -----

func.func @biased_gradient(%a: tensor<2x3xbf16>, %b: tensor<3x8xbf16>, %x: tensor<2x8xbf16>, %bias: tensor<8xbf16>) {
  // expected-error @+1 {{has a bias or an addend, which 'gelu_grad' does not take}}
  %0 = nn.fused_matmul gelu_grad %a, %b bias %bias input %x : (tensor<2x3xbf16>, tensor<3x8xbf16>, tensor<8xbf16>, tensor<2x8xbf16>) -> tensor<2x8xbf16>
  return
}

// -----

func.func @sum(%a: tensor<3x2xbf16>, %b: tensor<3x8xbf16>) {
  // expected-error @+1 {{with the epilogue 'sum_lhs' has a second result of type 'tensor<2xbf16>'}}
  %0:2 = nn.fused_matmul sum_lhs %a, %b {transpose_a} : (tensor<3x2xbf16>, tensor<3x8xbf16>) -> (tensor<2x8xbf16>, tensor<8xbf16>)
  return
}

// -----

func.func @extra(%a: tensor<2x3xbf16>, %b: tensor<3x8xbf16>, %c: tensor<2x8xbf16>) {
  // expected-error @+1 {{with the epilogue 'none' has one result}}
  %0:2 = nn.fused_matmul none %a, %b plus %c : (tensor<2x3xbf16>, tensor<3x8xbf16>, tensor<2x8xbf16>) -> (tensor<2x8xbf16>, tensor<2x8xbf16>)
  return
}
