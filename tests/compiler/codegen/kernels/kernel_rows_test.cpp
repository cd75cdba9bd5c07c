// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels with reductions, against the reference interpreter: sums, softmax,
// norms and cross-entropy with their gradients, on rows and columns shorter and
// longer than a vector. kernel_test.cpp says what is compared.
#include "tests/compiler/codegen/kernels/kernel_test.h"

#include <cmath>
#include <cstring>

using namespace mlir;
using namespace fsdpc;

using namespace fsdpc::testing;

namespace {

// Along rows, down columns, over everything and over middle axes.
TEST_P(KernelTest, Reductions) {
  for (const char *kind : {"sum", "max", "min", "prod"})
    for (const char *type : {"f32", "bf16", "i64"}) {
      for (const char *n : kSizes)
        add(expand(
            R"((%x: tensor<3x$Nx$T>) -> tensor<3x1x$T> attributes {nn.kernel} {
          %y = nn.reduce $K %x [1] : tensor<3x$Nx$T> -> tensor<3x1x$T>
          return %y : tensor<3x1x$T> })",
            {{"N", n}, {"T", type}, {"K", kind}}));
      for (const char *n : kSizes)
        add(expand(
            R"((%x: tensor<300x$Nx$T>) -> tensor<1x$Nx$T> attributes {nn.kernel} {
          %y = nn.reduce $K %x [0] : tensor<300x$Nx$T> -> tensor<1x$Nx$T>
          return %y : tensor<1x$Nx$T> })",
            {{"N", n}, {"T", type}, {"K", kind}}));
    }
  // Keeps the middle axis; reduces all; keeps both ends.
  add(R"((%x: tensor<3x5x7x9xf32>) -> tensor<1x5x1x1xf32> attributes {nn.kernel} {
    %y = nn.reduce sum %x [0, 2, 3] : tensor<3x5x7x9xf32> -> tensor<1x5x1x1xf32>
    return %y : tensor<1x5x1x1xf32> })");
  add(R"((%x: tensor<3x5x70xf32>) -> tensor<1x1x1xf32> attributes {nn.kernel} {
    %y = nn.reduce sum %x [0, 1, 2] : tensor<3x5x70xf32> -> tensor<1x1x1xf32>
    return %y : tensor<1x1x1xf32> })");
  add(R"((%x: tensor<3x50x70xf32>) -> tensor<3x1x70xf32> attributes {nn.kernel} {
    %y = nn.reduce sum %x [1] : tensor<3x50x70xf32> -> tensor<3x1x70xf32>
    return %y : tensor<3x1x70xf32> })");
  add(R"((%x: tensor<f32>) -> tensor<f32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<f32>
    return %y : tensor<f32> })");
  // Mean squared error of two operands of different shapes.
  add(R"((%x: tensor<4x33xf32>, %z: tensor<132xf32>) -> tensor<f32> attributes {nn.kernel} {
    %0 = nn.reshape %z : tensor<132xf32> -> tensor<4x33xf32>
    %1 = nn.sub %x, %0 : tensor<4x33xf32>
    %2 = nn.mul %1, %1 : tensor<4x33xf32>
    %3 = nn.reduce sum %2 [0, 1] : tensor<4x33xf32> -> tensor<1x1xf32>
    %4 = nn.reshape %3 : tensor<1x1xf32> -> tensor<f32>
    %5 = nn.constant dense<0.0075757577> : tensor<f32>
    %6 = nn.mul %4, %5 : tensor<f32>
    return %6 : tensor<f32> })");
  runAll();
}

