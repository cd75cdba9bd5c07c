// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adjoints of ops that move or select elements, and of reductions, against
// central differences (adjoint_test.h). The adjoint of a move is the reverse
// move; where elements are repeated, it sums.
#include "tests/compiler/dialects/nn/adjoint_test.h"

#include "gtest/gtest.h"

namespace fsdpc::test {

// From a scalar to the full shape; the adjoint sums over what was repeated.
TEST(Adjoint, Broadcast) {
  forSeeds([](Shapes &s, unsigned seed) {
    int64_t a = s.size(), b = s.size(), c = s.size();
    std::string to = tensor({a, b, c});
    for (const std::string &from :
         {tensor({}), tensor({c}), tensor({1}), tensor({b, 1}),
          tensor({1, 1, c}), tensor({a, 1, c}), to})
      checkAdjoint("%x: " + from,
                   "%y = nn.broadcast %x : " + from + " -> " + to, to, seed);
  });
}

// Broadcasts to any rank: some leading dimensions are new, and some others were
// 1.
TEST(Adjoint, BroadcastOfAnyRank) {
  forSeeds([](Shapes &s, unsigned seed) {
    std::vector<int64_t> to = s.shape();
    std::vector<int64_t> from(to.begin() + (s.size(to.size() + 1) - 1),
                              to.end());
    for (int64_t &size : from)
      size = s.coin() ? 1 : size;
    checkAdjoint("%x: " + tensor(from),
                 "%y = nn.broadcast %x : " + tensor(from) + " -> " + tensor(to),
                 tensor(to), seed);
  });
}

// Sizes of 1 come and go.
TEST(Adjoint, Reshape) {
  forSeeds([](Shapes &s, unsigned seed) {
    int64_t a = s.size(), b = s.size(), c = s.size();
    std::string from = tensor({a, b, c}), to = tensor({a * b, 1, c});
    checkAdjoint("%x: " + from, "%y = nn.reshape %x : " + from + " -> " + to,
                 to, seed);
  });
}

// The adjoint is the inverse permutation; all three axes move, so that it
// differs from the permutation.
TEST(Adjoint, Transpose) {
  forSeeds([](Shapes &s, unsigned seed) {
    int64_t a = s.size(), b = s.size(), c = s.size();
    std::string from = tensor({a, b, c}), to = tensor({c, a, b});
    checkAdjoint("%x: " + from,
                 "%y = nn.transpose %x [2, 0, 1] : " + from + " -> " + to, to,
                 seed);
  });
}

TEST(Adjoint, TransposeOfAnyRank) {
  forSeeds([](Shapes &s, unsigned seed) {
    std::vector<int64_t> from = s.shape(), to;
    std::vector<int64_t> permutation = s.permutation(from.size());
    for (int64_t axis : permutation)
      to.push_back(from[axis]);
    checkAdjoint("%x: " + tensor(from),
                 "%y = nn.transpose %x " + list(permutation) + " : " +
                     tensor(from) + " -> " + tensor(to),
                 tensor(to), seed);
  });
}

// Each is the other's adjoint, with strides and offsets.
TEST(Adjoint, SliceAndPad) {
  forSeeds([](Shapes &s, unsigned seed) {
    int64_t rows = s.size(), columns = s.size();
    std::string whole = tensor({rows + 2, 2 * columns + 1}),
                part = tensor({rows, columns});
    // Rows from 1 on, and every second column in reverse.
    std::string places =
        " [1, " + std::to_string(2 * columns - 1) + "] by [1, -2] : ";
    checkAdjoint("%x: " + whole,
                 "%y = nn.slice %x" + places + whole + " -> " + part, part,
                 seed);
    checkAdjoint("%x: " + part,
                 "%y = nn.pad %x" + places + part + " -> " + whole, whole,
                 seed);
  });
}

// The same operand twice gets the sum of both gradients.
TEST(Adjoint, Concat) {
  forSeeds([](Shapes &s, unsigned seed) {
    int64_t rows = s.size(), a = s.size(), b = s.size();
    std::string left = tensor({rows, a}), right = tensor({rows, b}),
                to = tensor({rows, a + b + a});
    checkAdjoint("%a: " + left + ", %b: " + right,
                 "%y = nn.concat %a, %b, %a {axis = 1 : i64} : (" + left +
                     ", " + right + ", " + left + ") -> " + to,
                 to, seed);
  });
}

class ReduceAdjoint : public testing::TestWithParam<const char *> {};

// Over two axes that are not adjacent.
TEST_P(ReduceAdjoint, MatchesCentralDifferences) {
  forSeeds([](Shapes &s, unsigned seed) {
    int64_t a = s.size(), b = s.size(), c = s.size();
    std::string from = tensor({a, b, c}), to = tensor({1, b, 1});
    checkAdjoint("%x: " + from,
                 std::string("%y = nn.reduce ") + GetParam() +
                     " %x [0, 2] : " + from + " -> " + to,
                 to, seed);
  });
}

// Over some axes of a tensor of any rank. The largest element of none is
// undefined.
TEST_P(ReduceAdjoint, OfAnyRank) {
  forSeeds([](Shapes &s, unsigned seed) {
    std::vector<int64_t> from = s.shape(), axes;
    std::string kind = GetParam();
    if (kind == "max" || kind == "min")
      std::replace(from.begin(), from.end(), 0, 1);
    std::vector<int64_t> to = from;
    for (size_t axis = 0; axis < from.size(); ++axis)
      if (s.coin()) {
        axes.push_back(int64_t(axis));
        to[axis] = 1;
      }
    checkAdjoint("%x: " + tensor(from),
                 "%y = nn.reduce " + kind + " %x " + list(axes) + " : " +
                     tensor(from) + " -> " + tensor(to),
                 tensor(to), seed);
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, ReduceAdjoint,
                         testing::Values("sum", "max", "min", "prod"));

// One element of each row gets the cotangent, the others 0.
TEST(Adjoint, TakeAlongAxis) {
  forSeeds([](Shapes &s, unsigned seed) {
    int64_t rows = s.size(), columns = s.size();
    std::string from = tensor({rows, columns}), to = tensor({rows, 1}),
                index = tensor({rows, 1}, "i64");
    checkAdjoint("%x: " + from + ", %i: " + index +
                     " {test.bound = " + std::to_string(columns) + "}",
                 "%y = nn.take_along_axis %x, %i : " + from + ", " + index +
                     " -> " + to,
                 to, seed);
  });
}

// Rows that occur several times get the sum of their gradients.
TEST(Adjoint, Embedding) {
  forSeeds([](Shapes &s, unsigned seed) {
    int64_t rows = s.size(), width = s.size(), batch = s.size();
    std::string table = tensor({rows, width}), ids = tensor({batch, 7}, "i64"),
                to = tensor({batch, 7, width});
    checkAdjoint("%t: " + table + ", %i: " + ids +
                     " {test.bound = " + std::to_string(rows) + "}",
                 "%y = nn.embedding %t, %i : " + table + ", " + ids + " -> " +
                     to,
                 to, seed);
  });
}

// Scattered updates: each gets the gradient of the row to which it was added.
TEST(Adjoint, EmbeddingGrad) {
  forSeeds([](Shapes &s, unsigned seed) {
    int64_t rows = s.size(), width = s.size(), batch = s.size();
    std::string to = tensor({rows, width}), ids = tensor({batch, 7}, "i64"),
                from = tensor({batch, 7, width});
    checkAdjoint("%x: " + from + ", %i: " + ids +
                     " {test.bound = " + std::to_string(rows) + "}",
                 "%y = nn.embedding_grad %x, %i : " + from + ", " + ids +
                     " -> " + to,
                 to, seed);
  });
}

} // namespace fsdpc::test
