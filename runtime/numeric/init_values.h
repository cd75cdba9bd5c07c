// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Initial values that are computed instead of read, by the rules of
// runtime/abi/init_rule.h. The value of element e of a tensor named f depends
// on (seed, f, e) alone, so neither the number of ranks nor the layouts can
// change it.
//
// Philox (philox.h) on the counter {e/4 low, e/4 high, h low, h high}, where h
// = XXH64(f), gives one 32-bit word w for each of four elements.
//
//   uniform(a,b)      a + (b - a) w / 2^32
//   normal(m,s)       words in pairs (Box and Muller, 1958): with
//                     r = sqrt(-2 ln((w0 + 1) / 2^32)) and t = 2 pi w1 / 2^32,
//                     the even element is m + s r cos t, the odd one m + s r
//                     sin t
//   trunc_normal(…)   m + s q(p), where q is the normal law's quantile function
//                     and p = (w + 1/2) / 2^32 of the way from the law's value
//                     at `low` to that at `high`
//   orthogonal(g)     Gram and Schmidt's method on rows of normal(0,1), or on
//                     columns if there are more rows than columns
//
// All in f64, then rounded to f32.
#pragma once

#include "runtime/abi/init_rule.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// Writes elements [begin, begin + count) of the tensor `name` to to[0 …
/// count-1]. `rule` is one of ruleForShape, but not orthogonal.
void applyInitRule(const InitRule &rule, const std::string &name, uint64_t seed,
                   int64_t begin, int64_t count, float *to);

/// Returns all elements of an orthogonal tensor: a matrix of shape[0] rows. Its
/// elements depend on each other, so a part cannot be computed alone. Takes
/// some rows² · columns operations, if rows are fewer.
std::vector<float> orthogonalValues(const InitRule &rule,
                                    const std::string &name, uint64_t seed,
                                    const std::vector<int64_t> &shape);

} // namespace fsdpc::runtime
