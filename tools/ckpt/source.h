// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors to read piece by piece, wherever they lie: a safetensors file, a
// folder in Hugging Face's sharded layout, or a checkpoint, in which a tensor
// may be spread over the files of several ranks.
#pragma once

#include "runtime/support/status.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdpc::ckpt {

/// Bytes that a command holds of a tensor at once.
constexpr uint64_t pieceBytes = 4 << 20;

struct Tensor {
  std::string name;
  std::string part; ///< "" for the value, else the optimizer state: "exp_avg"
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<std::string> aliases; ///< other names of a tied parameter
  uint64_t bytes = 0;
  bool isBuffer = false; ///< known for checkpoints only

  /// Returns the name for messages, with the part.
  std::string label() const;
};

/// The list of tensors is complete when the source is opened and does not
/// change. Sources keep their files open, and read() may be called in any
/// order.
class TensorSource {
public:
  virtual ~TensorSource() = default;
  /// In the order of the file; that of a checkpoint is the order of --save.
  const std::vector<Tensor> &tensors() const { return list; }
  /// Returns the hash of the frozen parameters that are left out, or "".
  const std::string &base() const { return baseHash; }
  /// Files that are read, which no output may replace.
  const std::vector<std::string> &files() const { return paths; }
  /// Reads `bytes` bytes of a tensor from `offset`, both multiples of its
  /// element.
  virtual Status read(size_t tensor, uint64_t offset, void *to,
                      uint64_t bytes) const = 0;

  /// Returns the number of ranks of a checkpoint that has residuals of
  /// gradients; else 0.
  virtual int64_t residualRanks() const { return 0; }
  /// Adds what reductions have not sent of each parameter's gradients, as each
  /// of `ranks` ranks would begin with it, and the factors with which they
  /// begin. Call it once.
  virtual void addResiduals(int64_t) {}

protected:
  std::vector<Tensor> list;
  std::vector<std::string> paths;
  std::string baseHash;
};

/// `values`: parameters and buffers, the contents of --save. Files other than
/// checkpoints have no states, so for them both are the same.
enum class Content { values, valuesAndStates };

/// Opens a safetensors file, a sharded folder or its index, or a checkpoint,
/// whose checksums are compared first. For a folder of checkpoints it takes the
/// one of `step`, or the newest.
Result<std::unique_ptr<TensorSource>>
openTensors(const std::string &path, Content content,
            std::optional<int64_t> step = {});

/// Returns the names and aliases of all tensors.
std::vector<std::string> namesOf(const TensorSource &source);

/// Calls body(data, offset, bytes) for each piece of a tensor, in order, and
/// returns the first error.
template <class Body>
Status forEachPiece(const TensorSource &source, size_t tensor, Body body) {
  uint64_t bytes = source.tensors()[tensor].bytes;
  std::vector<char> piece(bytes < pieceBytes ? bytes : pieceBytes);
  for (uint64_t at = 0; at < bytes; at += pieceBytes) {
    uint64_t now = bytes - at < pieceBytes ? bytes - at : pieceBytes;
    if (Status read = source.read(tensor, at, piece.data(), now); !read)
      return read;
    if (Status done = body(piece.data(), at, now); !done)
      return done;
  }
  return {};
}

} // namespace fsdpc::ckpt
