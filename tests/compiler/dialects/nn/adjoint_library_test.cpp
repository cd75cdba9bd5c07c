// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adjoints of matrix products, convolution and pooling against central
// differences (adjoint_test.h), with all transpositions, broadcasts over batch
// axes, strides, dilations and groups.
#include "tests/compiler/dialects/nn/adjoint_test.h"

#include "gtest/gtest.h"

namespace fsdpc::test {

struct MatmulForm {
  bool transposeA, transposeB;
};

class MatmulAdjoint : public testing::TestWithParam<MatmulForm> {
protected:
  // The arguments are the batch axes of both operands and of the result.
  void check(std::vector<int64_t> a, std::vector<int64_t> b,
             std::vector<int64_t> c, bool accumulates, Shapes &s,
             unsigned seed) {
    auto [ta, tb] = GetParam();
    int64_t m = s.size(), k = s.size(), n = s.size();
    a.insert(a.end(), {ta ? k : m, ta ? m : k});
    b.insert(b.end(), {tb ? n : k, tb ? k : n});
    c.insert(c.end(), {m, n});
    std::string lhs = tensor(a), rhs = tensor(b), result = tensor(c);
    std::string flags = std::string(" {") + (ta ? "transpose_a" : "") +
                        (ta && tb ? ", " : "") + (tb ? "transpose_b" : "") +
                        "} : ";
    checkAdjoint(
        "%a: " + lhs + ", %b: " + rhs + ", %c: " + result,
        std::string("%y = nn.matmul %a, %b") +
            (accumulates ? " accumulate %c" : "") + flags + lhs + ", " + rhs +
            (accumulates ? ", accumulate " + result : "") + " -> " + result,
        result, seed);
  }
};

TEST_P(MatmulAdjoint, OfMatrices) {
  forSeeds(
      [&](Shapes &s, unsigned seed) { check({}, {}, {}, s.coin(), s, seed); });
}

// A weight that all batch entries share gets the sum of their gradients.
TEST_P(MatmulAdjoint, OfBatchAndSharedMatrix) {
  forSeeds([&](Shapes &s, unsigned seed) {
    int64_t x = s.size(3), y = s.size(3);
    check({x, y}, {}, {x, y}, s.coin(), s, seed);
    check({}, {x, y}, {x, y}, s.coin(), s, seed);
  });
}

// A bias is an accumulated operand that broadcasts over rows.
TEST_P(MatmulAdjoint, OfBias) {
  forSeeds([&](Shapes &s, unsigned seed) {
    auto [ta, tb] = GetParam();
    int64_t x = s.size(3), m = s.size(), k = s.size(), n = s.size();
    auto matrix = [](int64_t rows, int64_t columns, bool transposed) {
      return transposed ? std::vector{columns, rows}
                        : std::vector{rows, columns};
    };
    std::vector<int64_t> a = matrix(m, k, ta);
    a.insert(a.begin(), x);
    std::string lhs = tensor(a), rhs = tensor(matrix(k, n, tb)),
                bias = tensor({n}), result = tensor({x, m, n});
    checkAdjoint("%a: " + lhs + ", %b: " + rhs + ", %c: " + bias,
                 "%y = nn.matmul %a, %b accumulate %c {" +
                     std::string(ta ? "transpose_a" : "") +
                     (ta && tb ? ", " : "") + (tb ? "transpose_b" : "") +
                     "} : " + lhs + ", " + rhs + ", accumulate " + bias +
                     " -> " + result,
                 result, seed);
  });
}

// Batch axes that broadcast on either side.
TEST_P(MatmulAdjoint, OfBatches) {
  forSeeds([&](Shapes &s, unsigned seed) {
    int64_t x = s.size(3), y = s.size(3);
    check({x, y}, {x, y}, {x, y}, false, s, seed);
    check({x, 1}, {1, y}, {x, y}, false, s, seed);
    check({x, y}, {y}, {x, y}, false, s, seed);
    check({1, 1}, {x, y}, {x, y}, true, s, seed);
  });
}

INSTANTIATE_TEST_SUITE_P(Transposes, MatmulAdjoint,
                         testing::Values(MatmulForm{false, false},
                                         MatmulForm{false, true},
                                         MatmulForm{true, false},
                                         MatmulForm{true, true}));

// Windows over an image: how attributes are spelled, and the output's size.
struct Window {
  int64_t kernel[2], strides[2], pads[4], dilations[2] = {1, 1};

