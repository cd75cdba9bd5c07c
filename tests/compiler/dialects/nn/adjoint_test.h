// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adjoints against central differences. An op on f64 tensors, written as IR, is
// differentiated with buildAdjoint and evaluated by the reference interpreter.
// FSDPC_SEEDS=N draws N shapes of each op in place of 6, and FSDPC_SEED=K other
// ones; a failure prints its seed. The whole run ends with a failure if an op
// that has an adjoint was not among those that were checked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace fsdpc::test {

/// Random sizes, and the spelling of tensor types with them.
class Shapes {
public:
  explicit Shapes(unsigned seed) : generator(seed) {}

  /// Returns a size from 1 to `most`.
  int64_t size(int64_t most = 5) {
    return std::uniform_int_distribution<int64_t>(1, most)(generator);
  }
  bool coin() { return size(2) == 2; }
  /// Returns the shape of a tensor of rank 0 to 5, with at most 64 elements.
  /// Sizes of 1 are frequent, and one tensor of eight is empty.
  std::vector<int64_t> shape() {
    std::vector<int64_t> sizes;
    int64_t left = 64;
    for (int64_t rank = size(6) - 1; rank > 0; --rank) {
      sizes.push_back(coin() ? 1 : size(std::min<int64_t>(left, 5)));
      left /= sizes.back();
    }
    if (!sizes.empty() && size(8) == 8)
      sizes[size(sizes.size()) - 1] = 0;
    return sizes;
  }
  /// Returns the numbers from 0 to count - 1 in some order.
  std::vector<int64_t> permutation(int64_t count) {
    std::vector<int64_t> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 0);
    std::shuffle(numbers.begin(), numbers.end(), generator);
    return numbers;
  }

private:
  std::mt19937 generator;
};

/// Returns "tensor<2x3xf64>".
std::string tensor(const std::vector<int64_t> &shape,
                   const std::string &element = "f64");

/// Returns "[2, 3]".
std::string list(const std::vector<int64_t> &numbers);

/// Checks the adjoint of the op that defines %y in `body`, in the function
/// @f(`arguments`) -> `result`, with random arguments and a random cotangent.
/// Attributes of arguments: `test.fixed` wants no gradient, `test.positive`
/// takes values in [0.5, 2), `test.bound = n` takes integers in [0, n).
void checkAdjoint(const std::string &arguments, const std::string &body,
                  const std::string &result, unsigned seed);

/// Returns a number of the environment.
inline unsigned environmentOr(const char *name, unsigned absent) {
  const char *text = std::getenv(name);
  return text ? unsigned(std::strtoul(text, nullptr, 10)) : absent;
}

/// Calls `check(shapes, seed)` for several seeds.
template <typename Fn> void forSeeds(Fn check) {
  unsigned first = environmentOr("FSDPC_SEED", 1);
  for (unsigned i = 0; i < environmentOr("FSDPC_SEEDS", 6); ++i) {
    unsigned seed = first + i;
    Shapes shapes(seed);
    check(shapes, seed);
  }
}

} // namespace fsdpc::test
