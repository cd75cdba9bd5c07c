// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The output of an export as a list of pieces.
#pragma once

#include "frontends/onnx/ModelFile.h"
#include "tools/export/Values.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fsdpc::exporting {

using frontend::ByteRange;

/// A part of the output: a range of the model, `text`, or the values of a
/// tensor. Exactly one of the three is set; `bytes` is its size in the output.
struct Piece {
  ByteRange range;
  std::string text;
  const Value *value = nullptr;
  uint64_t bytes = 0;
};

/// The output as a list of pieces. Its size is known before any value is read,
/// which lengths of enclosing messages need.
class Pieces {
public:
  void copy(uint64_t begin, uint64_t end) {
    if (begin < end)
      add({{begin, end - begin}, "", nullptr, end - begin});
  }
  void text(std::string bytes) {
    uint64_t count = bytes.size();
    add({{}, std::move(bytes), nullptr, count});
  }
  void value(const Value &value, uint64_t bytes) {
    add({{}, "", &value, bytes});
  }
  void append(Pieces other) {
    for (Piece &piece : other.list)
      add(std::move(piece));
  }
  uint64_t size() const { return bytes; }
  const std::vector<Piece> &pieces() const { return list; }

private:
  void add(Piece piece) {
    bytes += piece.bytes;
    list.push_back(std::move(piece));
  }
  std::vector<Piece> list;
  uint64_t bytes = 0;
};

} // namespace fsdpc::exporting