// Rows shorter and longer than a vector, alone and with what attention puts
// before it.
TEST_P(KernelTest, Softmax) {
  for (const char *type : {"f32", "bf16"})
    for (const char *n : kSizes) {
      std::vector<std::pair<std::string, std::string>> t = {{"T", type},
                                                            {"N", n}};
      add(expand(
          R"((%x: tensor<5x$Nx$T>) -> tensor<5x$Nx$T> attributes {nn.kernel} {
        %y = nn.softmax %x : tensor<5x$Nx$T>
        return %y : tensor<5x$Nx$T> })",
          t));
      add(expand(
          R"((%x: tensor<5x$Nx$T>, %g: tensor<5x$Nx$T>) -> tensor<5x$Nx$T> attributes {nn.kernel} {
        %y = nn.softmax_grad %x, %g : tensor<5x$Nx$T>
        return %y : tensor<5x$Nx$T> })",
          t));
      add(expand(
          R"((%x: tensor<5x$Nx$T>) -> tensor<5x$Nx$T> attributes {nn.kernel} {
        %y = nn.log_softmax %x : tensor<5x$Nx$T>
        return %y : tensor<5x$Nx$T> })",
          t));
    }
  // Scale, a causal mask by comparing indices, and softmax in one kernel.
  add(R"((%x: tensor<2x3x17x17xf32>) -> tensor<2x3x17x17xf32> attributes {nn.kernel} {
    %s = nn.constant dense<0.125> : tensor<2x3x17x17xf32>
    %0 = nn.mul %x, %s : tensor<2x3x17x17xf32>
    %q = nn.iota {axis = 2} : tensor<2x3x17x17xi32>
    %k = nn.iota {axis = 3} : tensor<2x3x17x17xi32>
    %c = nn.cmp le %k, %q : tensor<2x3x17x17xi32> -> tensor<2x3x17x17xi1>
    %n = nn.constant dense<0xFF800000> : tensor<2x3x17x17xf32>
    %1 = nn.select %c, %0, %n : tensor<2x3x17x17xi1>, tensor<2x3x17x17xf32>
    %2 = nn.softmax %1 : tensor<2x3x17x17xf32>
    return %2 : tensor<2x3x17x17xf32> })");
  runAll();
}

