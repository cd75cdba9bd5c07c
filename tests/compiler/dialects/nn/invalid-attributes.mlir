// RUN: fsdpc-opt %s --split-input-file --verify-diagnostics

// An unknown name is refused with the nearest known one.
// expected-error @below {{there is no attribute 'nn.kernal' of ops; did you mean 'nn.kernel'?}}
func.func private @f() attributes {nn.kernal}

// -----

// Arguments have no attributes of this dialect.
// expected-error @below {{there is no attribute 'nn.kernel' of arguments}}
func.func @f(%x: tensor<4xf32> {nn.kernel}) {
  return
}

// -----

// Only a function is a kernel.
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{attribute 'nn.kernel' belongs on a function, not on 'nn.exp'}}
  %y = nn.exp %x {nn.kernel} : tensor<4xf32>
  return
}

// -----

// The mark of a kernel has no value.
// expected-error @below {{attribute 'nn.kernel' = "exp" is not a unit attribute}}
func.func private @f() attributes {nn.kernel = "exp"}

// -----

// Only a kernel is the program of an optimizer.
// expected-error @below {{attribute 'nn.optimizer' belongs on a kernel (a function marked 'nn.kernel'), not on 'func.func'}}
func.func private @f() attributes {nn.optimizer}

// -----

// Only a kernel computes rows of an attention.
// expected-error @below {{attribute 'nn.rows' belongs on a kernel (a function marked 'nn.kernel'), not on 'func.func'}}
func.func private @f() attributes {nn.rows}

// -----

// The copy that an optimizer writes has a float type.
// expected-error @below {{attribute 'nn.compute' = "bf16" is not a float type}}
func.func private @f() attributes {nn.kernel, nn.compute = "bf16"}

// -----

// A kernel has a plan of the dialect.
// expected-error @below {{attribute 'nn.plan' = "row" is not a kernel plan}}
func.func private @f() attributes {nn.kernel, nn.plan = "row"}

// -----

// A value that is kept is only marked.
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{attribute 'nn.kept' = true is not a unit attribute}}
  %y = nn.exp %x {nn.kept = true} : tensor<4xf32>
  return
}

// -----

// So is a grid.
// expected-error @below {{attribute 'nn.grid' = 4 : i64 is not a grid}}
func.func private @f() attributes {nn.kernel, nn.grid = 4 : i64}

// -----

// An address is aligned to a positive number of bytes.
// expected-error @below {{attribute 'nn.alignments' = array<i64: 16, 0> is not an i64 array of positive bytes}}
func.func private @f() attributes {nn.kernel, nn.alignments = array<i64: 16, 0>}

// -----

// A library computes library calls alone.
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{attribute 'nn.library' belongs on a library call, not on 'nn.exp'}}
  %y = nn.exp %x {nn.library = "cudnn"} : tensor<4xf32>
  return
}

// -----

// The library is one that the runtime knows.
func.func @f(%x: tensor<4x4xf32>) {
  // expected-error @below {{attribute 'nn.library' = "cublas" is not one of cublaslt, cudnn, own, products}}
  %y = nn.matmul %x, %x {nn.library = "cublas"} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  return
}

// -----

// Only an op that moves elements can do without memory of its own.
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{attribute 'nn.strided' belongs on an op that moves elements, not on 'nn.exp'}}
  %y = nn.exp %x {nn.strided = "operand"} : tensor<4xf32>
  return
}

// -----

// It is read in the operand or written in the result.
func.func @f(%x: tensor<2x4xf32>) {
  // expected-error @below {{attribute 'nn.strided' = "input" is not one of operand, result}}
  %y = nn.transpose %x [1, 0] {nn.strided = "input"} : tensor<2x4xf32> -> tensor<4x2xf32>
  return
}

// -----

// Modules have a form of their own.
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{attribute 'nn.modules' = ["h.0"] is not modules}}
  %y = nn.exp %x {nn.modules = ["h.0"]} : tensor<4xf32>
  return
}

// -----

// Each module has a path and a class.
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{expected ':'}}
  %y = nn.exp %x {nn.modules = #nn.modules<"", "h.0": "Block">} : tensor<4xf32>
  return
}

// -----

// There is one at least.
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{expected string}}
  %y = nn.exp %x {nn.modules = #nn.modules<>} : tensor<4xf32>
  return
}
