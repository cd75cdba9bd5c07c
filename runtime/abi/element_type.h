// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element types and their sizes, by the names of the manifest: the one place of
// the runtime, and of what it shares with the compiler, that knows how many
// bytes an element takes. The runtime's CUDA kernels include this file, so it
// is C++17.
#pragma once

#include <cstdint>
#include <string_view>

namespace fsdpc {

/// Returns the bytes of an element of a dtype ("f32", "bf16", "f16", "f64",
/// "i1", "i8" … "i64", "u8" … "u64"), or 0 for any other name. An i1 takes one.
constexpr int64_t dtypeBytes(std::string_view dtype) {
  struct Size {
    std::string_view dtype;
    int64_t bytes;
  };
  constexpr Size sizes[] = {{"f32", 4}, {"bf16", 2}, {"f16", 2}, {"f64", 8},
                            {"i1", 1},  {"i8", 1},   {"i16", 2}, {"i32", 4},
                            {"i64", 8}, {"u8", 1},   {"u16", 2}, {"u32", 4},
                            {"u64", 8}};
  for (const Size &size : sizes)
    if (size.dtype == dtype)
      return size.bytes;
  return 0;
}

/// The types in which models compute and gradients travel, and bytes, as which
/// constants travel.
enum class ElementType { f32, bf16, f16, u8 };
constexpr int elementTypes = 3; ///< in which models compute

/// Returns the name of a type in the manifest.
constexpr std::string_view dtypeOf(ElementType type) {
  constexpr std::string_view names[] = {"f32", "bf16", "f16", "u8"};
  return names[int(type)];
}

/// Sets `type` to that of this name. Returns false for a dtype that models do
/// not compute in.
constexpr bool parseElementType(std::string_view dtype, ElementType &type) {
  for (int i = 0; i < elementTypes; ++i)
    if (dtypeOf(ElementType(i)) == dtype) {
      type = ElementType(i);
      return true;
    }
  return false;
}

/// Returns the bytes of an element. Loops call it, so no name is compared.
constexpr int64_t elementBytes(ElementType type) {
  constexpr int64_t bytes[] = {dtypeBytes(dtypeOf(ElementType::f32)),
                               dtypeBytes(dtypeOf(ElementType::bf16)),
                               dtypeBytes(dtypeOf(ElementType::f16)),
                               dtypeBytes(dtypeOf(ElementType::u8))};
  return bytes[int(type)];
}

} // namespace fsdpc