// Norms and their gradients, with several results of one row.
TEST_P(KernelTest, Norms) {
  for (const char *type : {"f32", "bf16"})
    for (const char *n : {"15", "48", "257"}) {
      std::vector<std::pair<std::string, std::string>> t = {{"T", type},
                                                            {"N", n}};
      add(expand(
          R"((%x: tensor<2x5x$Nx$T>, %w: tensor<$Nx$T>, %b: tensor<$Nx$T>)
        -> (tensor<2x5x$Nx$T>, tensor<2x5xf32>, tensor<2x5xf32>) attributes {nn.kernel} {
        %y:3 = nn.layer_norm %x weight %w bias %b {epsilon = 1.0e-5 : f64} : tensor<2x5x$Nx$T>, weight tensor<$Nx$T>, bias tensor<$Nx$T>
          -> tensor<2x5x$Nx$T>, tensor<2x5xf32>, tensor<2x5xf32>
        return %y#0, %y#1, %y#2 : tensor<2x5x$Nx$T>, tensor<2x5xf32>, tensor<2x5xf32> })",
          t));
      // The residual sum before the norm is also a result.
      add(expand(
          R"((%r: tensor<10x$Nx$T>, %z: tensor<2x5x$Nx$T>, %w: tensor<$Nx$T>, %b: tensor<$Nx$T>)
        -> (tensor<2x5x$Nx$T>, tensor<2x5x$Nx$T>, tensor<2x5xf32>, tensor<2x5xf32>) attributes {nn.kernel} {
        %0 = nn.reshape %r : tensor<10x$Nx$T> -> tensor<2x5x$Nx$T>
        %x = nn.add %0, %z : tensor<2x5x$Nx$T>
        %y:3 = nn.layer_norm %x weight %w bias %b {epsilon = 1.0e-5 : f64} : tensor<2x5x$Nx$T>, weight tensor<$Nx$T>, bias tensor<$Nx$T>
          -> tensor<2x5x$Nx$T>, tensor<2x5xf32>, tensor<2x5xf32>
        return %x, %y#0, %y#1, %y#2 : tensor<2x5x$Nx$T>, tensor<2x5x$Nx$T>, tensor<2x5xf32>, tensor<2x5xf32> })",
          t));
      add(expand(
          R"((%g: tensor<2x5x$Nx$T>, %x: tensor<2x5x$Nx$T>, %m: tensor<2x5xf32>, %r: tensor<2x5xf32>, %w: tensor<$Nx$T>)
        -> tensor<2x5x$Nx$T> attributes {nn.kernel} {
        %y = nn.layer_norm_grad %g, %x, %m, %r weight %w : tensor<2x5x$Nx$T>, tensor<2x5xf32>, weight tensor<$Nx$T> -> tensor<2x5x$Nx$T>
        return %y : tensor<2x5x$Nx$T> })",
          t));
      add(expand(
          R"((%x: tensor<5x$Nx$T>, %w: tensor<$Nx$T>) -> (tensor<5x$Nx$T>, tensor<5xf32>) attributes {nn.kernel} {
        %y:2 = nn.rms_norm %x weight %w {epsilon = 1.0e-6 : f64} : tensor<5x$Nx$T>, weight tensor<$Nx$T> -> tensor<5x$Nx$T>, tensor<5xf32>
        return %y#0, %y#1 : tensor<5x$Nx$T>, tensor<5xf32> })",
          t));
      add(expand(
          R"((%g: tensor<5x$Nx$T>, %x: tensor<5x$Nx$T>, %r: tensor<5xf32>, %w: tensor<$Nx$T>) -> tensor<5x$Nx$T> attributes {nn.kernel} {
        %y = nn.rms_norm_grad %g, %x, %r weight %w : tensor<5x$Nx$T>, tensor<5xf32>, weight tensor<$Nx$T> -> tensor<5x$Nx$T>
        return %y : tensor<5x$Nx$T> })",
          t));
      add(expand(
          R"((%g: tensor<2x5x$Nx$T>, %x: tensor<2x5x$Nx$T>, %m: tensor<2x5xf32>, %r: tensor<2x5xf32>)
        -> tensor<$Nx$T> attributes {nn.kernel} {
        %y = nn.norm_weight_grad %g, %x mean %m rstd %r : tensor<2x5x$Nx$T>, tensor<2x5xf32>, mean tensor<2x5xf32> -> tensor<$Nx$T>
        return %y : tensor<$Nx$T> })",
          t));
    }
  for (const char *type : {"f32", "bf16"}) {
    std::vector<std::pair<std::string, std::string>> t = {{"T", type}};
    add(expand(R"((%x: tensor<3x5x4x7x$T>, %w: tensor<5x$T>, %b: tensor<5x$T>)
      -> (tensor<3x5x4x7x$T>, tensor<5xf32>, tensor<5xf32>) attributes {nn.kernel} {
      %y:3 = nn.batch_norm %x, %w, %b {epsilon = 1.0e-5 : f64} : tensor<3x5x4x7x$T>, tensor<5x$T>
        -> tensor<3x5x4x7x$T>, tensor<5xf32>, tensor<5xf32>
      return %y#0, %y#1, %y#2 : tensor<3x5x4x7x$T>, tensor<5xf32>, tensor<5xf32> })",
               t));
    add(expand(
        R"((%g: tensor<3x5x4x7x$T>, %x: tensor<3x5x4x7x$T>, %w: tensor<5x$T>, %m: tensor<5xf32>, %v: tensor<5xf32> {test.positive})
      -> (tensor<3x5x4x7x$T>, tensor<5x$T>, tensor<5x$T>) attributes {nn.kernel} {
      %y:3 = nn.batch_norm_grad %g, %x, %w, %m, %v {epsilon = 1.0e-5 : f64} : tensor<3x5x4x7x$T>, tensor<5x$T>, tensor<5xf32>
        -> tensor<3x5x4x7x$T>, tensor<5x$T>, tensor<5x$T>
      return %y#0, %y#1, %y#2 : tensor<3x5x4x7x$T>, tensor<5x$T>, tensor<5x$T> })",
        t));
  }
  runAll();
}

// The elements of a row are not adjacent: a batch norm of maps with one
// element, and a value that is kept from one loop over such a row to the next.
TEST_P(KernelTest, RowsOfElementsApart) {
  for (const char *type : {"f32", "bf16"})
    for (const char *size : {"1", "4", "17", "70"}) {
      std::vector<std::pair<std::string, std::string>> t = {{"T", type},
                                                            {"N", size}};
      add(expand(
          R"((%x: tensor<$Nx5x1x1x$T>, %w: tensor<5x$T>, %b: tensor<5x$T>)
        -> (tensor<$Nx5x1x1x$T>, tensor<5xf32>, tensor<5xf32>) attributes {nn.kernel} {
        %y:3 = nn.batch_norm %x, %w, %b {epsilon = 1.0e-1 : f64} : tensor<$Nx5x1x1x$T>, tensor<5x$T>
          -> tensor<$Nx5x1x1x$T>, tensor<5xf32>, tensor<5xf32>
        return %y#0, %y#1, %y#2 : tensor<$Nx5x1x1x$T>, tensor<5xf32>, tensor<5xf32> })",
          t));
      add(expand(
          R"((%g: tensor<$Nx5x1x1x$T>, %x: tensor<$Nx5x1x1x$T>, %w: tensor<5x$T>, %m: tensor<5xf32>, %v: tensor<5xf32> {test.positive})
        -> (tensor<$Nx5x1x1x$T>, tensor<5x$T>, tensor<5x$T>) attributes {nn.kernel} {
        %y:3 = nn.batch_norm_grad %g, %x, %w, %m, %v {epsilon = 1.0e-1 : f64} : tensor<$Nx5x1x1x$T>, tensor<5x$T>, tensor<5xf32>
          -> tensor<$Nx5x1x1x$T>, tensor<5x$T>, tensor<5x$T>
        return %y#0, %y#1, %y#2 : tensor<$Nx5x1x1x$T>, tensor<5x$T>, tensor<5x$T> })",
          t));
    }
  for (const char *inner : {"1", "3", "16", "19"})
    add(expand(
        R"((%x: tensor<200x5x$Ixf32>) -> tensor<200x5x$Ixbf16> attributes {nn.kernel} {
      %e = nn.gelu erf %x : tensor<200x5x$Ixf32>
      %s = nn.reduce max %e [0, 2] : tensor<200x5x$Ixf32> -> tensor<1x5x1xf32>
      %r = nn.broadcast %s : tensor<1x5x1xf32> -> tensor<200x5x$Ixf32>
      %d = nn.sub %e, %r : tensor<200x5x$Ixf32>
      %y = nn.cast %d : tensor<200x5x$Ixf32> -> tensor<200x5x$Ixbf16>
      return %y : tensor<200x5x$Ixbf16> })",
        {{"I", inner}}));
  runAll();
}

// More rows than a thread sums in one block, with columns that fill a grid's
// blocks and columns that do not.
TEST_P(KernelTest, LongColumns) {
  for (const char *columns : {"24", "37", "256"})
    add(expand(
        R"((%x: tensor<12000x$Cxf32>) -> tensor<1x$Cxf32> attributes {nn.kernel} {
      %y = nn.reduce sum %x [0] : tensor<12000x$Cxf32> -> tensor<1x$Cxf32>
      return %y : tensor<1x$Cxf32> })",
        {{"C", columns}}));
  runAll();
}

