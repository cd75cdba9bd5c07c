// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// CRC-32C (Castagnoli, RFC 3720), a byte at a time from a table. Records of
// event files are a few hundred bytes per step, so nothing faster is needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fsdpc::runtime {

/// 0x82f63b78 is the polynomial with its bits reversed, since bytes go in
/// lowest bit first.
constexpr std::array<uint32_t, 256> makeCrcTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit)
      rest = rest & 1 ? rest >> 1 ^ 0x82f63b78u : rest >> 1;
    table[byte] = rest;
  }
  return table;
}

/// Returns the checksum of the bytes in one go; it cannot be continued.
inline uint32_t crc32c(const void *data, size_t bytes) {
  static constexpr std::array<uint32_t, 256> table = makeCrcTable();
  auto *from = static_cast<const unsigned char *>(data);
  uint32_t crc = ~0u;
  for (size_t i = 0; i < bytes; ++i)
    crc = table[(crc ^ from[i]) & 0xff] ^ crc >> 8;
  return ~crc;
}

} // namespace fsdpc::runtime
