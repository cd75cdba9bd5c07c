// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a compressed reduction is (--reduce-hook): ranks send less than their
// gradients, and keep the rest in a residual for the next reduction. Each kind
// describes itself once, by a CompressionInfo in a file of its own
// (compressions.h lists them). The compiler, the memory plan, the runtime and
// checkpoints ask that description, and name no kind. In C++17, as kernels for
// GPUs include kinds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc {

/// How gradients of a layout are reduced: the name of a kind, and its amount
/// for this layout, as the elements that each rank sends or the rank of
/// factors. Without a kind all elements are sent.
struct Compression {
  std::string kind;
  int64_t amount = 0;

  explicit operator bool() const { return !kind.empty(); }
  friend bool operator==(const Compression &a, const Compression &b) {
    return a.kind == b.kind && a.amount == b.amount;
  }
};

/// The shapes of a layout's members, in their order.
using MemberShapes = std::vector<std::vector<int64_t>>;

/// The value of the option, NAME=VALUE: an integer from `least` to `most`, or a
/// share in percent, above 0 and at most 100.
struct CompressionValue {
  const char *form; ///< for users: "RANK", "X%"
  const char *noun; ///< of an integer: "rank"
  int64_t most = 0; ///< 0: a share
  int64_t least = 1;

  bool isShare() const { return most == 0; }
};

/// What a kind sends. Each rank sends it to each other rank; or the ranks sum
/// it, each a part, and gather the sums.
struct CompressionTraffic {
  const char *type;   ///< of an element, as volumes print it: "f32"
  const char *symbol; ///< of the number of elements in volumes: "R"
  int64_t elementBytes;
  const char *sums = nullptr; ///< what is summed, "factors"; null: nothing
};

/// Values that ranks keep beside their residuals, equal on all ranks.
struct CompressionState {
  const char *part;   ///< for users: "right factor"
  const char *tensor; ///< its name in the files of checkpoints
  const char *key;    ///< of the amount in their manifests
  uint64_t seed; ///< of the normal numbers that a state begins with, and that
                 ///< replace its vectors of zeros
};

/// A kind of compressed reduction. Functions of a layout take its amount, at
/// least 1, and the shapes of its members.
class CompressionInfo {
public:
  const char *name;    ///< of the option and in manifests
  const char *keyword; ///< in the IR: the name, with underscores
  CompressionValue value;
  std::vector<const char *> foreignNames; ///< what others call it
  /// Why no layout is compressed, and what to do. Null if it can always be.
  const char *noEffect = nullptr;
  CompressionTraffic traffic;
  const CompressionState *state = nullptr; ///< null: only residuals are kept

  /// Returns the amount of a layout under an option of this value; 0 if the
  /// layout is better sent as it is.
  virtual int64_t amountFor(double value, int64_t elements,
                            const MemberShapes &shapes) const = 0;
  /// Returns what is wrong with the amount of a layout of so many elements, as
  /// the end of a sentence about it; empty if nothing is.
  virtual std::string faultOf(int64_t amount, int64_t elements) const = 0;
  /// The elements of CompressionTraffic that each rank sends, or that are
  /// summed.
  virtual int64_t sentElements(int64_t amount,
                               const MemberShapes &shapes) const = 0;
  int64_t sentBytes(int64_t amount, const MemberShapes &shapes) const {
    return sentElements(amount, shapes) * traffic.elementBytes;
  }
  /// The bytes of host memory, or of a GPU's, through which the ranks exchange
  /// a layout. Layouts take turns.
  virtual int64_t exchangedBytes(int64_t amount, const MemberShapes &shapes,
                                 int64_t ranks) const = 0;
  /// The operations of a reduction, other than passes over the residual.
  virtual double flops(int64_t /*elements*/, int64_t /*amount*/) const {
    return 0;
  }
  /// The shape of a member's CompressionState; empty if it has none.
  virtual std::vector<int64_t>
  stateShape(int64_t /*amount*/, const std::vector<int64_t> & /*shape*/) const {
    return {};
  }
  /// The bytes of all members' states, with the padding that sums over so many
  /// ranks take.
  virtual int64_t stateBytes(int64_t /*amount*/,
                             const MemberShapes & /*shapes*/,
                             int64_t /*ranks*/) const {
    return 0;
  }
  /// The bytes that a GPU computes with. Layouts take turns.
  virtual int64_t deviceBytes(int64_t elements, int64_t amount) const = 0;

  /// The elements of a member's state, and of those of all members.
  int64_t stateElements(int64_t amount,
                        const std::vector<int64_t> &shape) const {
    int64_t elements = 1;
    std::vector<int64_t> extents = stateShape(amount, shape);
    for (int64_t extent : extents)
      elements *= extent;
    return extents.empty() ? 0 : elements;
  }
  int64_t stateElements(int64_t amount, const MemberShapes &shapes) const {
    int64_t elements = 0;
    for (const std::vector<int64_t> &shape : shapes)
      elements += stateElements(amount, shape);
    return elements;
  }

protected:
  CompressionInfo(const char *name, const char *keyword, CompressionValue value,
                  CompressionTraffic traffic)
      : name(name), keyword(keyword), value(value), traffic(traffic) {}
  ~CompressionInfo() = default;
};

} // namespace fsdpc