// Sums over blocks of rows as a by-product of a row kernel and of a map kernel.
TEST_P(KernelTest, RowSums) {
  for (const char *type : {"f32", "bf16"})
    for (const char *size : {"5", "64", "133"}) {
      add(expand(
          R"((%g: tensor<6x8x$Cx$T>, %x: tensor<6x8x$Cx$T>, %m: tensor<6x8xf32>, %r: tensor<6x8xf32>)
        -> (tensor<3x1x$Cxf32>, tensor<6x8x$Cx$T>, tensor<3x1x$Cxf32>) attributes {nn.kernel, test.adds_bf16} {
        %y = nn.layer_norm_grad %g, %x, %m, %r : tensor<6x8x$Cx$T>, tensor<6x8xf32> -> tensor<6x8x$Cx$T>
        %a = nn.cast %y : tensor<6x8x$Cx$T> -> tensor<6x8x$Cxf32>
        %b = nn.reshape %a : tensor<6x8x$Cxf32> -> tensor<3x16x$Cxf32>
        %c = nn.reduce sum %b [1] : tensor<3x16x$Cxf32> -> tensor<3x1x$Cxf32>
        %d = nn.cast %g : tensor<6x8x$Cx$T> -> tensor<6x8x$Cxf32>
        %e = nn.reshape %d : tensor<6x8x$Cxf32> -> tensor<3x16x$Cxf32>
        %f = nn.reduce sum %e [1] : tensor<3x16x$Cxf32> -> tensor<3x1x$Cxf32>
        return %c, %y, %f : tensor<3x1x$Cxf32>, tensor<6x8x$Cx$T>, tensor<3x1x$Cxf32> })",
          {{"C", size}, {"T", type}}));
      add(expand(
          R"((%x: tensor<2x$Cx7x8x$T>) -> (tensor<2x7x8x$Cx$T>, tensor<4x1x$Cxf32>) attributes {nn.kernel} {
        %t = nn.transpose %x [0, 2, 3, 1] : tensor<2x$Cx7x8x$T> -> tensor<2x7x8x$Cx$T>
        %y = nn.gelu erf %t : tensor<2x7x8x$Cx$T>
        %a = nn.cast %y : tensor<2x7x8x$Cx$T> -> tensor<2x7x8x$Cxf32>
        %b = nn.reshape %a : tensor<2x7x8x$Cxf32> -> tensor<4x28x$Cxf32>
        %c = nn.reduce sum %b [1] : tensor<4x28x$Cxf32> -> tensor<4x1x$Cxf32>
        return %y, %c : tensor<2x7x8x$Cx$T>, tensor<4x1x$Cxf32> })",
          {{"C", size}, {"T", type}}));
    }
  // More columns than a block's threads keep sums for.
  add(R"((%x: tensor<2x4x4100xf32>) -> (tensor<2x4x4100xf32>, tensor<2x1x4100xf32>) attributes {nn.kernel} {
    %y = nn.relu %x : tensor<2x4x4100xf32>
    %s = nn.reduce sum %y [1] : tensor<2x4x4100xf32> -> tensor<2x1x4100xf32>
    return %y, %s : tensor<2x4x4100xf32>, tensor<2x1x4100xf32> })");
  runAll();
}

