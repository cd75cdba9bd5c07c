// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rules for initial values (--init-rule): a name with numbers, such as
// "normal(0,0.02)". The compiler checks a rule against the shape of the
// parameter; the program computes the values (runtime/numeric/init_values.h).
// The names and defaults are those of torch.nn.init:
//
//   zeros, ones, constant(x)
//   normal(mean,std), uniform(low,high)
//   trunc_normal(mean,std[,low,high])     the normal law within [low, high],
//                                         which are values, by default -2 and 2
//   xavier_uniform[(gain)], xavier_normal[(gain)]     Glorot and Bengio, 2010
//   kaiming_uniform[(slope)], kaiming_normal[(slope)] He et al., 2015; fan_in,
//                                         slope of the leaky ReLU that follows
//   orthogonal[(gain)]                    Saxe et al., 2014; rows or columns of
//                                         length `gain`, whichever are fewer
#pragma once

#include "runtime/support/status.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc {

/// Most elements of an orthogonal parameter, which each rank that has a part of
/// it computes whole.
constexpr int64_t mostOrthogonal = 1 << 24;

struct InitRule {
  enum Kind {
    zeros,
    ones,
    constant,
    normal,
    truncatedNormal,
    uniform,
    xavierUniform,
    xavierNormal,
    kaimingUniform,
    kaimingNormal,
    orthogonal
  } kind = zeros;
  /// The numbers in the order of the text, with defaults for what it leaves
  /// out.
  std::array<double, 4> numbers = {};
};

/// Parses a rule. The error continues a sentence that begins with the rule's
/// text: "is none of zeros, …".
Result<InitRule> parseInitRule(const std::string &text);

/// Returns the rule for a tensor of that shape, without the kinds that depend
/// on the number of a neuron's inputs: xavier and kaiming become normal or
/// uniform. The error continues a sentence as that of parseInitRule: "needs …".
Result<InitRule> ruleForShape(const InitRule &rule,
                              const std::vector<int64_t> &shape);

} // namespace fsdpc
