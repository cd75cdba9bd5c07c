// Matching of names by regular expressions.
#include "compiler/dialects/fsdp/Names.h"

#include "compiler/dialects/fsdp/Options.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace fsdpc::fsdp {

// POSIX expressions lack Python's character classes.
static std::string toPosix(StringRef text) {
  std::string posix;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      posix += text[i];
      continue;
    }
    char escaped = text[++i];
    if (escaped == 'd')
      posix += "[0-9]";
    else if (escaped == 'w')
      posix += "[A-Za-z0-9_]";
    else if (escaped == 's')
      posix += "[[:space:]]";
    else
      posix += {'\\', escaped};
  }
  return posix;
}

FailureOr<NamePatterns> NamePatterns::read(ModuleOp module, StringRef flag) {
  NamePatterns result;
  result.flag = flag.str();
  for (std::string &text : getStrings(module, flag)) {
    llvm::Regex regex(toPosix(text));
    std::string why;
    if (!regex.isValid(why))
      return emitError(module.getLoc())
             << "--" << flag << " '" << text
             << "' is no regular expression: " << why;
    result.patterns.push_back({std::move(text), std::move(regex)});
  }
  return result;
}

bool NamePatterns::match(StringRef name) {
  bool any = false;
  for (Pattern &pattern : patterns)
    if (pattern.regex.match(name))
      any = pattern.used = true;
  return any;
}

bool NamePatterns::match(ParameterOp parameter) {
  bool any = match(parameter.getSymName());
  if (auto aliases = parameter.getAliasesAttr())
    for (auto alias : aliases.getAsRange<StringAttr>())
      any |= match(alias.getValue());
  return any;
}

LogicalResult NamePatterns::checkUsed(ModuleOp module,
                                      ArrayRef<StringRef> names,
                                      StringRef what) const {
  for (const Pattern &pattern : patterns)
    if (!pattern.used)
      return emitError(module.getLoc())
             << "--" << flag << " '" << pattern.text << "' matches no " << what
             << "; there are " << listNearest(pattern.text, names);
  return success();
}

std::string listNearest(StringRef text, ArrayRef<StringRef> names) {
  constexpr size_t shown = 8;
  llvm::SetVector<StringRef> distinct(names.begin(), names.end());
  SmallVector<std::pair<unsigned, StringRef>> sorted;
  for (StringRef name : distinct)
    sorted.emplace_back(text.edit_distance(name), name);
  llvm::stable_sort(sorted, llvm::less_first());
  std::string list;
  for (size_t i = 0; i < sorted.size() && i < shown; ++i)
    list += (Twine(i ? ", '" : "'") + sorted[i].second + "'").str();
  if (sorted.size() > shown)
    list += (" and " + Twine(sorted.size() - shown) + " more").str();
  return list.empty() ? "none" : list;
}

} // namespace fsdpc::fsdp
