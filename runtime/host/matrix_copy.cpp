// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/host/matrix_copy.h"
#include "runtime/host/onednn.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::runtime {

static WireType wireOf(dnnl_data_type_t type) {
  return type == dnnl_f32    ? WireType::f32
         : type == dnnl_bf16 ? WireType::bf16
                             : WireType::f16;
}

MatrixCopy::MatrixCopy(const dnnl_memory_desc_t &from,
                       const dnnl_memory_desc_t &to,
                       const dnnl_memory_desc_t &dense, bool adds)
    : adds(adds) {
  if (dnnl_memory_desc_equal(&from, &to))
    return;
  bytes = roundUp64(dnnl_memory_desc_get_size(&dense));
  // The axis whose elements are not adjacent. Its slices are called rows here,
  // even if they are columns of the matrix.
  int outer = from.format_desc.blocking.strides[1] == 1 ? 0 : 1;
  rows = from.dims[outer];
  columns = from.dims[1 - outer];
  fromType = wireOf(from.data_type);
  toType = wireOf(to.data_type);
  fromStride =
      from.format_desc.blocking.strides[outer] * elementBytes(fromType);
  toStride = to.format_desc.blocking.strides[outer] * elementBytes(toType);
}

void MatrixCopy::run(const void *from, void *to) const {
  for (int64_t row = 0; row < rows; ++row)
    copyRow(static_cast<const char *>(from) + row * fromStride,
            static_cast<char *>(to) + row * toStride);
}

void MatrixCopy::copyRow(const char *from, char *to) const {
  if (adds)
    addRow(from, to);
  else if (fromType == toType)
    std::memcpy(to, from, columns * elementBytes(fromType));
  else
    castToWire(from, fromType, toType, columns, to);
}

void MatrixCopy::addRow(const char *from, char *to) const {
  constexpr int64_t piece = 256;
  float sums[piece];
  for (int64_t i = 0; i < columns; i += piece) {
    int64_t length = std::min(piece, columns - i);
    char *target = to + i * elementBytes(toType);
    Addend terms[] = {{from + i * elementBytes(fromType), fromType},
                      {target, toType}};
    sumRanks(terms, 2, WireType::f32, length, sums, false);
    castToWire(sums, WireType::f32, toType, length, target);
  }
}

} // namespace fsdpc::runtime
