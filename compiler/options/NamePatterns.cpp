// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles and matches expressions on names, and lists near names where one
// matches nothing: a misspelt expression would otherwise quietly train another
// model than was meant.
#include "compiler/options/NamePatterns.h"

#include "llvm/ADT/SetVector.h"

#include <re2/re2.h>

using namespace mlir;

namespace fsdpc::fsdp {

static re2::StringPiece piece(StringRef text) {
  return {text.data(), text.size()};
}

std::optional<NamePattern> NamePattern::compile(StringRef text,
                                                std::string &error) {
  NamePattern result;
  // Without Quiet, RE2 would also write a message of its own to stderr.
  result.regex = std::make_shared<re2::RE2>(piece(text), re2::RE2::Quiet);
  if (result.regex->ok())
    return result;
  error = result.regex->error();
  return std::nullopt;
}

bool NamePattern::match(StringRef name) const {
  return re2::RE2::PartialMatch(piece(name), *regex);
}

FailureOr<NamePatterns> NamePatterns::compile(Location loc, StringRef flag,
                                              ArrayRef<std::string> texts) {
  NamePatterns result;
  result.flag = flag.str();
  for (const std::string &text : texts) {
    std::string why;
    std::optional<NamePattern> pattern = NamePattern::compile(text, why);
    if (!pattern)
      return emitError(loc) << "--" << flag << " '" << text
                            << "' is not a valid regular expression: " << why;
    result.patterns.push_back({text, std::move(*pattern)});
  }
  return result;
}

// Tries every expression, even after a match: checkUsed reports those that
// never matched, and a name may be covered by two.
bool NamePatterns::match(StringRef name) {
  bool any = false;
  for (Entry &entry : patterns)
    if (entry.pattern.match(name))
      any = entry.used = true;
  return any;
}

LogicalResult NamePatterns::checkUsed(Location loc, ArrayRef<StringRef> names,
                                      StringRef what) const {
  for (const Entry &entry : patterns)
    if (!entry.used)
      return emitError(loc)
             << "--" << flag << " '" << entry.text << "' matches no " << what
             << "; available: " << listNearest(entry.text, names);
  return success();
}

// `text` is what near names are measured against, `value` what the user wrote.
void FirstMatch::add(StringRef text, std::string value, Matcher matches) {
  entries.push_back(
      {text.str(), std::move(value), std::move(matches), false, std::nullopt});
}

// Tries every expression, even after a match: checkUsed tells one that matches
// nothing from one that others hide.
std::optional<size_t> FirstMatch::find(ArrayRef<StringRef> names) {
  std::optional<size_t> first;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!llvm::any_of(names, entries[i].matches))
      continue;
    if (first) {
      entries[i].hiddenBy = first;
    } else {
      entries[i].isFirst = true;
      first = i;
    }
  }
  return first;
}

LogicalResult FirstMatch::checkUsed(Location loc, ArrayRef<StringRef> names,
                                    StringRef what) const {
  for (const Entry &entry : entries) {
    if (entry.isFirst)
      continue;
    InFlightDiagnostic error = emitError(loc)
                               << "--" << flag << " '" << entry.value << "' ";
    if (entry.hiddenBy)
      return error << "has no effect: every " << what
                   << " that it matches is matched by an earlier one, such as '"
                   << entries[*entry.hiddenBy].value
                   << "', and the first counts; put it first";
    return error << "matches no " << what
                 << "; available: " << listNearest(entry.text, names);
  }
  return success();
}

// Sorts by edit distance to the text of the expression. That is crude for a
// regular expression, but puts the name that was misspelt first.
std::string listNearest(StringRef text, ArrayRef<StringRef> names) {
  constexpr size_t shown = 8;
  llvm::SetVector<StringRef> distinct(names.begin(), names.end());
  SmallVector<std::pair<unsigned, StringRef>> sorted;
  for (StringRef name : distinct)
    sorted.emplace_back(text.edit_distance(name), name);
  // Stable: names at the same distance stay in the order of the model.
  llvm::stable_sort(sorted, llvm::less_first());
  std::string list;
  for (size_t i = 0; i < sorted.size() && i < shown; ++i)
    list += (Twine(i ? ", '" : "'") + sorted[i].second + "'").str();
  if (sorted.size() > shown)
    list += (" and " + Twine(sorted.size() - shown) + " more").str();
  return list.empty() ? "none" : list;
}

} // namespace fsdpc::fsdp