// Rows of which several teams of four warps share a block.
class TeamTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Grid, TeamTest, ::testing::Values(256),
                         ::testing::PrintToStringParamName());

TEST_P(TeamTest, RowsAndTheirSums) {
  for (const char *type : {"f32", "bf16"})
    for (const char *size : {"600", "768", "1024"})
      add(expand(
          R"((%g: tensor<2x16x$Cx$T>, %x: tensor<2x16x$Cx$T>, %m: tensor<2x16xf32>, %r: tensor<2x16xf32>)
        -> (tensor<2x1x$Cxf32>, tensor<2x16x$Cx$T>) attributes {nn.kernel, test.adds_bf16} {
        %y = nn.layer_norm_grad %g, %x, %m, %r : tensor<2x16x$Cx$T>, tensor<2x16xf32> -> tensor<2x16x$Cx$T>
        %d = nn.cast %g : tensor<2x16x$Cx$T> -> tensor<2x16x$Cxf32>
        %f = nn.reduce sum %d [1] : tensor<2x16x$Cxf32> -> tensor<2x1x$Cxf32>
        return %f, %y : tensor<2x1x$Cxf32>, tensor<2x16x$Cx$T> })",
          {{"C", size}, {"T", type}}));
  add(R"((%x: tensor<7x1000xf32>) -> tensor<7x1000xf32> attributes {nn.kernel} {
    %y = nn.softmax %x : tensor<7x1000xf32>
    return %y : tensor<7x1000xf32> })");
  runAll();
}

// Loss and gradient per row, with a weight and a factor for each.
TEST_P(KernelTest, CrossEntropyRows) {
  for (const char *type : {"f32", "bf16"})
    for (const char *n : {"3", "48", "257"})
      add(expand(
          R"((%x: tensor<9x$Nx$T>, %t: tensor<9xi64> {test.bound = 3}, %w: tensor<9xf32>, %f: tensor<9xf32>)
        -> (tensor<9xf32>, tensor<9x$Nx$T>) attributes {nn.kernel} {
        %l, %y = nn.cross_entropy_rows %x, %t, %w, %f : tensor<9x$Nx$T>, tensor<9xi64>, tensor<9xf32>
        return %l, %y : tensor<9xf32>, tensor<9x$Nx$T> })",
          {{"T", type}, {"N", n}}));
  runAll();
}

