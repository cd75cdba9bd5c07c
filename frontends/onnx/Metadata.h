// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The metadata that torch's exporter writes beside the graph: module scopes,
// the signature, the traced nodes.
#pragma once

#include "mlir/Support/LLVM.h"
#include "onnx-ml.pb.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdpc::frontend {

using MetadataProps =
    google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>;

/// Returns the value of a key, or "" if it is absent.
llvm::StringRef metadata(const MetadataProps &props, llvm::StringRef key);

/// Parses Python's repr of a list of strings.
std::vector<std::string> parsePythonList(llvm::StringRef text);

struct SignatureEntry {
  std::string name;   ///< in the traced graph: p_h_0_attn_weight
  std::string kind;   ///< PARAMETER, BUFFER, USER_INPUT …
  std::string target; ///< the fully qualified name; empty for inputs
};
/// Parses `pkg.torch.export.ExportedProgram.graph_signature`, which has one
/// entry per line.
std::vector<SignatureEntry> parseSignature(llvm::StringRef text);

/// The call from which torch's exporter has made a node.
struct TracedCall {
  llvm::StringRef target;                       ///< aten.embedding.default
  llvm::SmallVector<llvm::StringRef> arguments; ///< by position, in Python
  llvm::SmallVector<std::pair<llvm::StringRef, llvm::StringRef>> keywords;

  /// Returns the text of an argument that is given by position or by name, or
  /// "" if it has its default.
  llvm::StringRef argument(size_t position, llvm::StringRef name) const;
};
/// Parses `pkg.torch.onnx.fx_node`. The result refers to `text`; it is empty if
/// the text is not a call of a torch op.
TracedCall parseTracedCall(llvm::StringRef text);

/// Returns the call's padding index if it is an embedding that has one.
std::optional<int64_t> paddingIndexOf(const TracedCall &call);
/// Returns the call's label smoothing, 0 if it is not a cross-entropy.
double labelSmoothingOf(const TracedCall &call);
/// Returns true for torch's detach: no gradient passes its result.
bool isDetach(const TracedCall &call);
/// Returns true for torch's clamp, clamp_min and clamp_max.
bool isClamp(const TracedCall &call);
/// Returns true for torch's max and min along a dimension: of equal extremes
/// the first has the gradient.
bool picksExtreme(const TracedCall &call);

/// Returns the kind of a value (PARAMETER, BUFFER, CONSTANT_TENSOR …), or "" if
/// it is unknown.
llvm::StringRef inputKind(const onnx::ValueInfoProto &value);

} // namespace fsdpc::frontend
