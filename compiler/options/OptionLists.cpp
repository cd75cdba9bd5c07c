// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parsers and printers of options with several values: those that are
// written in one text, separated by commas, and those of flags that repeat.
// Patterns are compiled here only to check them; the passes that match them
// compile them again.
#include "compiler/options/NamePatterns.h"
#include "compiler/options/OptionTypes.h"
#include "runtime/abi/init_rule.h"
#include "runtime/support/concat.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/GlobPattern.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace fsdpc::fsdp {

// ---- lists in one text ----

// Each part may have spaces around it, as Python's repr of a tuple prints them.
std::string OptionType<NumberPair>::parse(const OptionInfo &option,
                                          StringRef text, NumberPair &value) {
  auto [first, second] = text.split(',');
  for (auto [part, number] :
       {std::pair(first, &value.first), {second, &value.second}}) {
    if (part.trim().getAsDouble(*number))
      return "is not of the form " + option.placeholder.str();
    std::string fault = checkRange(*number, option.range);
    if (!fault.empty())
      return "has " + part.trim().str() + ", which " + fault;
  }
  return "";
}

std::string OptionType<NumberPair>::print(NumberPair value) {
  return printNumber(value.first) + "," + printNumber(value.second);
}

std::string OptionType<NumberTriple>::parse(const OptionInfo &option,
                                            StringRef text,
                                            NumberTriple &value) {
  SmallVector<StringRef> parts;
  text.split(parts, ',');
  // Coefficients have no range, as negative ones are usual; only NaN and
  // infinities are refused.
  double *numbers[] = {&value.a, &value.b, &value.c};
  if (parts.size() != std::size(numbers))
    return "is not of the form " + option.placeholder.str();
  for (auto [part, number] : llvm::zip_equal(parts, numbers))
    if (part.trim().getAsDouble(*number) || !std::isfinite(*number))
      return "has '" + part.trim().str() + "', which is not a number";
  return "";
}

std::string OptionType<NumberTriple>::print(NumberTriple value) {
  return printNumber(value.a) + "," + printNumber(value.b) + "," +
         printNumber(value.c);
}

// The scale is an f32 on the device, as torch.amp.GradScaler's.
static std::string checkScale(StringRef name, double value, double above,
                              double below) {
  if (value > above && value < below &&
      (below < 1e38 || std::isfinite(static_cast<float>(value))))
    return "";
  std::string text = "has " + name.str() + " " + printNumber(value) +
                     ", which is not above " + printNumber(above);
  return text + (below < 1e38 ? " and below " + printNumber(below)
                              : " or exceeds f32");
}

// Sets one `key=value` of a dynamic scale.
static std::string parseScalePart(StringRef part, LossScale &scale) {
  auto [key, text] = part.split('=');
  constexpr double most = std::numeric_limits<double>::infinity();
  if (key == "interval")
    return text.getAsInteger(10, scale.interval) || scale.interval < 1
               ? "has '" + part.str() + "', which is not a number of steps"
               : "";
  double *field = key == "init"      ? &scale.init
                  : key == "growth"  ? &scale.growth
                  : key == "backoff" ? &scale.backoff
                                     : nullptr;
  if (!field)
    return "has '" + part.str() +
           "', which sets none of init, growth, backoff, interval";
  if (text.getAsDouble(*field))
    return "has '" + part.str() + "', which is not a number";
  // growth > 1 and 0 < backoff < 1, or the scale could never recover or never
  // fall.
  return checkScale(key, *field, key == "growth" ? 1 : 0,
                    key == "backoff" ? 1 : most);
}

std::string OptionType<std::optional<LossScale>>::parse(
    const OptionInfo &option, StringRef text, std::optional<LossScale> &value) {
  // An unset option differs from "none": without one, f16 turns the scale on.
  LossScale &scale = value.emplace();
  if (text == "none")
    return "";
  SmallVector<StringRef> parts;
  text.split(parts, ',');
  if (parts.front() != "dynamic") {
    if (text.getAsDouble(scale.init))
      return "is not of the form " + option.placeholder.str();
    return checkScale("the scale", scale.init, 0,
                      std::numeric_limits<double>::infinity());
  }
  // The first part decides: keys belong to a dynamic scale only.
  scale = dynamicLossScale;
  for (StringRef part : llvm::drop_begin(parts))
    if (std::string fault = parseScalePart(part, scale); !fault.empty())
      return fault;
  return "";
}

std::string OptionType<std::optional<LossScale>>::print(
    const std::optional<LossScale> &value) {
  if (!value)
    return "";
  if (!value->isOn())
    return "none";
  if (!value->isDynamic())
    return printNumber(value->init);
  return concat("dynamic,init=", printNumber(value->init),
                ",growth=", printNumber(value->growth),
                ",backoff=", printNumber(value->backoff),
                ",interval=", value->interval);
}

std::string OptionType<std::vector<Gpu>>::parse(const OptionInfo &,
                                                StringRef text,
                                                std::vector<Gpu> &value) {
  value.clear();
  SmallVector<StringRef> parts;
  text.split(parts, ',');
  for (StringRef part : parts) {
    std::string fault = parseName(part, value.emplace_back());
    if (!fault.empty())
      return "has '" + part.str() + "', which " + fault;
  }
  // Enumerators are in the order of their age, as CompileOptions promises.
  llvm::sort(value);
  value.erase(llvm::unique(value), value.end());
  return "";
}

