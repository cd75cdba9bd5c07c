// Parses the metadata of torch's exporter. Metadata is a hint: text of an
// unexpected form yields nothing instead of an error.
#include "frontends/onnx/Metadata.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

StringRef frontend::metadata(const MetadataProps &props, StringRef key) {
  for (const auto &entry : props)
    if (entry.key() == key)
      return entry.value();
  return "";
}

// Takes every quoted string, whatever is between them. Of escapes it drops the
// backslash, which is right for quotes, the only escapes in names.
std::vector<std::string> frontend::parsePythonList(StringRef text) {
  std::vector<std::string> result;
  for (size_t i = 0; i < text.size(); ++i) {
    char quote = text[i];
    if (quote != '\'' && quote != '"')
      continue;
    std::string item;
    for (++i; i < text.size() && text[i] != quote; ++i) {
      if (text[i] == '\\' && i + 1 < text.size())
        ++i;
      item += text[i];
    }
    result.push_back(item);
  }
  return result;
}

// Lines have the form "name: KIND target='fqn'". Other lines are skipped.
std::vector<SignatureEntry> frontend::parseSignature(StringRef text) {
  std::vector<SignatureEntry> result;
  SmallVector<StringRef> lines;
  text.split(lines, '\n');
  for (StringRef line : lines) {
    auto [name, rest] = line.trim().split(": ");
    if (name.starts_with("#") || rest.empty())
      continue;
    auto [kind, arguments] = rest.split(' ');
    SignatureEntry entry{name.str(), kind.str(), ""};
    if (arguments.consume_front("target="))
      if (auto target = parsePythonList(arguments); !target.empty())
        entry.target = target.front();
    result.push_back(entry);
  }
  return result;
}

// The text reads "…[aten.embedding.default](args = (%weight, %ids, 0), …". A
// missing third argument, or -1, means that there is no padding index.
std::optional<int64_t> frontend::parsePaddingIndex(StringRef tracedNode) {
  auto [before, arguments] =
      tracedNode.split("aten.embedding.default](args = (");
  SmallVector<StringRef> parts;
  arguments.take_until([](char c) { return c == ')'; }).split(parts, ',');
  int64_t index;
  if (parts.size() < 3 || parts[2].trim().getAsInteger(10, index) || index < 0)
    return std::nullopt;
  return index;
}

StringRef frontend::inputKind(const onnx::ValueInfoProto &value) {
  StringRef kind = metadata(value.metadata_props(),
                            "pkg.torch.export.graph_signature.InputSpec.kind");
  // The value is "InputKind.PARAMETER" or "PARAMETER". Without a dot, rfind
  // returns npos and npos + 1 is 0.
  return kind.substr(kind.rfind('.') + 1);
}
