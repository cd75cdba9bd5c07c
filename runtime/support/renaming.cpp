// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A rule without '*' is one whose '*' stands at the end of both sides.
#include "runtime/support/renaming.h"
#include "runtime/support/spelling.h"

#include <algorithm>
#include <map>
#include <set>

namespace fsdpc::runtime {

Result<Renaming> Renaming::parse(const std::string &flag,
                                 const std::vector<std::string> &texts) {
  Renaming renaming;
  renaming.flag = flag;
  for (const std::string &text : texts) {
    size_t equals = text.find('=');
    // Which of several '=' is meant would be a guess.
    bool isRule = text.size() > 1 && equals != std::string::npos &&
                  text.find('=', equals + 1) == std::string::npos;
    std::string from = text.substr(0, equals),
                to = isRule ? text.substr(equals + 1) : "";
    auto stars = [](const std::string &side) {
      return std::count(side.begin(), side.end(), '*');
    };
    if (!isRule || stars(from) != stars(to) || stars(from) > 1)
      return commandLineError(
          flag + ": '" + printable(text) +
          "' is not of the form OLD=NEW, such as 'model.=' or "
          "'*.default.weight=*.weight'");
    auto cut = [](const std::string &side) {
      size_t star = side.find('*');
      return star == std::string::npos
                 ? std::pair(side, std::string())
                 : std::pair(side.substr(0, star), side.substr(star + 1));
    };
    auto [begin, end] = cut(from);
    auto [newBegin, newEnd] = cut(to);
    renaming.rules.push_back({text, begin, end, newBegin, newEnd});
  }
  return renaming;
}

bool Renaming::Rule::matches(const std::string &name) const {
  return name.size() >= begin.size() + end.size() && name.starts_with(begin) &&
         name.ends_with(end);
}

const Renaming::Rule *Renaming::ruleOf(const std::string &name) const {
  auto rule = std::find_if(rules.begin(), rules.end(), [&](const Rule &each) {
    return each.matches(name);
  });
  return rule == rules.end() ? nullptr : &*rule;
}

std::string Renaming::operator()(const std::string &name) const {
  const Rule *rule = ruleOf(name);
  if (!rule)
    return name;
  size_t kept = name.size() - rule->begin.size() - rule->end.size();
  return rule->newBegin + name.substr(rule->begin.size(), kept) + rule->newEnd;
}

Status Renaming::check(const std::vector<std::string> &names) const {
  if (rules.empty())
    return {};
  std::map<std::string, std::string> taken;
  std::set<const Rule *> used;
  for (const std::string &name : names) {
    used.insert(ruleOf(name));
    std::string changed = (*this)(name);
    // The header of a safetensors file has its metadata under that name.
    if (changed.empty() || changed == "__metadata__")
      return commandLineError(flag + ": '" + printable(name) + "' would be '" +
                              changed + "', which no tensor can be called");
    auto [other, isNew] = taken.emplace(changed, name);
    if (!isNew)
      return commandLineError(flag + ": '" + printable(other->second) +
                              "' and '" + printable(name) +
                              "' would both be '" + printable(other->first) +
                              "'");
  }
  for (const Rule &rule : rules)
    if (!used.count(&rule))
      return commandLineError(flag + ": '" + printable(rule.text) +
                              "' changes no name; the first is '" +
                              (names.empty() ? "" : printable(names[0])) + "'");
  return {};
}

} // namespace fsdpc::runtime
