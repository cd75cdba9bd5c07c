// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Protobuf's wire format, which is needed where bytes count: to find where
// weights lie in a file, to measure a message before it is parsed, and to
// change values in a model whose other bytes must stay.
#pragma once

#include "frontends/onnx/ModelFile.h"

#include <cstdint>

namespace fsdpc::frontend {

/// Reads protobuf's wire format from position `at` to `end` of the file. All
/// functions return false at the end or on malformed bytes. Positions are
/// absolute, so nested messages are read by a Wire of their own range.
struct Wire {
  const char *base;
  uint64_t at, end;

  /// Reads a number of 7 bits per byte, lowest first; the top bit of a byte
  /// says that another one follows. More than 64 bits are malformed.
  bool varint(uint64_t &value) {
    value = 0;
    for (int shift = 0; shift < 64 && at < end; shift += 7) {
      uint8_t byte = base[at++];
      value |= uint64_t(byte & 127) << shift;
      if (byte < 128)
        return true;
    }
    return false;
  }

  /// Reads the next field: its number and, if it is length-delimited
  /// (`isBytes`), the range of its payload. Skips the value of any other field.
  /// `payload` is left alone then.
  bool next(uint64_t &field, ByteRange &payload, bool &isBytes) {
    uint64_t tag, value;
    if (at >= end || !varint(tag))
      return false;
    field = tag >> 3;
    isBytes = (tag & 7) == 2;
    switch (tag & 7) {
    case 0:
      return varint(value);
    case 1:
    case 5: {
      uint64_t size = (tag & 7) == 1 ? 8 : 4;
      if (end - at < size)
        return false;
      at += size;
      return true;
    }
    case 2:
      if (!varint(value) || value > end - at)
        return false;
      payload = {at, value};
      at += value;
      return true;
    }
    return false; // groups do not occur
  }
};

} // namespace fsdpc::frontend
