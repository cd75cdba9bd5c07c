// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parsers and printers of options with a single value. Numbers print as the
// shortest text that reads back to the same value, sizes with the largest unit
// that divides them, so that a value keeps its text from the command line to a
// dump and back.
#include "compiler/options/OptionTypes.h"

#include "compiler/options/Optimizers.h"
#include "compiler/schedule/machine.h"
#include "runtime/support/concat.h"
#include "runtime/support/input_file.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <charconv>
#include <cmath>

using namespace mlir;

namespace fsdpc::fsdp {

// ---- optimizers ----

// An error or a summary shows the file, and never the program's text.
std::string OptimizerChoice::name() const {
  return isUser() ? file : info->name.str();
}

bool OptimizerChoice::isUser() const { return info == &userOptimizer(); }

OptimizerChoice::OptimizerChoice() : info(&allOptimizers().front()) {}
OptimizerChoice::OptimizerChoice(std::string file, std::string text)
    : info(&userOptimizer()), file(std::move(file)), text(std::move(text)) {}

std::string OptionType<OptimizerChoice>::parse(const OptionInfo &,
                                               StringRef text,
                                               OptimizerChoice &value) {
  // A user's file ends in .mlir, so it cannot hide a misspelt name of an
  // optimizer.
  value = {};
  if (!text.ends_with(".mlir"))
    return parseName(text, value.info);
  std::string program;
  std::string fault = readOptionText(text, program);
  if (fault.empty())
    value = {text.str(), std::move(program)};
  return fault;
}

std::string OptionType<OptimizerChoice>::read(const OptionInfo &,
                                              Attribute attribute,
                                              OptimizerChoice &value) {
  value = {};
  if (auto name = dyn_cast<StringAttr>(attribute))
    return parseName(name.getValue(), value.info);
  auto array = dyn_cast<ArrayAttr>(attribute);
  if (!array || array.size() != 2 ||
      !llvm::all_of(array, llvm::IsaPred<StringAttr>))
    return wrongAttribute("a name, or the name of a file and its text");
  auto part = [&](unsigned i) { return cast<StringAttr>(array[i]).str(); };
  value = {part(0), part(1)};
  return "";
}

Attribute OptionType<OptimizerChoice>::write(const OptimizerChoice &value,
                                             Builder builder) {
  if (value.isUser())
    return builder.getStrArrayAttr({value.file, value.text});
  return builder.getStringAttr(value.name());
}

// ---- types ----

std::string OptionType<ParamType>::parse(const OptionInfo &, StringRef text,
                                         ParamType &value) {
  value = {};
  value.ofGraph = text.consume_front("graph");
  if (value.ofGraph && text.empty()) {
    value.type = ElementType::bf16;
    return "";
  }
  if (value.ofGraph && (!text.consume_front(":") || text == "f32"))
    return "is none of " + legalValues();
  std::string fault = parseName(text, value.type);
  return fault.empty() || value.ofGraph ? fault : fault + ", nor 'graph'";
}

std::string OptionType<ParamType>::print(const ParamType &value) {
  return (value.ofGraph ? "graph:" : "") + nameOf(value.type).str();
}

// ---- files ----

std::string readOptionText(StringRef path, std::string &value) {
  Result<std::string> text = readText(path.str(), 16 << 20);
  if (!text)
    return "cannot be read: " + text.error().message;
  value = *std::move(text);
  return "";
}

static std::string readFile(StringRef path, TextFile &value) {
  std::string fault = readOptionText(path, value.text);
  if (fault.empty())
    value.name = path.str();
  return fault;
}

std::string OptionType<MachineFile>::parse(const OptionInfo &, StringRef text,
                                           MachineFile &value) {
  value = {};
  // A committed machine wins over a file of the same name.
  if (std::string_view known = schedule::machineText(text); !known.empty()) {
    value.name = text.str();
    value.text = known;
  } else if (!text.ends_with(".json")) {
    return "is neither a known machine (" +
           llvm::join(schedule::machineNames(), ", ") +
           "), nor a file that ends in .json";
  } else if (std::string fault = readFile(text, value); !fault.empty()) {
    return fault;
  }
  return check(value);
}

// Parsed again wherever the machine is needed (machineOf); this only refuses.
std::string OptionType<MachineFile>::check(const MachineFile &value) {
  auto machine = schedule::machineFromJson(value.text);
  return machine ? "" : "is " + machine.error().message;
}

std::string OptionType<ScheduleFile>::parse(const OptionInfo &, StringRef text,
                                            ScheduleFile &value) {
  value = {};
  return readFile(text, value);
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

// The caller puts the key and the value before it.
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

// KB, MB and GB are powers of 1000, as on the labels of devices; KiB, MiB and
// GiB, or K, M and G, are powers of 1024. Fractions are cut to whole bytes. 0
// is refused, since it would mean no limit.
std::string OptionType<ByteLimit>::parse(const OptionInfo &, StringRef text,
                                         ByteLimit &value) {
  size_t end = text.find_first_not_of("0123456789.");
  StringRef unit = end == StringRef::npos ? "" : text.substr(end).trim();
  double factor = llvm::StringSwitch<double>(unit)
                      .Cases({"", "B"}, 1)
                      .Case("KB", 1e3)
                      .Case("MB", 1e6)
                      .Case("GB", 1e9)
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
  return concat(number, units[unit]);
}

} // namespace fsdpc::fsdp
