// The names of enums' values, and the parsers and printers of the types that
// options have. Numbers print as the shortest text that reads back to the same
// value, sizes with the largest unit that divides them, so that a value keeps
// its text from the command line to a dump and back.
#include "compiler/dialects/fsdp/OptionTypes.h"

#include "compiler/dialects/fsdp/Names.h"
#include "compiler/dialects/fsdp/Optimizers.h"
#include "shared/foreign_names.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/GlobPattern.h"
#include "llvm/Support/MemoryBuffer.h"

#include <charconv>
#include <cmath>

using namespace mlir;
using fsdpc::schedule::ElementType;
using fsdpc::schedule::Prefetch;

namespace fsdpc::fsdp {

// ---- names of enums' values ----

template <> ArrayRef<EnumName<TrainingMode>> enumNames() {
  static constexpr EnumName<TrainingMode> names[] = {
      {"graph", TrainingMode::Graph},
      {"on", TrainingMode::On},
      {"off", TrainingMode::Off}};
  return names;
}

// The aliases are the names of PyTorch's FSDP.
template <> ArrayRef<EnumName<Strategy>> enumNames() {
  static constexpr EnumName<Strategy> names[] = {
      {"ddp", Strategy::DDP},
      {"zero1", Strategy::Zero1},
      {"zero2", Strategy::Zero2},
      {"zero3", Strategy::Zero3},
      {"hybrid", Strategy::Hybrid},
      {"hybrid_zero2", Strategy::HybridZero2},
      {"no_shard", Strategy::DDP},
      {"shard_grad_op", Strategy::Zero2},
      {"full_shard", Strategy::Zero3},
      {"hybrid_shard", Strategy::Hybrid},
      {"hybrid_shard_zero2", Strategy::HybridZero2}};
  return names;
}

template <> ArrayRef<EnumName<UnitRule>> enumNames() {
  static constexpr EnumName<UnitRule> names[] = {{"auto", UnitRule::Auto},
                                                 {"whole", UnitRule::Whole}};
  return names;
}

template <> ArrayRef<EnumName<ReductionTime>> enumNames() {
  static constexpr EnumName<ReductionTime> names[] = {
      {"microbatch", ReductionTime::Microbatch}, {"step", ReductionTime::Step}};
  return names;
}

template <> ArrayRef<EnumName<ElementType>> enumNames() {
  static constexpr EnumName<ElementType> names[] = {{"f32", ElementType::F32},
                                                    {"bf16", ElementType::BF16},
                                                    {"f16", ElementType::F16}};
  return names;
}

template <> ArrayRef<EnumName<Optimizer>> enumNames() {
  static const SmallVector<EnumName<Optimizer>> names =
      llvm::map_to_vector(allOptimizers(), [](const OptimizerInfo &info) {
        return EnumName<Optimizer>{info.name, info.optimizer};
      });
  return names;
}

template <> ArrayRef<EnumName<Prefetch>> enumNames() {
  static constexpr EnumName<Prefetch> names[] = {{"none", Prefetch::None},
                                                 {"post", Prefetch::Post},
                                                 {"pre", Prefetch::Pre},
                                                 {"auto", Prefetch::Auto}};
  return names;
}

template <> ArrayRef<EnumName<RecomputeLevel>> enumNames() {
  static constexpr EnumName<RecomputeLevel> names[] = {
      {"none", RecomputeLevel::None},
      {"cheap", RecomputeLevel::Cheap},
      {"units", RecomputeLevel::Units}};
  return names;
}

template <> ArrayRef<EnumName<Target>> enumNames() {
  static constexpr EnumName<Target> names[] = {
      {"host", Target::Host},
      {"cuda", Target::Cuda},
      {"cuda-emulation", Target::CudaEmulation}};
  return names;
}

template <> ArrayRef<EnumName<Gpu>> enumNames() {
  static constexpr EnumName<Gpu> names[] = {
      {"sm_80", Gpu::SM80}, {"sm_86", Gpu::SM86},   {"sm_89", Gpu::SM89},
      {"sm_90", Gpu::SM90}, {"sm_100", Gpu::SM100}, {"sm_120", Gpu::SM120}};
  return names;
}

template <> ArrayRef<EnumName<AttentionKernel>> enumNames() {
  static constexpr EnumName<AttentionKernel> names[] = {
      {"auto", AttentionKernel::Auto},
      {"cudnn", AttentionKernel::Cudnn},
      {"products", AttentionKernel::Products}};
  return names;
}

template <> ArrayRef<EnumName<Cpu>> enumNames() {
  static constexpr EnumName<Cpu> names[] = {{"native", Cpu::Native},
                                            {"x86-64-v3", Cpu::X86_64_V3},
                                            {"x86-64-v4", Cpu::X86_64_V4}};
  return names;
}

FloatType floatType(ElementType type, MLIRContext *context) {
  switch (type) {
  case ElementType::F32:
    return Float32Type::get(context);
  case ElementType::BF16:
    return BFloat16Type::get(context);
  case ElementType::F16:
    return Float16Type::get(context);
  }
  llvm_unreachable("covered above");
}

// The first name of a value counts, so aliases are read and never written.
template <typename Enum> StringRef nameOf(Enum value) {
  for (const EnumName<Enum> &entry : enumNames<Enum>())
    if (entry.value == value)
      return entry.name;
  llvm_unreachable("every value has a name");
}

template <typename Enum> std::string joinNames() {
  std::string text;
  for (const EnumName<Enum> &entry : enumNames<Enum>())
    text += (text.empty() ? "" : "|") + entry.name.str();
  return text;
}

// Names are case-sensitive. The fault lists all of them, and the one that
// stands for another tool's name, or else the nearest one.
template <typename Enum> std::string parseName(StringRef text, Enum &value) {
  std::string native = nativeValue(text);
  const EnumName<Enum> *nearest = nullptr;
  for (const EnumName<Enum> &entry : enumNames<Enum>()) {
    if (entry.name == text) {
      value = entry.value;
      return "";
    }
    if (!nearest ||
        (nearest->name != native &&
         (entry.name == native ||
          text.edit_distance(entry.name) < text.edit_distance(nearest->name))))
      nearest = &entry;
  }
  return "is none of " + joinNames<Enum>() + "; did you mean '" +
         nearest->name.str() + "'?";
}

// Instantiates the templates for each enum, since their bodies are here and not
// in the header.
#define FSDPC_OPTION_ENUM(Enum)                                                \
  template StringRef nameOf(Enum);                                             \
  template std::string joinNames<Enum>();                                      \
  template std::string parseName(StringRef, Enum &);
FSDPC_OPTION_ENUM(TrainingMode)
FSDPC_OPTION_ENUM(Strategy)
FSDPC_OPTION_ENUM(UnitRule)
FSDPC_OPTION_ENUM(ReductionTime)
FSDPC_OPTION_ENUM(ElementType)
FSDPC_OPTION_ENUM(Optimizer)
FSDPC_OPTION_ENUM(Prefetch)
FSDPC_OPTION_ENUM(RecomputeLevel)
FSDPC_OPTION_ENUM(Target)
FSDPC_OPTION_ENUM(Gpu)
FSDPC_OPTION_ENUM(AttentionKernel)
FSDPC_OPTION_ENUM(Cpu)
#undef FSDPC_OPTION_ENUM

// ---- optimizers ----

std::string OptimizerChoice::name() const {
  return kind == Optimizer::User ? file : nameOf(kind).str();
}

std::string OptionType<OptimizerChoice>::parse(const OptionInfo &,
                                               StringRef text,
                                               OptimizerChoice &value) {
  value = {};
  if (!text.ends_with(".mlir"))
    return parseName(text, value.kind);
  auto buffer = llvm::MemoryBuffer::getFile(text, /*IsText=*/true);
  if (!buffer)
    return "cannot be read: " + buffer.getError().message();
  value = {Optimizer::User, text.str(), (*buffer)->getBuffer().str()};
  return "";
}

std::string OptionType<OptimizerChoice>::read(const OptionInfo &,
                                              Attribute attribute,
                                              OptimizerChoice &value) {
  value = {};
  if (auto name = dyn_cast<StringAttr>(attribute))
    return parseName(name.getValue(), value.kind);
  auto array = dyn_cast<ArrayAttr>(attribute);
  if (!array || array.size() != 2 ||
      !llvm::all_of(array, llvm::IsaPred<StringAttr>))
    return wrongAttribute("a name, or the name of a file and its text");
  auto part = [&](unsigned i) { return cast<StringAttr>(array[i]).str(); };
  value = {Optimizer::User, part(0), part(1)};
  return "";
}

Attribute OptionType<OptimizerChoice>::write(const OptimizerChoice &value,
                                             Builder builder) {
  if (value.kind == Optimizer::User)
    return builder.getStrArrayAttr({value.file, value.text});
  return builder.getStringAttr(value.name());
}

// ---- numbers ----

// std::to_chars gives the shortest decimal that reads back to the same bits,
// independent of the locale.
std::string printNumber(double value) {
  char buffer[32];
  auto end = std::to_chars(buffer, std::end(buffer), value);
  return {buffer, end.ptr};
}

// NaN compares false with both bounds, so it is refused by name.
std::string checkRange(double value, NumberRange range) {
  if (std::isnan(value))
    return "is not a number";
  if (value < range.low)
    return "is less than " + printNumber(range.low);
  if (std::isinf(value))
    return "is not finite";
  if (value >= range.below && std::isfinite(range.below))
    return "is not less than " + printNumber(range.below);
  return "";
}

std::string parseNumber(StringRef text, NumberRange range, int64_t &value) {
  if (text.getAsInteger(10, value))
    return "is not an integer";
  return checkRange(value, range);
}

std::string parseNumber(StringRef text, NumberRange range, double &value) {
  if (text.getAsDouble(value))
    return "is not a number";
  return checkRange(value, range);
}

std::string wrongAttribute(StringRef expected) {
  return ("is not " + expected).str();
}

std::string OptionType<int64_t>::read(const OptionInfo &option,
                                      Attribute attribute, int64_t &value) {
  auto number = dyn_cast<IntegerAttr>(attribute);
  if (!number || !number.getType().isInteger(64))
    return wrongAttribute("an i64");
  value = number.getInt();
  return checkRange(value, option.range);
}

std::string OptionType<double>::read(const OptionInfo &option,
                                     Attribute attribute, double &value) {
  auto number = dyn_cast<FloatAttr>(attribute);
  if (!number || !number.getType().isF64())
    return wrongAttribute("an f64");
  value = number.getValueAsDouble();
  return checkRange(value, option.range);
}

// ---- flags ----

std::string OptionType<bool>::parse(const OptionInfo &, StringRef text,
                                    bool &value) {
  value = text == "true";
  return value || text == "false" ? "" : "is neither true nor false";
}

std::string OptionType<bool>::read(const OptionInfo &, Attribute attribute,
                                   bool &value) {
  auto flag = dyn_cast<BoolAttr>(attribute);
  if (!flag)
    return wrongAttribute("true or false");
  value = flag.getValue();
  return "";
}

// ---- sizes ----

// Units are powers of 1024, with or without "iB". Fractions are cut to whole
// bytes. 0 is refused, since it would mean no limit.
std::string OptionType<ByteLimit>::parse(const OptionInfo &, StringRef text,
                                         ByteLimit &value) {
  size_t end = text.find_first_not_of("0123456789.");
  StringRef unit = end == StringRef::npos ? "" : text.substr(end).trim();
  double factor = llvm::StringSwitch<double>(unit)
                      .Cases({"", "B"}, 1)
                      .Cases({"K", "KiB"}, 1024.)
                      .Cases({"M", "MiB"}, 1024. * 1024)
                      .Cases({"G", "GiB"}, 1024. * 1024 * 1024)
                      .Default(0);
  double number;
  // The upper bound keeps the cast below defined.
  if (factor == 0 || text.substr(0, end).getAsDouble(number) ||
      !(number * factor >= 1 && number * factor < 0x1p63))
    return "is not a size such as '6GiB'";
  value.bytes = static_cast<int64_t>(number * factor);
  return "";
}

// Stops at the largest unit that divides the size, so no digit is lost.
std::string OptionType<ByteLimit>::print(ByteLimit value) {
  if (value.bytes == 0)
    return "";
  int64_t number = value.bytes;
  const char *const units[] = {"", "KiB", "MiB", "GiB"};
  int unit = 0;
  for (; unit < 3 && number % 1024 == 0; ++unit)
    number /= 1024;
  return std::to_string(number) + units[unit];
}

// ---- lists in one text ----

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
               ? "has '" + part.str() + "', which is no number of steps"
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
  return checkScale(key, *field, key == "growth" ? 1 : 0,
                    key == "backoff" ? 1 : most);
}

