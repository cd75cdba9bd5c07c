// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses and checks the settings of --group, and applies them to the options.
// The keys are those of torch.optim's param_groups, with underscores; ranges
// and forms of the values are those of the flags (OptionTable.cpp), so a
// hyperparameter that is new there can be given to a group as well.
#include "compiler/options/GroupOptions.h"

#include "compiler/options/NamePatterns.h"
#include "compiler/options/Optimizers.h"
#include "compiler/options/OptionTypes.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace fsdpc::fsdp {

// --no-decay says of itself which parameters it concerns.
static bool mayGroupSet(const OptionInfo &option) {
  return llvm::is_contained({"lr", "optimizer", "maximize"}, option.name) ||
         (isHyperparameter(option) && option.name != "no-decay");
}

// The key of an option: its name with underscores, as a Python user writes it.
static std::string keyOf(StringRef option) {
  std::string key = option.str();
  llvm::replace(key, '-', '_');
  return key;
}

// Returns the option of a key, or null. Dashes are those of the flags.
static const OptionInfo *findSetting(StringRef key) {
  for (const OptionInfo &option : allOptions())
    if (mayGroupSet(option) && keyOf(option.name) == key)
      return &option;
  return nullptr;
}

static std::string meantSetting(StringRef key) {
  std::vector<std::string> keys;
  for (const OptionInfo &option : allOptions())
    if (mayGroupSet(option))
      keys.push_back(keyOf(option.name));
  SmallVector<StringRef> names(keys.begin(), keys.end());
  return meant(key, names);
}

const std::string *ParameterGroup::find(StringRef option) const {
  for (const auto &[name, text] : settings)
    if (name == option)
      return &text;
  return nullptr;
}

// The text is kept as its option prints it, so that a dump has one form.
static std::string parseSetting(StringRef part, ParameterGroup &group) {
  auto [key, text] = part.split('=');
  const OptionInfo *option = findSetting(key);
  if (!option)
    return "sets '" + key.str() + "', which a group cannot set" +
           meantSetting(key);
  if (group.find(option->name))
    return "sets '" + key.str() + "' twice";
  // The dump would have to hold the file's text.
  if (option->name == "optimizer" && text.ends_with(".mlir"))
    return "has '" + part.str() +
           "', but only --optimizer takes a file; give " +
           "it there, and groups to the other parameters";
  // A scratch parse gives the printed form, and the group keeps that text. The
  // options themselves change only when ofGroup applies it.
  CompileOptions scratch;
  std::string fault = option->parse(*option, text, scratch);
  if (!fault.empty())
    return "has '" + part.str() + "', where '" + text.str() + "' " + fault;
  group.settings.emplace_back(option->name, option->print(scratch));
  return "";
}

std::string OptionType<GroupList>::parse(const OptionInfo &option,
                                         StringRef text, GroupList &list) {
  // Split at the last ": ", because an expression may hold one.
  auto [pattern, settings] = text.rsplit(": ");
  if (pattern.empty() || settings.trim().empty())
    return "is not of the form '" + option.placeholder.str() + "'";
  std::string why;
  if (!NamePattern::compile(pattern, why))
    return "has '" + pattern.str() +
           "', which is not a regular expression: " + why;
  ParameterGroup group{pattern.str(), {}};
  SmallVector<StringRef> parts;
  settings.split(parts, ' ', -1, /*KeepEmpty=*/false);
  for (StringRef part : parts)
    if (std::string fault = parseSetting(part, group); !fault.empty())
      return fault;
  list.push_back(std::move(group));
  return "";
}

Strings OptionType<GroupList>::texts(const GroupList &list) {
  Strings texts;
  for (const ParameterGroup &group : list) {
    std::string text = group.pattern + ":";
    for (const auto &[option, value] : group.settings)
      text += " " + keyOf(option) + "=" + value;
    texts.push_back(std::move(text));
  }
  return texts;
}

// The hyperparameters of another optimizer, and its learning rate, start from
// their defaults; they then count as not given.
static void changeOptimizer(CompileOptions &options, StringRef name) {
  const OptimizerInfo *other = options.optimizer.info;
  [[maybe_unused]] std::string fault = parseName(name, other);
  assert(fault.empty() && "the option's parser has checked the name");
  if (other == options.optimizer.info)
    return;
  const CompileOptions defaults;
  for (const OptionInfo &option : allOptions()) {
    if (option.name == "maximize" || !mayGroupSet(option))
      continue;
    option.copy(defaults, options);
    std::erase(options.given, &option);
  }
  options.optimizer = OptimizerChoice(*other);
}

CompileOptions CompileOptions::ofGroup(const ParameterGroup &group) const {
  CompileOptions options = *this;
  if (const std::string *name = group.find("optimizer"))
    changeOptimizer(options, *name);
  for (const auto &[option, text] : group.settings) {
    if (option == "optimizer")
      continue;
    [[maybe_unused]] std::string fault =
        setOption(*findOption(option), text, options);
    assert(fault.empty() && "the group's parser has checked the value");
  }
  return options;
}

std::string checkGroups(const CompileOptions &options) {
  for (const ParameterGroup &group : options.groups) {
    CompileOptions own = options.ofGroup(group);
    std::string flag = "'--group=" + group.pattern + ": ...'";
    for (const auto &[name, text] : group.settings) {
      const OptionInfo &option = *findOption(name);
      if (isHyperparameter(option) && !takes(*own.optimizer.info, name))
        return flag + " sets " + keyOf(name) +
               ", which optimizer=" + own.optimizer.name() +
               " does not take; it needs optimizer=" +
               llvm::join(neededValues(option), "|");
    }
    if (options.lr() == 0 && own.lr() != 0)
      return flag + " with an lr needs '--lr' above 0, since the program " +
             "keeps their ratio";
    if (std::string fault = checkHyperparameters(own); !fault.empty())
      return flag + ": " + fault;
  }
  return "";
}

// The options that decide the program of an update, as text. Defaults are
// written out, since it does not matter whether they were given.
static std::string programText(CompileOptions options) {
  options.givenBetas = options.betas();
  options.givenEps = options.eps();
  options.givenMomentum = options.momentum();
  options.givenAlpha = options.alpha();
  std::string text;
  for (const OptionInfo &option : allOptions())
    if (mayGroupSet(option) && option.name != "lr" &&
        option.name != "weight-decay")
      text += option.print(options) + " ";
  return text;
}

std::vector<size_t> programsOf(const CompileOptions &options) {
  std::vector<std::string> texts = {programText(options)};
  // Text 0 is the options' own program. llvm::find returns the first equal
  // text, so groups with equal programs share its number and later their
  // layout.
  std::vector<size_t> programs;
  for (const ParameterGroup &group : options.groups) {
    texts.push_back(programText(options.ofGroup(group)));
    programs.push_back(llvm::find(texts, texts.back()) - texts.begin());
  }
  return programs;
}

} // namespace fsdpc::fsdp