std::string OptionType<std::vector<Gpu>>::print(const std::vector<Gpu> &value) {
  return llvm::join(llvm::map_range(value, nameOf<Gpu>), ",");
}

// --offload may name these, in the order of the help.
static constexpr std::pair<StringLiteral, bool OffloadSet::*> offloads[] = {
    {"optimizer", &OffloadSet::optimizer},
    {"parameters", &OffloadSet::parameters},
    {"gradients", &OffloadSet::gradients},
    {"activations", &OffloadSet::activations}};

std::string OptionType<OffloadSet>::parse(const OptionInfo &, StringRef text,
                                          OffloadSet &value) {
  value = {};
  if (text == "none")
    return "";
  SmallVector<StringRef> parts;
  text.split(parts, ',');
  for (StringRef part : parts) {
    const auto *known = llvm::find_if(
        offloads, [&](auto &offload) { return offload.first == part; });
    if (known == std::end(offloads))
      return "has '" + part.str() +
             "', which is not one of optimizer, parameters, gradients, "
             "activations";
    value.*known->second = true;
  }
  return "";
}

std::string OptionType<OffloadSet>::print(OffloadSet value) {
  SmallVector<StringRef> names;
  for (auto &[name, isSet] : offloads)
    if (value.*isSet)
      names.push_back(name);
  return names.empty() ? "none" : llvm::join(names, ",");
}

// ---- lists of several uses ----

// Compiles the expression only to check it. The texts are kept, since the
// attribute needs them; the passes compile them again (NamePatterns).
std::string OptionType<Patterns>::parse(const OptionInfo &, StringRef text,
                                        Patterns &list) {
  std::string why;
  if (!NamePattern::compile(text, why))
    return "is not a regular expression: " + why;
  list.texts.push_back(text.str());
  return "";
}

std::string OptionType<Dimensions>::parse(const OptionInfo &option,
                                          StringRef text, Dimensions &list) {
  // Splits at the last '=', as the name of a dimension may contain one.
  auto [name, size] = text.rsplit('=');
  int64_t value;
  if (name.empty() || size.getAsInteger(10, value))
    return "is not of the form " + option.placeholder.str();
  if (value < 1)
    return "is not a positive size";
  list[name.str()] = value;
  return "";
}

Strings OptionType<Dimensions>::texts(const Dimensions &list) {
  Strings texts;
  for (const auto &[name, value] : list)
    texts.push_back(concat(name, "=", value));
  return texts;
}

// Returns an empty string if `text` is a glob, else the fault.
static std::string checkGlob(StringRef text) {
  llvm::Expected<llvm::GlobPattern> pattern = llvm::GlobPattern::create(text);
  return pattern ? ""
                 : "has '" + text.str() + "', which is not a glob: " +
                       llvm::toString(pattern.takeError());
}

std::string OptionType<InitRules>::parse(const OptionInfo &, StringRef text,
                                         InitRules &list) {
  auto [glob, rule] = text.split('=');
  if (auto parsed = parseInitRule(rule.str()); !parsed)
    return "has the rule '" + rule.str() + "', which " + parsed.error().message;
  std::string fault = checkGlob(glob);
  if (!fault.empty())
    return fault;
  list.push_back({glob.str(), rule.str()});
  return "";
}

Strings OptionType<InitRules>::texts(const InitRules &list) {
  Strings texts;
  for (const InitRule &entry : list)
    texts.push_back(entry.glob + "=" + entry.rule);
  return texts;
}

std::string OptionType<GradientRules>::parse(const OptionInfo &option,
                                             StringRef text,
                                             GradientRules &list) {
  auto [output, parameter] = text.split('=');
  if (output.empty() || parameter.empty())
    return "is not of the form " + option.placeholder.str();
  size_t stars = output.count('*');
  if (stars > 1 || stars != parameter.count('*'))
    return "has not one '*' on each side, or none on both";
  list.push_back({output.str(), parameter.str()});
  return "";
}

Strings OptionType<GradientRules>::texts(const GradientRules &list) {
  Strings texts;
  for (const GradientRule &rule : list)
    texts.push_back(rule.output + "=" + rule.parameter);
  return texts;
}

std::string OptionType<StrategyRules>::parse(const OptionInfo &option,
                                             StringRef text,
                                             StrategyRules &list) {
  // Split at the last '=', since a name may hold one and a strategy cannot.
  auto [glob, name] = text.rsplit('=');
  if (glob.empty() || name.empty())
    return "is not of the form " + option.placeholder.str();
  StrategyRule rule{glob.str(), {}};
  std::string fault = parseName(name, rule.strategy);
  if (!fault.empty())
    return "has '" + name.str() + "', which " + fault;
  fault = checkGlob(glob);
  if (fault.empty())
    list.push_back(std::move(rule));
  return fault;
}

Strings OptionType<StrategyRules>::texts(const StrategyRules &list) {
  Strings texts;
  for (const StrategyRule &rule : list)
    texts.push_back(rule.glob + "=" + nameOf(rule.strategy).str());
  return texts;
}

} // namespace fsdpc::fsdp
