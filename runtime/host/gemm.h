// A single-threaded matrix product of a fixed shape. It is a oneDNN primitive
// if oneDNN has one for the types. Otherwise (f16, bf16 on processors without
// it, mixed types) the operands are widened to f32 in scratch memory.
//
// Every product of the host device is made of these, those of convolution and
// attention too. oneDNN's own threads would split K, and then the bits would
// depend on their number.
#pragma once

#include "shared/status.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fsdpc::runtime {

enum class ElementType { f32, bf16, f16 };
bool parseElementType(const std::string &name, ElementType &type);
inline size_t elementBytes(ElementType type) {
  return type == ElementType::f32 ? 4 : 2;
}

// Rounds f32 sums to the type.
void roundFloats(const float *from, int64_t count, ElementType type, void *to);

// C[m×n] = A[m×k] · B[k×n], plus C if `accumulate`. Strides are in elements.
// One stride of A and one of B must be 1; the elements of a row of C are
// adjacent.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t rowA = 0, columnA = 1, rowB = 0, columnB = 1, rowC = 0;
  ElementType a = ElementType::f32, b = ElementType::f32, c = ElementType::f32;
  bool accumulate = false;

  bool operator<(const GemmShape &other) const;
};

class Gemm {
public:
  // Makes a product that `threads` threads may run. Fails if oneDNN has none of
  // this shape.
  static Result<std::shared_ptr<Gemm>> make(const GemmShape &shape,
                                            int threads);
  virtual ~Gemm() = default;
  // Bytes of scratch, aligned to 64, that each concurrent call needs.
  virtual size_t scratchBytes() const = 0;
  // Creates the primitive. Must be called before `run`.
  virtual void prepare() = 0;
  // Computes the product. Calls with different `thread` may run concurrently.
  virtual void run(int thread, const void *a, const void *b, void *c,
                   void *scratch) = 0;
};

// Shares products of equal shape, since making one takes oneDNN milliseconds.
// Used while plans are made, by one thread.
class GemmCache {
public:
  explicit GemmCache(int threads) : threads(threads) {}
  Result<std::shared_ptr<Gemm>> get(const GemmShape &shape);

private:
  int threads;
  std::map<GemmShape, std::shared_ptr<Gemm>> gemms;
};

} // namespace fsdpc::runtime
