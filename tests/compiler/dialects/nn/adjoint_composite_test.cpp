// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adjoints of softmax, norms, attention and losses against central differences
// (adjoint_test.h). Composites keep an adjoint of their own, so each form is
// tested, with and without its optional operands.
#include "tests/compiler/dialects/nn/adjoint_test.h"

#include "gtest/gtest.h"

namespace fsdpc::test {

// Rows are the last axis, whatever the rank.
TEST(Adjoint, SoftmaxAndLogSoftmax) {
  forSeeds([](Shapes &s, unsigned seed) {
    std::string type = tensor({s.size(), s.size(), s.size(7)});
    for (const char *op : {"softmax", "log_softmax"})
      checkAdjoint("%x: " + type,
                   std::string("%y = nn.") + op + " %x : " + type, type, seed);
  });
}

// With weight and bias, with weight only, with neither.
TEST(Adjoint, LayerNorm) {
  for (bool weighted : {false, true})
    for (bool biased : {false, weighted})
      forSeeds([&](Shapes &s, unsigned seed) {
        int64_t batch = s.size(), rows = s.size(), width = s.size(7) + 1;
        std::string x = tensor({batch, rows, width}), w = tensor({width}),
                    statistic = tensor({batch, rows});
        checkAdjoint("%x: " + x + ", %w: " + w + ", %b: " + w,
                     std::string("%y, %m, %r = nn.layer_norm %x") +
                         (weighted ? " weight %w" : "") +
                         (biased ? " bias %b" : "") +
                         " {epsilon = 1.0e-3 : f64} : " + x +
                         (weighted ? ", weight " + w : "") +
                         (biased ? ", bias " + w : "") + " -> " + x + ", " +
                         statistic + ", " + statistic,
                     x, seed);
      });
}

// With and without a weight.
TEST(Adjoint, RmsNorm) {
  for (bool weighted : {false, true})
    forSeeds([&](Shapes &s, unsigned seed) {
      int64_t batch = s.size(), rows = s.size(), width = s.size(7);
      std::string x = tensor({batch, rows, width}), w = tensor({width});
      checkAdjoint("%x: " + x + ", %w: " + w,
                   std::string("%y, %r = nn.rms_norm %x") +
                       (weighted ? " weight %w" : "") +
                       " {epsilon = 1.0e-3 : f64} : " + x +
                       (weighted ? ", weight " + w : "") + " -> " + x + ", " +
                       tensor({batch, rows}),
                   x, seed);
    });
}

// At least two images: the variance of one value is 0.
TEST(Adjoint, BatchNorm) {
  forSeeds([](Shapes &s, unsigned seed) {
    int64_t channels = s.size();
    std::string x = tensor({s.size() + 1, channels, s.size(), s.size()}),
                w = tensor({channels});
    checkAdjoint("%x: " + x + ", %w: " + w + ", %b: " + w,
                 "%y, %m, %v = nn.batch_norm %x, %w, %b {epsilon = 1.0e-3 : "
                 "f64} : " +
                     x + ", " + w + " -> " + x + ", " + w + ", " + w,
                 x, seed);
  });
}

// The table of angles is a constant, so it needs no gradient.
TEST(Adjoint, Rotary) {
  for (const char *transposed : {"", " {transposed}"})
    forSeeds([&](Shapes &s, unsigned seed) {
      int64_t rows = s.size(), width = 2 * s.size();
      std::string x = tensor({s.size(), s.size(), rows, width}),
                  table = tensor({1, 1, rows, width});
      checkAdjoint("%x: " + x + ", %c: " + table +
                       " {test.fixed}, %s: " + table + " {test.fixed}",
                   std::string("%y = nn.rotary %x, %c, %s") + transposed +
                       " : " + x + ", " + table + ", " + table,
                   x, seed);
    });
}

struct AttentionForm {
  const char *mask; // element type; "": no mask
  bool causal;
};

class AttentionAdjoint : public testing::TestWithParam<AttentionForm> {};

// Heads that share key heads, more keys than queries, and masks that broadcast.
TEST_P(AttentionAdjoint, MatchesCentralDifferences) {
  forSeeds([](Shapes &s, unsigned seed) {
    auto [element, causal] = GetParam();
    bool masked = *element;
    int64_t batch = s.size(2), groups = s.size(2), heads = groups * s.size(2),
            rows = s.size(4), keys = rows + s.size(3) - 1, depth = s.size(4),
            width = s.size(3);
    std::string q = tensor({batch, heads, rows, depth}),
                k = tensor({batch, groups, keys, depth}),
                v = tensor({batch, groups, keys, width}),
                result = tensor({batch, heads, rows, width}),
                mask =
                    tensor({s.coin() ? batch : 1, 1, s.coin() ? rows : 1, keys},
                           masked ? element : "i1");
    checkAdjoint("%q: " + q + ", %k: " + k + ", %v: " + v + ", %m: " + mask +
                     " {test.fixed}",
                 std::string("%y, %l = nn.attention %q, %k, %v") +
                     (masked ? " mask %m" : "") + " {scale = 0.7 : f64" +
                     (causal ? ", causal" : "") + "} : " + q + ", " + k + ", " +
                     v + (masked ? ", mask " + mask : "") + " -> " + result +
                     ", " + tensor({batch, heads, rows}),
                 result, seed);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Forms, AttentionAdjoint,
    testing::Values(AttentionForm{"", false}, AttentionForm{"", true},
                    AttentionForm{"i1", false}, AttentionForm{"i1", true},
                    AttentionForm{"f64", false}, AttentionForm{"f64", true}));

// Both reductions, with and without class weights.
TEST(Adjoint, CrossEntropy) {
  for (const char *reduction : {"mean", "sum"})
    for (bool weighted : {false, true})
      forSeeds([&](Shapes &s, unsigned seed) {
        int64_t rows = s.size(7), classes = s.size();
        std::string logits = tensor({rows, classes}),
                    targets = tensor({rows}, "i64"), w = tensor({classes}),
                    scalar = tensor({});
        // Class 0 is ignored; sometimes that is every row.
        checkAdjoint("%x: " + logits + ", %t: " + targets +
                         " {test.bound = " + std::to_string(classes) +
                         "}, %w: " + w + " {test.fixed, test.positive}",
                     std::string("%y, %l, %v = nn.cross_entropy ") + reduction +
                         " %x, %t" + (weighted ? " weights %w" : "") +
                         " {ignore_index = 0 : i64} : " + logits + ", " +
                         targets + (weighted ? ", weights " + w : "") + " -> " +
                         scalar + ", " + tensor({rows}) + ", " + scalar,
                     scalar, seed);
      });
}

// The fused form computes gradients in the forward pass.
TEST(Adjoint, LinearCrossEntropy) {
  for (const char *reduction : {"mean", "sum"})
    for (bool biased : {false, true})
      forSeeds([&](Shapes &s, unsigned seed) {
        int64_t rows = s.size(7), depth = s.size(), classes = s.size();
        bool transposed = s.coin(), weighted = s.coin();
        std::string x = tensor({rows, depth}),
                    w = transposed ? tensor({classes, depth})
                                   : tensor({depth, classes}),
                    vector = tensor({classes}), targets = tensor({rows}, "i64"),
                    scalar = tensor({});
        // Class 0 is ignored; sometimes that is every row.
        checkAdjoint(
            "%x: " + x + ", %w: " + w + ", %b: " + vector + ", %t: " + targets +
                " {test.bound = " + std::to_string(classes) +
                "}, %c: " + vector + " {test.fixed, test.positive}",
            std::string("%y, %v, %dx, %dw") + (biased ? ", %db" : "") +
                " = nn.linear_cross_entropy " + reduction + " %x, %w, %t" +
                (biased ? " bias %b" : "") + (weighted ? " weights %c" : "") +
                " {ignore_index = 0 : i64" +
                (transposed ? ", transpose_weight" : "") + "} : " + x + ", " +
                w + ", " + targets + (biased ? " bias " + vector : "") +
                (weighted ? " weights " + vector : "") + " -> " + scalar +
                ", " + scalar + (biased ? ", " + vector : ""),
            scalar, seed);
      });
}

} // namespace fsdpc::test
