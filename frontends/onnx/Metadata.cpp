// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses the metadata of torch's exporter, most of which is Python's repr of
// something. Metadata is a hint: text of an unexpected form yields nothing
// instead of an error.
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

// Takes every quoted string, whatever is between them. It drops the backslash
// of escapes, which is right for quotes, the only escapes in names.
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

// Splits at the commas that are outside of all brackets.
static SmallVector<StringRef> splitArguments(StringRef text) {
  SmallVector<StringRef> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    char c = i < text.size() ? text[i] : ',';
    if (StringRef("([{").contains(c))
      ++depth;
    else if (StringRef(")]}").contains(c))
      --depth;
    if (c != ',' || depth > 0)
      continue;
    // A tuple of one element ends with a comma.
    if (StringRef part = text.slice(begin, i).trim(); !part.empty())
      parts.push_back(part);
    begin = i + 1;
  }
  return parts;
}

// Returns the text up to the bracket that closes what `text` is inside of.
static StringRef untilClosed(StringRef text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (StringRef("([{").contains(text[i]))
      ++depth;
    else if (StringRef(")]}").contains(text[i]) && --depth < 0)
      return text.take_front(i);
  }
  return "";
}

StringRef TracedCall::argument(size_t position, StringRef name) const {
  if (position < arguments.size())
    return arguments[position];
  for (auto [keyword, value] : keywords)
    if (keyword == name)
      return value;
  return "";
}

// The text reads "… = call_function[target=torch.ops.aten.x.default](args =
// (%a, [1, 2]), kwargs = {name: value})".
TracedCall frontend::parseTracedCall(StringRef text) {
  TracedCall call;
  auto [before, after] = text.split("[target=torch.ops.");
  auto [target, rest] = after.split("](args = (");
  if (rest.empty())
    return call;
  call.target = target;
  StringRef arguments = untilClosed(rest);
  call.arguments = splitArguments(arguments);
  StringRef keywords = rest.substr(arguments.size());
  if (keywords.consume_front("), kwargs = {"))
    for (StringRef part : splitArguments(untilClosed(keywords)))
      call.keywords.push_back(part.split(": "));
  return call;
}

// -1 means that there is no padding index.
std::optional<int64_t> frontend::paddingIndexOf(const TracedCall &call) {
  int64_t index;
  if (call.target != "aten.embedding.default" ||
      call.argument(2, "padding_idx").getAsInteger(10, index) || index < 0)
    return std::nullopt;
  return index;
}

double frontend::labelSmoothingOf(const TracedCall &call) {
  double smoothing;
  if (!call.target.starts_with("aten.cross_entropy_loss.") ||
      call.argument(5, "label_smoothing").getAsDouble(smoothing))
    return 0;
  return smoothing;
}

bool frontend::isDetach(const TracedCall &call) {
  return call.target.starts_with("aten.detach.") ||
         call.target.starts_with("aten.detach_copy.");
}

bool frontend::isClamp(const TracedCall &call) {
  return call.target.starts_with("aten.clamp");
}

bool frontend::picksExtreme(const TracedCall &call) {
  return call.target == "aten.max.dim" || call.target == "aten.min.dim";
}

StringRef frontend::inputKind(const onnx::ValueInfoProto &value) {
  StringRef kind = metadata(value.metadata_props(),
                            "pkg.torch.export.graph_signature.InputSpec.kind");
  // The value is "InputKind.PARAMETER" or "PARAMETER". Without a dot, rfind
  // returns npos and npos + 1 is 0.
  return kind.substr(kind.rfind('.') + 1);
}
