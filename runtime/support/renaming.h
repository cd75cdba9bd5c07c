// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rules that change the names of tensors between a program and a file. A model
// is wrapped in a module that computes its loss, so its library knows
// 'model.lm_head.weight' as 'lm_head.weight'.
#pragma once

#include "runtime/support/status.h"

#include <string>
#include <vector>

namespace fsdpc::runtime {

class Renaming {
public:
  /// Parses rules "OLD=NEW": a name that begins with OLD begins with NEW
  /// instead; either may be empty. If both have a '*', it stands for the same
  /// text, and the rule is for whole names: "*.default.weight=*.weight". Errors
  /// begin with `flag`.
  static Result<Renaming> parse(const std::string &flag,
                                const std::vector<std::string> &rules);

  bool isEmpty() const { return rules.empty(); }
  /// Returns a name as the first rule that matches changes it.
  std::string operator()(const std::string &name) const;

  /// Fails if a rule changes none of these names, or if two of them become one.
  /// A name may not become empty, or that of a file's metadata.
  Status check(const std::vector<std::string> &names) const;

private:
  /// A name that begins with `begin` and ends with `end`, where the texts
  /// before and after the '*' of NEW replace them.
  struct Rule {
    std::string text, begin, end, newBegin, newEnd;
    bool matches(const std::string &name) const;
  };
  const Rule *ruleOf(const std::string &name) const;

  std::string flag;
  std::vector<Rule> rules;
};

} // namespace fsdpc::runtime