std::string OptionType<std::optional<LossScale>>::parse(
    const OptionInfo &option, StringRef text, std::optional<LossScale> &value) {
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
  return "dynamic,init=" + printNumber(value->init) +
         ",growth=" + printNumber(value->growth) +
         ",backoff=" + printNumber(value->backoff) +
         ",interval=" + std::to_string(value->interval);
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
    texts.push_back(name + "=" + std::to_string(value));
  return texts;
}

// Checks the form of a rule. The runtime parses it again when it fills the
// parameter.
static bool isRule(StringRef rule) {
  if (rule == "zeros" || rule == "ones")
    return true;
  if (!rule.consume_front("normal(") && !rule.consume_front("uniform("))
    return false;
  auto [first, second] = rule.split(',');
  double value;
  return second.consume_back(")") && !first.trim().getAsDouble(value) &&
         !second.trim().getAsDouble(value);
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
  if (!isRule(rule))
    return "has the rule '" + rule.str() +
           "', which is none of normal(mean,deviation), uniform(low,high), "
           "zeros, ones";
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

// Keys have the names of torch.optim's param_groups.
std::string OptionType<GroupList>::parse(const OptionInfo &option,
                                         StringRef text, GroupList &list) {
  auto [pattern, settings] = text.rsplit(": ");
  if (pattern.empty() || settings.trim().empty())
    return "is not of the form '" + option.placeholder.str() + "'";
  ParameterGroup group{pattern.str(), std::nullopt, std::nullopt};
  std::string why;
  if (!NamePattern::compile(pattern, why))
    return "has '" + pattern.str() +
           "', which is not a regular expression: " + why;
  SmallVector<StringRef> parts;
  settings.split(parts, ' ', -1, /*KeepEmpty=*/false);
  for (StringRef part : parts) {
    auto [key, number] = part.split('=');
    auto *value = llvm::StringSwitch<std::optional<double> *>(key)
                      .Case("lr", &group.lr)
                      .Case("weight_decay", &group.weightDecay)
                      .Default(nullptr);
    if (!value)
      return "sets '" + key.str() + "', which is none of lr|weight_decay";
    if (value->has_value())
      return "sets '" + key.str() + "' twice";
    std::string fault = parseNumber(number, option.range, value->emplace());
    if (!fault.empty())
      return "has '" + part.str() + "', where '" + number.str() + "' " + fault;
  }
  list.push_back(std::move(group));
  return "";
}

Strings OptionType<GroupList>::texts(const GroupList &list) {
  Strings texts;
  for (const ParameterGroup &group : list) {
    std::string text = group.pattern + ":";
    if (group.lr)
      text += " lr=" + printNumber(*group.lr);
    if (group.weightDecay)
      text += " weight_decay=" + printNumber(*group.weightDecay);
    texts.push_back(std::move(text));
  }
  return texts;
}

std::string OptionType<StrategyRules>::parse(const OptionInfo &option,
                                             StringRef text,
                                             StrategyRules &list) {
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
