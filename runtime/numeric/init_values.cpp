// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes initial values; init_values.h defines the meaning of each rule. The
// order of all sums is fixed, so the same program gives the same bits whoever
// computes a value.
#include "runtime/numeric/init_values.h"
#include "runtime/numeric/philox.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fsdpc::runtime {
namespace {

constexpr double unit = 1.0 / 4294967296.0;

// The random words of a tensor, by element.
class Words {
public:
  Words(const std::string &name, uint64_t seed)
      : hash(XXH64(name.data(), name.size(), 0)), seed(seed) {}

  // One call of Philox serves four elements. The first element need not be a
  // multiple of four, so a rank may start in the middle of a block.
  const PhiloxBlock &blockOf(int64_t element) {
    if (element / 4 != at) {
      at = element / 4;
      words = philox({uint32_t(at), uint32_t(uint64_t(at) >> 32),
                      uint32_t(hash), uint32_t(hash >> 32)},
                     seed);
    }
    return words;
  }

  double uniform(int64_t element) {
    return blockOf(element)[size_t(element % 4)] * unit;
  }

  // Both elements of a pair use the same two words. w0 + 1 keeps the logarithm
  // away from zero.
  double normal(int64_t element) {
    const PhiloxBlock &block = blockOf(element);
    size_t pair = size_t(element % 4) & ~size_t(1);
    double radius = std::sqrt(-2 * std::log((block[pair] + 1.0) * unit));
    double angle = 2 * M_PI * (block[pair + 1] * unit);
    return radius * (element % 2 ? std::sin(angle) : std::cos(angle));
  }

private:
  uint64_t hash, seed;
  int64_t at = -1;
  PhiloxBlock words{};
};

// The normal law, P(X <= x).
double normalLaw(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }

double polynomial(std::initializer_list<double> coefficients, double x) {
  double sum = 0;
  for (double coefficient : coefficients)
    sum = sum * x + coefficient;
  return sum;
}

// Returns x of normalLaw(x) = p, for p of at most 1/2. The fractions are
// Acklam's (2003); their relative error, 1.2e-9, is below that of f32.
double quantile(double p) {
  if (p < 0.02425) {
    double q = std::sqrt(-2 * std::log(p));
    return polynomial({-7.784894002430293e-03, -3.223964580411365e-01,
                       -2.400758277161838e+00, -2.549732539343734e+00,
                       4.374664141464968e+00, 2.938163982698783e+00},
                      q) /
           polynomial({7.784695709041462e-03, 3.224671290700398e-01,
                       2.445134137142996e+00, 3.754408661907416e+00, 1},
                      q);
  }
  double q = p - 0.5;
  return q *
         polynomial({-3.969683028665376e+01, 2.209460984245205e+02,
                     -2.759285104469687e+02, 1.383577518672690e+02,
                     -3.066479806614716e+01, 2.506628277459239e+00},
                    q * q) /
         polynomial({-5.447609879822406e+01, 1.615858368580409e+02,
                     -1.556989798598866e+02, 6.680131188771972e+01,
                     -1.328068155288572e+01, 1},
                    q * q);
}

// Returns the value below which `share` of the law within the two ends lies. A
// law is precise at its lower tail, where it is small, so the upper half is
// computed as the mirrored lower one.
double truncatedNormal(const InitRule &rule, double share) {
  auto [mean, deviation, least, most] = rule.numbers;
  // Beyond 38 deviations the law is 0 or 1 in f64.
  double low = std::clamp((least - mean) / deviation, -38.0, 38.0);
  double high = std::clamp((most - mean) / deviation, -38.0, 38.0);
  auto between = [](double from, double to, double share) {
    return normalLaw(from) + (normalLaw(to) - normalLaw(from)) * share;
  };
  double p = between(low, high, share);
  double x =
      p <= 0.5 ? quantile(p) : -quantile(between(-high, -low, 1 - share));
  return std::clamp(mean + deviation * x, least, most);
}

double dot(const double *a, const double *b, int64_t length) {
  double sum = 0;
  for (int64_t i = 0; i < length; ++i)
    sum += a[i] * b[i];
  return sum;
}

// Makes `count` vectors of `length` elements orthonormal, one after the other.
// The second round removes what the first one's rounding has left.
void orthonormalise(std::vector<double> &vectors, int64_t count,
                    int64_t length) {
  for (int64_t i = 0; i < count; ++i) {
    double *own = &vectors[size_t(i * length)];
    for (int round = 0; round < 2; ++round)
      for (int64_t j = 0; j < i; ++j) {
        const double *other = &vectors[size_t(j * length)];
        double share = dot(own, other, length);
        for (int64_t k = 0; k < length; ++k)
          own[k] -= share * other[k];
      }
    double norm = std::sqrt(dot(own, own, length));
    for (int64_t k = 0; k < length; ++k)
      own[k] /= norm;
  }
}

} // namespace

void applyInitRule(const InitRule &rule, const std::string &name, uint64_t seed,
                   int64_t begin, int64_t count, float *to) {
  Words words(name, seed);
  auto [a, b, c, d] = rule.numbers;
  for (int64_t i = begin; i < begin + count; ++i) {
    double value = 0;
    if (rule.kind == InitRule::ones)
      value = 1;
    else if (rule.kind == InitRule::constant)
      value = a;
    else if (rule.kind == InitRule::uniform)
      value = a + (b - a) * words.uniform(i);
    else if (rule.kind == InitRule::normal)
      value = a + b * words.normal(i);
    else if (rule.kind == InitRule::truncatedNormal)
      value = truncatedNormal(rule, words.uniform(i) + unit / 2);
    *to++ = float(value);
  }
}

std::vector<float> orthogonalValues(const InitRule &rule,
                                    const std::string &name, uint64_t seed,
                                    const std::vector<int64_t> &shape) {
  int64_t rows = shape[0], columns = 1;
  for (size_t i = 1; i < shape.size(); ++i)
    columns *= shape[i];
  // The vectors are rows, or columns of a matrix that is higher than wide.
  bool isHigh = rows > columns;
  int64_t count = std::min(rows, columns), length = std::max(rows, columns);
  Words words(name, seed);
  std::vector<double> vectors(size_t(rows * columns));
  for (int64_t i = 0; i < rows * columns; ++i)
    vectors[size_t(i)] = words.normal(i);
  orthonormalise(vectors, count, length);
  std::vector<float> values(vectors.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      values[size_t(i * columns + j)] =
          float(rule.numbers[0] *
                vectors[size_t(isHigh ? j * length + i : i * length + j)]);
  return values;
}

} // namespace fsdpc::runtime