  int64_t output(int64_t input, int axis) const {
    return (input + pads[axis] + pads[axis + 2] -
            dilations[axis] * (kernel[axis] - 1) - 1) /
               strides[axis] +
           1;
  }
  template <size_t N>
  static std::string array(const char *name, const int64_t (&values)[N]) {
    std::string text = std::string(name) + " = array<i64: ";
    for (size_t i = 0; i < N; ++i)
      text += (i ? ", " : "") + std::to_string(values[i]);
    return text + ">";
  }
};

const Window kWindows[] = {
    {{1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}},
    {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
    {{3, 2}, {2, 1}, {1, 0, 0, 1}, {1, 1}},
    {{2, 3}, {1, 2}, {0, 2, 1, 0}, {2, 1}},
};

// Each window with one or two groups: the convolution, and the transposed one,
// which is the cotangent of its input and has an adjoint of its own.
TEST(Adjoint, Conv2d) {
  for (const Window &window : kWindows)
    forSeeds([&](Shapes &s, unsigned seed) {
      int64_t batch = s.size(2), groups = s.size(2), in = s.size(2),
              out = s.size(2), height = 3 + s.size(3), width = 3 + s.size(3);
      std::string x = tensor({batch, groups * in, height, width}),
                  f = tensor(
                      {groups * out, in, window.kernel[0], window.kernel[1]}),
                  y = tensor({batch, groups * out, window.output(height, 0),
                              window.output(width, 1)});
      std::string attributes = Window::array("strides", window.strides) + ", " +
                               Window::array("pads", window.pads) + ", " +
                               Window::array("dilations", window.dilations) +
                               ", groups = " + std::to_string(groups) +
                               " : i64";
      checkAdjoint("%x: " + x + ", %f: " + f,
                   "%y = nn.conv2d %x, %f {" + attributes + "} : " + x + ", " +
                       f + " -> " + y,
                   y, seed);
      checkAdjoint("%x: " + y + ", %f: " + f,
                   "%y = nn.conv2d_grad_input %x, %f {" + attributes +
                       "} : " + y + ", " + f + " -> " + x,
                   x, seed);
    });
}

// Maximum, and average with and without counting padding. Pooling has no
// dilations.
TEST(Adjoint, Pooling) {
  for (Window window : kWindows)
    forSeeds([&](Shapes &s, unsigned seed) {
      window.dilations[0] = window.dilations[1] = 1;
      int64_t batch = s.size(2), channels = s.size(3), height = 3 + s.size(3),
              width = 3 + s.size(3);
      std::vector<int64_t> outputs = {batch, channels, window.output(height, 0),
                                      window.output(width, 1)};
      std::string x = tensor({batch, channels, height, width}),
                  y = tensor(outputs);
      std::string attributes = Window::array("kernel", window.kernel) + ", " +
                               Window::array("strides", window.strides) + ", " +
                               Window::array("pads", window.pads);
      checkAdjoint("%x: " + x,
                   "%y, %i = nn.max_pool2d %x {" + attributes + "} : " + x +
                       " -> " + y + ", " + tensor(outputs, "i32"),
                   y, seed);
      for (const char *count : {"", ", count_padding"})
        checkAdjoint("%x: " + x,
                     "%y = nn.avg_pool2d %x {" + attributes + count +
                         "} : " + x + " -> " + y,
                     y, seed);
    });
}

} // namespace fsdpc::test
