// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts the values of options between the command line, fields of
// CompileOptions and the attribute fsdp.options. Each type of field says in one
// place how its values are spelt, checked and printed, so a new option of a
// known type needs no parser of its own.
//
// OptionType<T> holds, for a field of type T, its form on the command line
// (parse, print) and in the module's attribute (read, write). Faults are
// returned as the end of a sentence that begins with the flag and the value:
// "is not a number".
#pragma once

#include "compiler/options/OptionTable.h"

#include "mlir/IR/Builders.h"

namespace fsdpc::fsdp {

/// The names of an enum's values, or of pointers to rows of a table. An alias
/// follows the name proper.
template <typename Enum> struct EnumName {
  llvm::StringLiteral name;
  Enum value;
};
/// A specialisation returns a constant list, in the order of the help.
template <typename Enum> llvm::ArrayRef<EnumName<Enum>> enumNames();

/// Returns the names of an enum's values, separated by '|'.
template <typename Enum> std::string joinNames();

/// Sets `value` to the value of that name. Returns an empty string, or a fault
/// with the nearest name.
template <typename Enum> std::string parseName(llvm::StringRef, Enum &value);

/// Set `value` from text. Return an empty string or the fault.
std::string parseNumber(llvm::StringRef, NumberRange, int64_t &value);
std::string parseNumber(llvm::StringRef, NumberRange, double &value);
/// Returns how a number lies outside of the range, or an empty string.
std::string checkRange(double value, NumberRange);
/// Returns the shortest text that reads back to the same bits.
std::string printNumber(double value);
/// Sets `value` to what stands in a file, which every dump repeats: at most 16
/// MiB. Returns an empty string or the fault.
std::string readOptionText(llvm::StringRef path, std::string &value);
/// Returns the fault of an attribute of another kind than `expected`.
std::string wrongAttribute(llvm::StringRef expected);

/// The defaults for most types: an option has one value, is not repeated, and
/// lists no legal values.
struct SingleOption {
  static constexpr bool isFlag = false, mayRepeat = false;
  static std::string legalValues() { return ""; }
};

/// The primary template is undefined: a field of a new type fails to compile
/// until the type has a specialisation.
template <typename T> struct OptionType;

/// Types that the attribute holds as the text of the command line.
template <typename T> struct TextOption : SingleOption {
  static std::string read(const OptionInfo &option, mlir::Attribute attribute,
                          T &value) {
    auto text = llvm::dyn_cast<mlir::StringAttr>(attribute);
    if (!text)
      return wrongAttribute("a string");
    return OptionType<T>::parse(option, text.getValue(), value);
  }
  static mlir::Attribute write(const T &value, mlir::Builder builder) {
    std::string text = OptionType<T>::print(value);
    return text.empty() ? mlir::Attribute() : builder.getStringAttr(text);
  }
};

/// Any text, also an empty one, which the attribute leaves out.
template <> struct OptionType<std::string> : TextOption<std::string> {
  static std::string parse(const OptionInfo &, llvm::StringRef text,
                           std::string &value) {
    value = text.str();
    return "";
  }
  static std::string print(const std::string &value) { return value; }
};

/// One of the names of the enum, or of the rows of a table, by `enumNames`.
/// Aliases are read and never written, so a dump has one spelling.
template <typename Enum>
  requires(std::is_enum_v<Enum> || std::is_pointer_v<Enum>)
struct OptionType<Enum> : TextOption<Enum> {
  static std::string legalValues() { return joinNames<Enum>(); }
  static std::string parse(const OptionInfo &, llvm::StringRef text,
                           Enum &value) {
    return parseName(text, value);
  }
  static std::string print(Enum value) { return nameOf(value).str(); }
};

/// An element type, or "graph", after the import "graph:bf16" or "graph:f16".
template <> struct OptionType<ParamType> : TextOption<ParamType> {
  static std::string legalValues() {
    return joinNames<ElementType>() + "|graph";
  }
  static std::string parse(const OptionInfo &, llvm::StringRef, ParamType &);
  static std::string print(const ParamType &value);
};

/// A size with an optional unit: 4096, 512MiB, 1.5G.
template <> struct OptionType<ByteLimit> : TextOption<ByteLimit> {
  static std::string parse(const OptionInfo &, llvm::StringRef, ByteLimit &);
  static std::string print(ByteLimit value);
};

/// A name, or a file that ends in .mlir and is read here. In the attribute a
/// name is a string, and a file an array of its name and its text.
template <> struct OptionType<OptimizerChoice> : SingleOption {
  static std::string legalValues() {
    return joinNames<const OptimizerInfo *>();
  }
  static std::string parse(const OptionInfo &, llvm::StringRef,
                           OptimizerChoice &);
  static std::string print(const OptimizerChoice &value) {
    return value.name();
  }
  static std::string read(const OptionInfo &, mlir::Attribute,
                          OptimizerChoice &);
  static mlir::Attribute write(const OptimizerChoice &, mlir::Builder);
};

/// A file that is read here. In the attribute it is an array of its name and
/// its text, which `check` has accepted: it returns an empty string or the
/// fault. `File` derives from TextFile. The text is kept and never read again,
/// so a dump means the same on another machine.
template <typename File> struct FileOption : SingleOption {
  static std::string print(const File &value) { return value.name; }
  static std::string read(const OptionInfo &, mlir::Attribute attribute,
                          File &value) {
    auto array = llvm::dyn_cast<mlir::ArrayAttr>(attribute);
    if (!array || array.size() != 2 ||
        !llvm::all_of(array, llvm::IsaPred<mlir::StringAttr>))
      return wrongAttribute("the name of a file and its text");
    value.name = llvm::cast<mlir::StringAttr>(array[0]).str();
    value.text = llvm::cast<mlir::StringAttr>(array[1]).str();
    return OptionType<File>::check(value);
  }
  static mlir::Attribute write(const File &value, mlir::Builder builder) {
    return value.name.empty()
               ? mlir::Attribute()
               : builder.getStrArrayAttr({value.name, value.text});
  }
};

/// A file, or the name of a committed machine.
template <> struct OptionType<MachineFile> : FileOption<MachineFile> {
  static std::string parse(const OptionInfo &, llvm::StringRef, MachineFile &);
  static std::string check(const MachineFile &);
};

/// The table is checked by the pass that applies it, which knows the module's
/// collectives.
template <> struct OptionType<ScheduleFile> : FileOption<ScheduleFile> {
  static std::string parse(const OptionInfo &, llvm::StringRef, ScheduleFile &);
  static std::string check(const ScheduleFile &) { return ""; }
};

/// Two numbers, "0.9,0.999".
template <> struct OptionType<NumberPair> : TextOption<NumberPair> {
  static std::string parse(const OptionInfo &, llvm::StringRef, NumberPair &);
  static std::string print(NumberPair value);
};

/// Three numbers, "3.4445,-4.775,2.0315".
template <> struct OptionType<NumberTriple> : TextOption<NumberTriple> {
  static std::string parse(const OptionInfo &, llvm::StringRef, NumberTriple &);
  static std::string print(NumberTriple value);
};

/// "none", a number, or "dynamic" with assignments such as "init=1024".
template <>
struct OptionType<std::optional<LossScale>>
    : TextOption<std::optional<LossScale>> {
  static std::string parse(const OptionInfo &, llvm::StringRef,
                           std::optional<LossScale> &);
  static std::string print(const std::optional<LossScale> &value);
};

/// One text with commas, "sm_80,sm_90". A second use of the flag replaces the
/// list instead of adding to it.
template <> struct OptionType<std::vector<Gpu>> : TextOption<std::vector<Gpu>> {
  static std::string legalValues() { return joinNames<Gpu>(); }
  static std::string parse(const OptionInfo &, llvm::StringRef,
                           std::vector<Gpu> &);
  static std::string print(const std::vector<Gpu> &value);
};

/// Names with commas, "optimizer,gradients", or "none".
template <> struct OptionType<OffloadSet> : TextOption<OffloadSet> {
  static std::string legalValues() {
    return "none|optimizer|parameters|gradients|activations";
  }
  static std::string parse(const OptionInfo &, llvm::StringRef, OffloadSet &);
  static std::string print(OffloadSet value);
};

/// A flag that stands alone on the command line; "true" and "false" as text.
/// `--nesterov=false` is legal and means the default.
template <> struct OptionType<bool> : SingleOption {
  static constexpr bool isFlag = true;
  static std::string parse(const OptionInfo &, llvm::StringRef, bool &);
  static std::string print(bool value) { return value ? "true" : "false"; }
  static std::string read(const OptionInfo &, mlir::Attribute, bool &);
  static mlir::Attribute write(bool value, mlir::Builder builder) {
    return builder.getBoolAttr(value);
  }
};

/// Integers and floats within the range of the option's row. The attribute
/// holds them as numbers, so nothing is lost by printing.
template <> struct OptionType<int64_t> : SingleOption {
  static std::string parse(const OptionInfo &option, llvm::StringRef text,
                           int64_t &value) {
    return parseNumber(text, option.range, value);
  }
  static std::string print(int64_t value) { return std::to_string(value); }
  static std::string read(const OptionInfo &, mlir::Attribute, int64_t &);
  static mlir::Attribute write(int64_t value, mlir::Builder builder) {
    return builder.getI64IntegerAttr(value);
  }
};

template <> struct OptionType<double> : SingleOption {
  static std::string parse(const OptionInfo &option, llvm::StringRef text,
                           double &value) {
    return parseNumber(text, option.range, value);
  }
  static std::string print(double value) { return printNumber(value); }
  static std::string read(const OptionInfo &, mlir::Attribute, double &);
  static mlir::Attribute write(double value, mlir::Builder builder) {
    return builder.getF64FloatAttr(value);
  }
};

/// A value whose default depends on other options.
template <typename T> struct OptionType<std::optional<T>> : SingleOption {
  using Value = OptionType<T>;
  static std::string parse(const OptionInfo &option, llvm::StringRef text,
                           std::optional<T> &value) {
    return Value::parse(option, text, value.emplace());
  }
  static std::string print(const std::optional<T> &value) {
    return value ? Value::print(*value) : "";
  }
  static std::string read(const OptionInfo &option, mlir::Attribute attribute,
                          std::optional<T> &value) {
    return Value::read(option, attribute, value.emplace());
  }
  static mlir::Attribute write(const std::optional<T> &value,
                               mlir::Builder builder) {
    return value ? mlir::Attribute(Value::write(*value, builder))
                 : mlir::Attribute();
  }
};

/// Flags that may be repeated: an array of strings in the attribute. A list
/// type has `parse` for one more value and `texts` for all values.
template <typename List> struct ListOption {
  static constexpr bool isFlag = false, mayRepeat = true;
  static std::string legalValues() { return ""; }
  static std::string print(const List &) { return ""; }
  static std::string read(const OptionInfo &option, mlir::Attribute attribute,
                          List &list) {
    auto array = llvm::dyn_cast<mlir::ArrayAttr>(attribute);
    if (!array || !llvm::all_of(array, llvm::IsaPred<mlir::StringAttr>))
      return wrongAttribute("an array of strings");
    for (auto text : array.getAsRange<mlir::StringAttr>()) {
      std::string fault =
          OptionType<List>::parse(option, text.getValue(), list);
      if (!fault.empty())
        return "has '" + text.str() + "', which " + fault;
    }
    return "";
  }
  static mlir::Attribute write(const List &list, mlir::Builder builder) {
    std::vector<std::string> texts = OptionType<List>::texts(list);
    return builder.getStrArrayAttr(
        llvm::SmallVector<llvm::StringRef>(texts.begin(), texts.end()));
  }
};

using Strings = std::vector<std::string>;
template <> struct OptionType<Strings> : ListOption<Strings> {
  static std::string parse(const OptionInfo &, llvm::StringRef text,
                           Strings &list) {
    list.push_back(text.str());
    return "";
  }
  static Strings texts(const Strings &list) { return list; }
};

/// Expressions are checked here and compiled by the passes that match them.
template <> struct OptionType<Patterns> : ListOption<Patterns> {
  static std::string parse(const OptionInfo &, llvm::StringRef, Patterns &);
  static Strings texts(const Patterns &list) { return list.texts; }
};

using Dimensions = std::map<std::string, int64_t>;
/// NAME=VALUE; a later value of the same name replaces the earlier one.
template <> struct OptionType<Dimensions> : ListOption<Dimensions> {
  static std::string parse(const OptionInfo &, llvm::StringRef, Dimensions &);
  static Strings texts(const Dimensions &list);
};

using InitRules = std::vector<InitRule>;
/// GLOB=RULE, split at the first '='; kept in the order given, since the first
/// match counts.
template <> struct OptionType<InitRules> : ListOption<InitRules> {
  static std::string parse(const OptionInfo &, llvm::StringRef, InitRules &);
  static Strings texts(const InitRules &list);
};

using GradientRules = std::vector<GradientRule>;
/// OUTPUT=PARAMETER, split at the first '='.
template <> struct OptionType<GradientRules> : ListOption<GradientRules> {
  static std::string parse(const OptionInfo &, llvm::StringRef,
                           GradientRules &);
  static Strings texts(const GradientRules &list);
};

using GroupList = std::vector<ParameterGroup>;
/// "REGEX: lr=1e-4 weight_decay=0", split at the last ": "; kept in the order
/// given, since the first match counts. GroupOptions.cpp has the functions.
template <> struct OptionType<GroupList> : ListOption<GroupList> {
  static std::string parse(const OptionInfo &, llvm::StringRef, GroupList &);
  static Strings texts(const GroupList &list);
};

using ReduceHooks = std::vector<ReduceHook>;
/// Returns the flag's value of a hook; of the user's, without the file's text.
std::string printHook(const ReduceHook &hook);
/// NAME=VALUE, NAME, or FILE.mlir:@FUNCTION, whose file is read here; kept in
/// the order given, in which they are applied. In the attribute a file's hook
/// is an array of its flag's value and the file's text. ReduceHookOptions.cpp
/// has the functions.
template <> struct OptionType<ReduceHooks> : ListOption<ReduceHooks> {
  static std::string parse(const OptionInfo &, llvm::StringRef, ReduceHooks &);
  static std::string read(const OptionInfo &, mlir::Attribute, ReduceHooks &);
  static mlir::Attribute write(const ReduceHooks &, mlir::Builder);
};

using StrategyRules = std::vector<StrategyRule>;
/// GLOB=STRATEGY, split at the last '='; kept in the order given, since the
/// first match counts.
template <> struct OptionType<StrategyRules> : ListOption<StrategyRules> {
  static std::string parse(const OptionInfo &, llvm::StringRef,
                           StrategyRules &);
  static Strings texts(const StrategyRules &list);
};

} // namespace fsdpc::fsdp
