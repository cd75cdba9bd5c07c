// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copies of a product's operands in another layout or type.
#pragma once

#include "runtime/numeric/reduce.h"

#include <cstddef>
#include <cstdint>
#include <dnnl.h>

namespace fsdpc::runtime {

/// Copies a matrix into or out of scratch memory row by row, without
/// transposing it. The copy may change the type, and may add to its
/// destination. oneDNN's reorders would do the same, but where a processor has
/// no instructions for a 16-bit type they convert one element at a time, which
/// costs more than the product.
class MatrixCopy {
public:
  /// `dense` is the one of the two that lies in scratch memory; `adds` makes
  /// the copy add to its destination.
  MatrixCopy(const dnnl_memory_desc_t &from, const dnnl_memory_desc_t &to,
             const dnnl_memory_desc_t &dense, bool adds);

  /// Bytes of the dense matrix, or 0 if no copy is needed.
  size_t denseBytes() const { return bytes; }

  void run(const void *from, void *to) const;

private:
  void copyRow(const char *from, char *to) const;
  /// to += from, in f32, rounded once.
  void addRow(const char *from, char *to) const;

  bool adds;
  size_t bytes = 0;
  int64_t rows = 0, columns = 0, fromStride = 0, toStride = 0;
  WireType fromType = WireType::f32, toType = WireType::f32;
};

} // namespace fsdpc::runtime