// Rows so long that a grid takes the maximum and the sum in one loop, with and
// without a vector for each thread.
TEST_P(KernelTest, LongSoftmaxes) {
  for (const char *type : {"f32", "bf16", "f64"})
    for (const char *n : {"1025", "2048", "5000"})
      for (const char *op : {"softmax", "log_softmax"})
        add(expand(
            R"((%x: tensor<3x$Nx$T>) -> tensor<3x$Nx$T> attributes {nn.kernel} {
        %y = nn.$OP %x : tensor<3x$Nx$T>
        return %y : tensor<3x$Nx$T> })",
            {{"T", type}, {"N", n}, {"OP", op}}));
  // Most of a row is masked: the first vectors of every thread are -inf.
  add(R"((%x: tensor<3x3000xf32>) -> tensor<3x3000xf32> attributes {nn.kernel} {
    %i = nn.iota {axis = 1 : i64} : tensor<3x3000xi32>
    %n = nn.constant dense<2900> : tensor<3x3000xi32>
    %c = nn.cmp lt %i, %n : tensor<3x3000xi32> -> tensor<3x3000xi1>
    %m = nn.constant dense<0xFF800000> : tensor<3x3000xf32>
    %s = nn.select %c, %m, %x : tensor<3x3000xi1>, tensor<3x3000xf32>
    %y = nn.softmax %s : tensor<3x3000xf32>
    return %y : tensor<3x3000xf32> })");
  // A row of -inf alone has no softmax, however long it is.
  for (const char *n : {"1000", "3000"})
    add(expand(
        R"((%x: tensor<3x$Nxf32>) -> (tensor<3x$Nxf32>, tensor<3x1xf32>) attributes {nn.kernel} {
    %i = nn.iota {axis = 0 : i64} : tensor<3x$Nxi32>
    %o = nn.constant dense<1> : tensor<3x$Nxi32>
    %c = nn.cmp eq %i, %o : tensor<3x$Nxi32> -> tensor<3x$Nxi1>
    %f = nn.constant dense<0xFF800000> : tensor<3x$Nxf32>
    %x1 = nn.select %c, %f, %x : tensor<3x$Nxi1>, tensor<3x$Nxf32>
    %m = nn.reduce max %x1 [1] : tensor<3x$Nxf32> -> tensor<3x1xf32>
    %0 = nn.broadcast %m : tensor<3x1xf32> -> tensor<3x$Nxf32>
    %1 = nn.sub %x1, %0 : tensor<3x$Nxf32>
    %e = nn.exp %1 : tensor<3x$Nxf32>
    %s = nn.reduce sum %e [1] : tensor<3x$Nxf32> -> tensor<3x1xf32>
    %2 = nn.broadcast %s : tensor<3x1xf32> -> tensor<3x$Nxf32>
    %y = nn.div %e, %2 : tensor<3x$Nxf32>
    return %y, %s : tensor<3x$Nxf32>, tensor<3x1xf32> })",
        {{"N", n}}));
  add(R"((%x: tensor<3x17000xbf16>, %t: tensor<3xi64> {test.bound = 17000}, %w: tensor<3xf32>, %f: tensor<3xf32>)
    -> (tensor<3xf32>, tensor<3x17000xbf16>) attributes {nn.kernel} {
    %l, %y = nn.cross_entropy_rows %x, %t, %w, %f : tensor<3x17000xbf16>, tensor<3xi64>, tensor<3xf32>
    return %l, %y : tensor<3xf32>, tensor<3x17000xbf16> })");
  runAll();
}

// Targets from -1, the ignored index.
TEST_P(KernelTest, CrossEntropyGrad) {
  for (const char *type : {"f32", "bf16"})
    for (const char *n : {"3", "48", "257"})
      add(expand(
          R"((%g: tensor<f32>, %x: tensor<9x$Nx$T>, %t: tensor<9xi64> {test.bound = 4, test.low = -1}, %l: tensor<9xf32>, %v: tensor<f32> {test.positive})
        -> tensor<9x$Nx$T> attributes {nn.kernel} {
        %y = nn.cross_entropy_grad mean %g, %x, %t, %l, %v {ignore_index = -1} : tensor<f32>, tensor<9x$Nx$T>, tensor<9xi64>, tensor<9xf32> -> tensor<9x$Nx$T>
        return %y : tensor<9x$Nx$T> })",
          {{"T", type}, {"N", n}}));
  // cross_entropy as the two kernels that outline-kernels makes.
  add(R"((%x: tensor<9x50xf32>, %t: tensor<9xi64> {test.bound = 50}) -> (tensor<9xf32>, tensor<9x1xf32>) attributes {nn.kernel} {
    %m = nn.reduce max %x [1] : tensor<9x50xf32> -> tensor<9x1xf32>
    %0 = nn.broadcast %m : tensor<9x1xf32> -> tensor<9x50xf32>
    %1 = nn.sub %x, %0 : tensor<9x50xf32>
    %2 = nn.exp %1 : tensor<9x50xf32>
    %s = nn.reduce sum %2 [1] : tensor<9x50xf32> -> tensor<9x1xf32>
    %3 = nn.log %s : tensor<9x1xf32>
    %4 = nn.add %m, %3 : tensor<9x1xf32>
    %i = nn.reshape %t : tensor<9xi64> -> tensor<9x1xi64>
    %p = nn.take_along_axis %x, %i : tensor<9x50xf32>, tensor<9x1xi64> -> tensor<9x1xf32>
    %5 = nn.sub %4, %p : tensor<9x1xf32>
    %6 = nn.reshape %4 : tensor<9x1xf32> -> tensor<9xf32>
    return %6, %5 : tensor<9xf32>, tensor<9x1xf32> })");
  runAll();
}

