// RUN: fsdpc-opt %s --split-input-file --verify-diagnostics

func.func @dynamic(%x: tensor<?xf32>) {
  // expected-error @+1 {{must be statically shaped tensor}}
  %0 = nn.neg %x : tensor<?xf32>
  return
}

// -----

func.func @select(%c: tensor<2xi1>, %x: tensor<3xf32>) {
  // expected-error @+1 {{condition 'tensor<2xi1>' does not have the shape of the result 'tensor<3xf32>'}}
  %0 = nn.select %c, %x, %x : tensor<2xi1>, tensor<3xf32>
  return
}

// -----

func.func @dropout(%x: tensor<3xf32>, %r: tensor<4xi32>) {
  // expected-error @+1 {{ratio must be in [0, 1), not 1}}
  %0 = nn.dropout %x, %r {op = 0 : i64, ratio = 1.0 : f64} : tensor<3xf32>, tensor<4xi32>
  return
}

// -----

func.func @uniform_key(%r: tensor<3xi32>) {
  // expected-error @below {{random must be tensor<4xi32>, not 'tensor<3xi32>'}}
  %0 = nn.uniform %r {op = 0 : i64} : tensor<3xi32> -> tensor<3xf32>
  return
}

// -----

func.func @dropout_key(%x: tensor<3xf32>, %r: tensor<3xi32>) {
  // expected-error @+1 {{random must be tensor<4xi32>, not 'tensor<3xi32>'}}
  %0 = nn.dropout %x, %r {op = 0 : i64, ratio = 0.5 : f64} : tensor<3xf32>, tensor<3xi32>
  return
}

// -----

func.func @iota() {
  // expected-error @+1 {{axis 2 is out of range for 2 dimensions}}
  %0 = nn.iota {axis = 2 : i64} : tensor<2x3xi64>
  return
}

// -----

func.func @broadcast(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{cannot broadcast 'tensor<2x3xf32>' to 'tensor<2x4xf32>'}}
  %0 = nn.broadcast %x : tensor<2x3xf32> -> tensor<2x4xf32>
  return
}

// -----

func.func @broadcast_element(%x: tensor<3xf32>) {
  // expected-error @+1 {{input and result differ in element type}}
  %0 = nn.broadcast %x : tensor<3xf32> -> tensor<2x3xi64>
  return
}

// -----

func.func @reshape(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{differ in number of elements}}
  %0 = nn.reshape %x : tensor<2x3xf32> -> tensor<5xf32>
  return
}

// -----

func.func @transpose_twice(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{[1, 1] is not a permutation of the axes}}
  %0 = nn.transpose %x [1, 1] : tensor<2x2xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @transpose_shape(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{dimension 0 of the result is 2, dimension 1 of the input 3}}
  %0 = nn.transpose %x [1, 0] : tensor<2x3xf32> -> tensor<2x3xf32>
  return
}

// -----

func.func @slice_outside(%x: tensor<5xf32>) {
  // expected-error @+1 {{3 indices from 1 by 2 of dimension 0 are out of bounds for its 5 elements}}
  %0 = nn.slice %x [1] by [2] : tensor<5xf32> -> tensor<3xf32>
  return
}

// -----

// An index beyond 2^63 must not wrap around to one within the tensor: here to 2.
func.func @slice_overflow(%x: tensor<8xf32>) {
  // expected-error @+1 {{3 indices from 6 by 9223372036854775806 of dimension 0 are out of bounds for its 8 elements}}
  %0 = nn.slice %x [6] by [9223372036854775806] : tensor<8xf32> -> tensor<3xf32>
  return
}

// -----

func.func @slice_stride(%x: tensor<5xf32>) {
  // expected-error @+1 {{stride of dimension 0 is 0}}
  %0 = nn.slice %x [1] by [0] : tensor<5xf32> -> tensor<3xf32>
  return
}

// -----

func.func @pad_outside(%x: tensor<3xf32>) {
  // expected-error @+1 {{3 indices from 1 by -1 of dimension 0 are out of bounds for its 5 elements}}
  %0 = nn.pad %x [1] by [-1] : tensor<3xf32> -> tensor<5xf32>
  return
}

// -----

func.func @concat_length(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{inputs have 6 elements along axis 1, the result 5}}
  %0 = nn.concat %x, %x {axis = 1 : i64} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @concat_shape(%x: tensor<2x3xf32>, %y: tensor<1x3xf32>) {
  // expected-error @+1 {{input 1, 'tensor<1x3xf32>', does not match the result 'tensor<2x6xf32>' along axis 1}}
  %0 = nn.concat %x, %y {axis = 1 : i64} : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @reduce_shape(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{result must be 'tensor<2x1xf32>', not 'tensor<2xf32>'}}
  %0 = nn.reduce sum %x [1] : tensor<2x3xf32> -> tensor<2xf32>
  return
}

// -----

func.func @reduce_axes(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{axes must be strictly increasing, but 0 follows 1}}
  %0 = nn.reduce sum %x [1, 0] : tensor<2x3xf32> -> tensor<1x1xf32>
  return
}

// -----

func.func @take_along_axis(%x: tensor<2x3xf32>, %i: tensor<2xi64>) {
  // expected-error @+1 {{must have the shape of 'tensor<2x1xf32>'}}
  %0 = nn.take_along_axis %x, %i : tensor<2x3xf32>, tensor<2xi64> -> tensor<2x1xf32>
  return
}

// -----

func.func @embedding_padding(%t: tensor<9x4xf32>, %i: tensor<2xi64>) {
  // expected-error @+1 {{padding_index 9 is out of range for the table's 9 rows}}
  %0 = nn.embedding %t, %i {padding_index = 9 : i64} : tensor<9x4xf32>, tensor<2xi64> -> tensor<2x4xf32>
  return
}

// -----

func.func @embedding_rows(%t: tensor<9x4xf32>, %i: tensor<2xi64>) {
  // expected-error @+1 {{rows 'tensor<2x5xf32>' do not match ids 'tensor<2xi64>' and table 'tensor<9x4xf32>'}}
  %0 = nn.embedding %t, %i : tensor<9x4xf32>, tensor<2xi64> -> tensor<2x5xf32>
  return
}
