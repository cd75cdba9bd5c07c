// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A value that is computed from constants alone is folded at import. For the
// codes of a quantised weight this would make four to eight times as many bytes
// of them, in the program and on each rank. So narrow constants are not folded:
// they become parameters that ranks share, the ops on them stay, and each step
// computes the weight where it is used. Its scales and zero points are shared
// too, unless they are small.
#include "frontends/onnx/StoredConstants.h"

#include "frontends/onnx/Budgets.h"
#include "frontends/onnx/ElementTypes.h"
#include "frontends/onnx/Node.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MathExtras.h"

using namespace fsdpc;
using namespace fsdpc::frontend;
using onnx::TensorProto;

namespace {

// What the finder knows about a tensor of the graph.
enum class Known {
  constant, ///< computed from constants alone
  packed,   ///< an initializer of int32, or a rearrangement of one
  derived   ///< computed from constants, stored ones among them
};

class Finder {
public:
  Finder(const onnx::GraphProto &graph, const HandlerTable &handlers)
      : graph(graph), handlers(handlers) {
    for (const onnx::NodeProto &node : graph.node()) {
      for (const std::string &output : node.output())
        producers[output] = &node;
      if (takesTruth(node))
        for (const std::string &input : node.input())
          masks.insert(originOf(input));
    }
  }

  llvm::StringSet<>
  find(llvm::function_ref<bool(llvm::StringRef)> isParameter) {
    for (const TensorProto &tensor : graph.initializer())
      if (!isParameter(tensor.name()))
        addInitializer(tensor);
    for (const onnx::NodeProto &node : graph.node())
      visit(node);
    return std::move(stored);
  }

private:
  static int64_t bytesOf(const TensorProto &tensor) {
    int64_t bits = bitsOf(tensor.data_type());
    for (int64_t size : tensor.dims())
      if (size < 0 || llvm::MulOverflow(bits, size, bits))
        return 0;
    return bits / 8;
  }

  // Integers of 64 bits are indices. Booleans are masks, and so are bytes that
  // some node compares or casts to booleans.
  void addInitializer(const TensorProto &tensor) {
    int64_t type = tensor.data_type(), bytes = bytesOf(tensor);
    Known &entry = known[tensor.name()] = Known::constant;
    sizes[tensor.name()] = bytes;
    if (bytes <= kFoldedAnyway)
      return;
    bool isByte = type == TensorProto::INT8 || type == TensorProto::UINT8;
    if (isStorageType(type) || (isByte && !masks.contains(tensor.name()))) {
      entry = Known::derived;
      stored.insert(tensor.name());
    } else if (type == TensorProto::INT32) {
      entry = Known::packed;
    }
  }

  CodeUse useOf(const onnx::NodeProto &node) const {
    return handlers.useOf(node.op_type());
  }

  // A cast to booleans compares, too: of what rearranges, only a cast has a
  // type that it goes to.
  bool takesTruth(const onnx::NodeProto &node) const {
    if (useOf(node) != CodeUse::rearranges)
      return useOf(node) == CodeUse::compares;
    return llvm::any_of(node.attribute(), [](const auto &attribute) {
      return attribute.name() == "to" && attribute.i() == TensorProto::BOOL;
    });
  }

  // Returns the tensor that this one is a part or a rearrangement of.
  std::string originOf(std::string name) const {
    for (size_t steps = 0; steps < producers.size(); ++steps) {
      const onnx::NodeProto *node = producers.lookup(name);
      if (!node || node->input_size() == 0 ||
          (useOf(*node) != CodeUse::rearranges &&
           useOf(*node) != CodeUse::takesPart))
        break;
      name = node->input(0);
    }
    return name;
  }

  // Nodes come in topological order.
  void visit(const onnx::NodeProto &node) {
    if (node.op_type() == "Constant")
      return setOutputs(node, Known::constant);
    bool isDerived = false, isPacked = false;
    int64_t inputs = 0;
    for (const std::string &input : node.input()) {
      if (input.empty())
        continue;
      auto found = known.find(input);
      if (found == known.end())
        return;
      ++inputs;
      isDerived |= found->second == Known::derived;
      isPacked |= found->second == Known::packed;
    }
    // Random numbers have no inputs; graphs within nodes read others.
    if (inputs == 0 || hasGraph(node))
      return;
    if (isPacked && useOf(node) == CodeUse::unpacks) {
      storeSources(node, /*packed=*/true);
      isDerived = true;
    }
    if (isDerived) {
      storeSources(node, /*packed=*/false);
      return setOutputs(node, Known::derived);
    }
    setOutputs(node, isPacked && useOf(node) == CodeUse::rearranges
                         ? Known::packed
                         : Known::constant);
  }

  static bool hasGraph(const onnx::NodeProto &node) {
    return llvm::any_of(node.attribute(), [](const auto &attribute) {
      return attribute.has_g() || attribute.graphs_size() > 0;
    });
  }

  void setOutputs(const onnx::NodeProto &node, Known what) {
    for (const std::string &output : node.output())
      if (!output.empty())
        known[output] = what;
  }

  // Stores the initializers from which the node's constant inputs follow, with
  // `packed` those that hold several codes in an element.
  void storeSources(const onnx::NodeProto &node, bool packed) {
    llvm::SmallVector<const onnx::NodeProto *> stack = {&node};
    llvm::SmallPtrSet<const onnx::NodeProto *, 8> seen;
    while (!stack.empty()) {
      const onnx::NodeProto *each = stack.pop_back_val();
      for (const std::string &input : each->input()) {
        auto found = known.find(input);
        bool follows =
            found != known.end() &&
            found->second == (packed ? Known::packed : Known::constant);
        if (!follows)
          continue;
        if (auto size = sizes.find(input); size != sizes.end()) {
          if (size->second > kSmallSource)
            stored.insert(input);
        } else if (const onnx::NodeProto *producer = producers.lookup(input);
                   producer && seen.insert(producer).second) {
          stack.push_back(producer);
        }
      }
    }
  }

  /// Sources up to this size in bytes, such as codebooks, stay constants.
  static constexpr int64_t kSmallSource = 1024;

  const onnx::GraphProto &graph;
  const HandlerTable &handlers;
  llvm::StringMap<const onnx::NodeProto *> producers;
  llvm::StringMap<Known> known;
  llvm::StringMap<int64_t> sizes; // of initializers, in bytes
  llvm::StringSet<> stored, masks;
};

} // namespace

llvm::StringSet<> frontend::storedConstants(
    const onnx::GraphProto &graph, const HandlerTable &handlers,
    llvm::function_ref<bool(llvm::StringRef)> isParameter) {
  return Finder(graph, handlers).find(isParameter);
}
