// Parses and applies init rules; init_rule.h defines the meaning of each.
#include "runtime/core/init_rule.h"
#include "runtime/core/philox.h"

#include <cfloat>
#include <cmath>
#include <cstdio>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fsdpc::runtime {

Result<InitRule> parseInitRule(const std::string &text) {
  if (text == "zeros")
    return InitRule{InitRule::zeros};
  if (text == "ones")
    return InitRule{InitRule::ones};
  InitRule rule;
  int end = 0;
  // %n stores how much was read only if the closing bracket matched, so `end`
  // tells a complete match from one with text behind it.
  auto matches = [&](const char *form) {
    return std::sscanf(text.c_str(), form, &rule.a, &rule.b, &end) == 2;
  };
  // sscanf skips white space before a number, so "normal( 0, 1)" is taken too.
  if (matches("normal(%lf,%lf)%n"))
    rule.kind = InitRule::normal;
  else if (matches("uniform(%lf,%lf)%n"))
    rule.kind = InitRule::uniform;
  // Parameters are f32.
  auto fits = [](double number) { return std::abs(number) <= FLT_MAX; };
  // kind is still `zeros` if neither form matched. The comparison in `fits` is
  // false for NaN.
  if (rule.kind == InitRule::zeros || size_t(end) != text.size() ||
      !fits(rule.a) || !fits(rule.b))
    return Error{"'" + text +
                 "' is not supported; use normal(MEAN,STD), uniform(LOW,HIGH), "
                 "zeros or ones"};
  return rule;
}

void applyInitRule(const InitRule &rule, const std::string &name, uint64_t seed,
                   int64_t begin, int64_t count, float *to) {
  // 2^-32.
  constexpr double unit = 1.0 / 4294967296.0;
  // By name, not by position in the model: adding a parameter leaves the values
  // of the others alone.
  uint64_t hash = XXH64(name.data(), name.size(), 0);
  int64_t block = -1;
  PhiloxBlock words{};
  for (int64_t i = begin; i < begin + count; ++i) {
    if (rule.kind <= InitRule::ones) {
      *to++ = rule.kind == InitRule::ones;
      continue;
    }
    // One call of Philox serves four elements. `begin` need not be a multiple
    // of four, so a rank may start in the middle of a block.
    if (i / 4 != block) {
      block = i / 4;
      words = philox({uint32_t(block), uint32_t(uint64_t(block) >> 32),
                      uint32_t(hash), uint32_t(hash >> 32)},
                     seed);
    }
    if (rule.kind == InitRule::uniform) {
      *to++ = float(rule.a + (rule.b - rule.a) * (words[i % 4] * unit));
      continue;
    }
    // Both elements of a pair use the same two words. w0 + 1 keeps the
    // logarithm away from zero.
    int pair = int(i % 4) & ~1;
    double radius = std::sqrt(-2 * std::log((words[pair] + 1.0) * unit));
    double angle = 2 * M_PI * (words[pair + 1] * unit);
    double z = radius * (i % 2 ? std::sin(angle) : std::cos(angle));
    *to++ = float(rule.a + rule.b * z);
  }
}

} // namespace fsdpc::runtime