// Loss and gradient of a row in one kernel. The gradient may overwrite the
// logits and must then have the same bits.
TEST_P(KernelTest, CrossEntropyInPlace) {
  for (const char *type : {"f32", "bf16"})
    for (const char *size : {"17", "133"})
      add(expand(
          R"((%a: tensor<7x$Cx$T>, %t: tensor<7x1xi64> {test.bound = 17}) -> (tensor<7x$Cx$T>, tensor<7x1xf32>) attributes {nn.kernel} {
        %x = nn.cast %a : tensor<7x$Cx$T> -> tensor<7x$Cxf32>
        %m = nn.reduce max %x [1] : tensor<7x$Cxf32> -> tensor<7x1xf32>
        %b = nn.broadcast %m : tensor<7x1xf32> -> tensor<7x$Cxf32>
        %d = nn.sub %x, %b : tensor<7x$Cxf32>
        %e = nn.exp %d : tensor<7x$Cxf32>
        %s = nn.reduce sum %e [1] : tensor<7x$Cxf32> -> tensor<7x1xf32>
        %l = nn.log %s : tensor<7x1xf32>
        %z = nn.add %m, %l : tensor<7x1xf32>
        %p = nn.take_along_axis %x, %t : tensor<7x$Cxf32>, tensor<7x1xi64> -> tensor<7x1xf32>
        %loss = nn.sub %z, %p : tensor<7x1xf32>
        %c = nn.broadcast %s : tensor<7x1xf32> -> tensor<7x$Cxf32>
        %q = nn.div %e, %c : tensor<7x$Cxf32>
        %k = nn.iota {axis = 1} : tensor<7x$Cxi64>
        %u = nn.broadcast %t : tensor<7x1xi64> -> tensor<7x$Cxi64>
        %h = nn.cmp eq %k, %u : tensor<7x$Cxi64> -> tensor<7x$Cxi1>
        %one = nn.constant dense<1.0> : tensor<7x$Cxf32>
        %zero = nn.constant dense<0.0> : tensor<7x$Cxf32>
        %o = nn.select %h, %one, %zero : tensor<7x$Cxi1>, tensor<7x$Cxf32>
        %g = nn.sub %q, %o : tensor<7x$Cxf32>
        %y = nn.cast %g : tensor<7x$Cxf32> -> tensor<7x$Cx$T>
        return %y, %loss : tensor<7x$Cx$T>, tensor<7x1xf32> })",
          {{"C", size}, {"T", type}}));
  LoadedKernels loaded(context, text, "native", GetParam());
  for (func::FuncOp kernel : loaded.kernels()) {
    EXPECT_EQ("", checkKernel(loaded, kernel));
    uint64_t state = 5;
    std::vector<Buffer> b;
    for (Type type : {kernel.getArgumentTypes()[0],
                      kernel.getArgumentTypes()[1], kernel.getResultTypes()[0],
                      kernel.getResultTypes()[1], kernel.getResultTypes()[1]}) {
      auto tensor = cast<RankedTensorType>(type);
      b.emplace_back(tensor).fill(randomTensor(tensor, 17, state));
    }
    void *apart[] = {b[0].data(), b[1].data(), b[2].data(), b[3].data()};
    void *over[] = {b[0].data(), b[1].data(), b[0].data(), b[4].data()};
    loaded.run(kernel.getSymName(), 0, loaded.extent(kernel), apart);
    loaded.run(kernel.getSymName(), 0, loaded.extent(kernel), over);
    EXPECT_TRUE(b[0] == b[2] && b[3] == b[4]) << kernel.getSymName().str();
  }
}

} // namespace
