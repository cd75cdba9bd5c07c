// Initial values that are computed instead of read: --init-rule. The value of
// element e of a tensor named f depends on (seed, f, e) alone, so neither the
// number of ranks nor the layouts can change it.
//
// Philox (philox.h) on the counter {e/4 low, e/4 high, h low, h high}, where h
// = XXH64(f), gives one 32-bit word w for each of four elements.
//
//   uniform(a,b)  a + (b - a) w / 2^32
//   normal(m,s)   words in pairs (Box and Muller, 1958): with
//                 r = sqrt(-2 ln((w0 + 1) / 2^32)) and t = 2 pi w1 / 2^32, the
//                 even element is m + s r cos t, the odd one m + s r sin t
//
// All in f64, then rounded to f32.
#pragma once

#include "shared/status.h"

#include <cstdint>
#include <string>

namespace fsdpc::runtime {

struct InitRule {
  enum Kind { zeros, ones, normal, uniform } kind = zeros;
  double a = 0, b = 0; // normal: mean, deviation; uniform: the two ends
};

// Parses "zeros", "ones", "normal(0,0.02)" or "uniform(-1,1)".
Result<InitRule> parseInitRule(const std::string &text);
// Writes elements [begin, begin + count) of the tensor `name` to to[0 …
// count-1].
void applyInitRule(const InitRule &rule, const std::string &name, uint64_t seed,
                   int64_t begin, int64_t count, float *to);

} // namespace fsdpc::runtime
