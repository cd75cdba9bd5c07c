// What torch's exporter writes beside the graph: module scopes, the signature,
// the traced nodes.
#pragma once

#include "mlir/Support/LLVM.h"
#include "onnx-ml.pb.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdpc::frontend {

using MetadataProps =
    google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>;

// The value of a key, empty where there is none.
llvm::StringRef metadata(const MetadataProps &props, llvm::StringRef key);

// Python's repr of a list of strings.
std::vector<std::string> parsePythonList(llvm::StringRef text);

struct SignatureEntry {
  std::string name;   // of the traced graph: p_h_0_attn_weight
  std::string kind;   // PARAMETER, BUFFER, USER_INPUT …
  std::string target; // the FQN; empty for inputs
};
// `pkg.torch.export.ExportedProgram.graph_signature`: a line an entry.
std::vector<SignatureEntry> parseSignature(llvm::StringRef text);

// The padding index of `aten.embedding.default` in `pkg.torch.onnx.fx_node`:
// its third argument, where it is there and not negative.
std::optional<int64_t> parsePaddingIndex(llvm::StringRef tracedNode);

// Kind of a value (PARAMETER, BUFFER, CONSTANT_TENSOR …), empty where unknown.
llvm::StringRef inputKind(const onnx::ValueInfoProto &value);

} // namespace fsdpc::frontend
