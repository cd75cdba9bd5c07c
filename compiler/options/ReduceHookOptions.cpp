// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses and prints the hooks of --reduce-hook. passes/shard/ReduceHooks.h
// writes them into the program. A hook of the user's is read here, so that a
// dump does not depend on the file, but checked where its ops can be parsed.
#include "compiler/options/OptionTypes.h"

#include "runtime/abi/compressions.h"
#include "runtime/support/concat.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <cmath>

using namespace mlir;

namespace fsdpc::fsdp {
namespace {

using Kind = ReduceHook::Kind;

// The names of compressions are added to these.
constexpr StringLiteral hookNames[] = {
    "cast", "clip-value", "predivide", "average", "quantize", "zero-nonfinite"};
// The hooks of torch.distributed.algorithms.ddp_comm_hooks.
constexpr std::pair<StringLiteral, StringLiteral> foreignHooks[] = {
    {"bf16_compress_hook", "cast=bf16"},
    {"fp16_compress_hook", "cast=f16"},
    {"quantization_pertensor_hook", "quantize=i8"},
    {"quantization_perchannel_hook", "quantize=i8"}};
// Behind a file's name; what follows is the function's.
constexpr StringLiteral kFileEnd = ".mlir:@";

// Faults are the ends of sentences that begin with the flag (OptionTypes.h).
std::string has(StringRef text, const Twine &fault) {
  return ("has '" + text + "', which " + fault).str();
}

std::string parseCast(StringRef text, ReduceHook &hook) {
  std::string fault = parseName(text, hook.type);
  if (!fault.empty())
    return has(text, fault);
  if (hook.type == ElementType::f32)
    return "changes nothing: no gradient is wider than f32; use cast=bf16 or "
           "cast=f16";
  return "";
}

// The number is a constant of the gradient's type.
std::string parsePositive(StringRef text, StringRef what, ReduceHook &hook) {
  if (text.getAsDouble(hook.number))
    return has(text, "is not a number");
  float number = static_cast<float>(hook.number);
  return number > 0 && std::isfinite(number) ? ""
                                             : ("has the " + what + " " + text +
                                                ", which is not an f32 above 0")
                                                   .str();
}

std::string parseAverage(StringRef text, ReduceHook &hook) {
  hook.kind = text == "before" ? Kind::AverageBefore : Kind::AverageAfter;
  return text == "before" || text == "after"
             ? ""
             : has(text, "is neither before nor after");
}

// i8, or i8,block=N. A block is padded with zeros, so its size is bounded by
// what a gradient of one element may cost.
std::string parseQuantize(StringRef text, ReduceHook &hook) {
  auto [type, rest] = text.split(',');
  if (type != "i8")
    return has(type, "is not i8, the only type of quantize");
  if (rest.empty())
    return "";
  if (!rest.consume_front("block=") || rest.getAsInteger(10, hook.block) ||
      hook.block < 2 || hook.block > 65536)
    return has(text, "is not of the form i8,block=N, with N from 2 to 65536");
  return "";
}

// The percent sign keeps a share apart from a number of elements.
std::string parseCompression(StringRef text, ReduceHook &hook) {
  const CompressionValue &value = hook.compression->value;
  if (value.isShare()) {
    StringRef digits = text;
    bool isShare = digits.consume_back("%") && !digits.getAsDouble(hook.number);
    return isShare && hook.number > 0 && hook.number <= 100
               ? ""
               : has(text, "is not of the form X%, with X above 0 and at most "
                           "100");
  }
  int64_t number = 0;
  bool fits = !text.getAsInteger(10, number) && number >= value.least &&
              number <= value.most;
  hook.number = double(number);
  return fits ? ""
              : has(text, "is not a " + Twine(value.noun) + " from " +
                              Twine(value.least) + " to " + Twine(value.most));
}

// Returns how a compression is written here that others give this name; empty
// if there is none.
std::string foreignCompression(StringRef name) {
  for (const CompressionInfo *info : compressions())
    if (llvm::is_contained(info->foreignNames, name))
      return concat(info->name, "=", info->value.form);
  return "";
}

// FILE.mlir:@FUNCTION. The file's text is read by the caller.
std::string parseFile(StringRef text, ReduceHook &hook) {
  size_t end = text.find(kFileEnd);
  hook.kind = Kind::Program;
  hook.file = text.substr(0, end + kFileEnd.size() - 2).str();
  hook.function = text.substr(end + kFileEnd.size()).str();
  if (hook.function.empty())
    return has(text, "names no function: FILE.mlir:@FUNCTION");
  return "";
}

// Parses all but a file's text.
std::string parseHook(StringRef text, ReduceHook &hook) {
  if (text.contains(kFileEnd))
    return parseFile(text, hook);
  auto [name, value] = text.split('=');
  if (name == "cast") {
    hook.kind = Kind::Cast;
    return parseCast(value, hook);
  }
  if (name == "clip-value") {
    hook.kind = Kind::ClipValue;
    return parsePositive(value, "limit", hook);
  }
  if (name == "predivide") {
    hook.kind = Kind::Predivide;
    return parsePositive(value, "divisor", hook);
  }
  if (name == "average")
    return parseAverage(value, hook);
  if (name == "quantize") {
    hook.kind = Kind::Quantize;
    return parseQuantize(value, hook);
  }
  if (const CompressionInfo *info = findCompression(name)) {
    hook.kind = Kind::Compress;
    hook.compression = info;
    return parseCompression(value, hook);
  }
  if (text == "zero-nonfinite") {
    hook.kind = Kind::ZeroNonfinite;
    return "";
  }
  for (auto [foreign, own] : foreignHooks)
    if (name == foreign)
      return has(name, "is '" + own + "' here");
  if (std::string own = foreignCompression(name); !own.empty())
    return has(name, "is '" + own + "' here");
  SmallVector<StringRef> names(std::begin(hookNames), std::end(hookNames));
  for (const CompressionInfo *info : compressions())
    names.push_back(info->name);
  return "has the hook '" + name.str() + "', which is none of " +
         llvm::join(names, ", ") + ", FILE.mlir:@FUNCTION" + meant(name, names);
}

} // namespace

// A quantize without a block prints its default.
std::string printHook(const ReduceHook &hook) {
  switch (hook.kind) {
  case Kind::Cast:
    return "cast=" + nameOf(hook.type).str();
  case Kind::ClipValue:
    return "clip-value=" + printNumber(hook.number);
  case Kind::Predivide:
    return "predivide=" + printNumber(hook.number);
  case Kind::AverageBefore:
    return "average=before";
  case Kind::AverageAfter:
    return "average=after";
  case Kind::ZeroNonfinite:
    return "zero-nonfinite";
  case Kind::Quantize:
    return concat("quantize=i8,block=", hook.block);
  case Kind::Compress:
    return concat(hook.compression->name, "=",
                  hook.compression->value.isShare()
                      ? printNumber(hook.number) + "%"
                      : concat(int64_t(hook.number)));
  case Kind::Program:
    return hook.file + ":@" + hook.function;
  }
  llvm_unreachable("covered above");
}

std::string OptionType<ReduceHooks>::parse(const OptionInfo &, StringRef text,
                                           ReduceHooks &list) {
  ReduceHook hook;
  std::string fault = parseHook(text, hook);
  if (!fault.empty())
    return fault;
  if (hook.kind == Kind::Program) {
    fault = readOptionText(hook.file, hook.text);
    if (!fault.empty())
      return "names a file that " + fault;
  }
  list.push_back(std::move(hook));
  return "";
}

// Runs the same parser over the attribute; `text` of a file is in the dump, so
// nothing is read from the disk.
std::string OptionType<ReduceHooks>::read(const OptionInfo &,
                                          Attribute attribute,
                                          ReduceHooks &list) {
  constexpr StringLiteral expected =
      "an array of strings, or of a file's hook and its text";
  auto array = dyn_cast<ArrayAttr>(attribute);
  if (!array)
    return wrongAttribute(expected);
  for (Attribute entry : array) {
    auto pair = dyn_cast<ArrayAttr>(entry);
    bool isFile = pair && pair.size() == 2 &&
                  llvm::all_of(pair, llvm::IsaPred<StringAttr>);
    auto value = dyn_cast<StringAttr>(isFile ? pair[0] : entry);
    if (!value)
      return wrongAttribute(expected);
    ReduceHook hook;
    std::string fault = parseHook(value.getValue(), hook);
    if (!fault.empty())
      return has(value.getValue(), fault);
    if (isFile != (hook.kind == Kind::Program))
      return wrongAttribute(expected);
    if (isFile)
      hook.text = cast<StringAttr>(pair[1]).str();
    list.push_back(std::move(hook));
  }
  return "";
}

Attribute OptionType<ReduceHooks>::write(const ReduceHooks &list,
                                         Builder builder) {
  SmallVector<Attribute> entries;
  for (const ReduceHook &hook : list) {
    std::string value = printHook(hook);
    if (hook.kind == Kind::Program)
      entries.push_back(builder.getStrArrayAttr({value, hook.text}));
    else
      entries.push_back(builder.getStringAttr(value));
  }
  return builder.getArrayAttr(entries);
}

// checkOptions has refused a second one.
const ReduceHook *residualHook(const CompileOptions &options) {
  for (const ReduceHook &hook : options.reduceHooks)
    if (hook.keepsResidual())
      return &hook;
  return nullptr;
}

} // namespace fsdpc::fsdp
