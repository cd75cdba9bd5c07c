// Parses and prints the hooks of --reduce-hook. passes/shard/ReduceHooks.h
// writes them into the program.
#include "compiler/dialects/fsdp/OptionTypes.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace mlir;

namespace fsdpc::fsdp {
namespace {

constexpr StringRef hookNames[] = {"cast", "clip-value"};

StringRef nearestHook(StringRef name) {
  return *llvm::min_element(hookNames, [&](StringRef a, StringRef b) {
    return name.edit_distance(a) < name.edit_distance(b);
  });
}

std::string parseCast(StringRef text, ReduceHook &hook) {
  std::string fault = parseName(text, hook.type);
  if (!fault.empty())
    return "has '" + text.str() + "', which " + fault;
  if (hook.type == schedule::ElementType::F32)
    return "changes nothing: no gradient is wider than f32; use cast=bf16 or "
           "cast=f16";
  return "";
}

// The limit is a constant of the gradient's type.
std::string parseLimit(StringRef text, ReduceHook &hook) {
  if (text.getAsDouble(hook.limit))
    return "has '" + text.str() + "', which is not a number";
  float limit = static_cast<float>(hook.limit);
  return limit > 0 && std::isfinite(limit)
             ? ""
             : "has the limit " + text.str() + ", which is no f32 above 0";
}

} // namespace

std::string OptionType<ReduceHooks>::parse(const OptionInfo &, StringRef text,
                                           ReduceHooks &list) {
  auto [name, value] = text.split('=');
  if (!llvm::is_contained(hookNames, name))
    return "has the hook '" + name.str() +
           "', which is none of cast, clip-value; did you mean '" +
           nearestHook(name).str() + "'?";
  ReduceHook hook;
  hook.kind =
      name == "cast" ? ReduceHook::Kind::Cast : ReduceHook::Kind::ClipValue;
  std::string fault = hook.kind == ReduceHook::Kind::Cast
                          ? parseCast(value, hook)
                          : parseLimit(value, hook);
  if (fault.empty())
    list.push_back(hook);
  return fault;
}

Strings OptionType<ReduceHooks>::texts(const ReduceHooks &list) {
  Strings texts;
  for (const ReduceHook &hook : list)
    texts.push_back(hook.kind == ReduceHook::Kind::Cast
                        ? "cast=" + nameOf(hook.type).str()
                        : "clip-value=" + printNumber(hook.limit));
  return texts;
}

} // namespace fsdpc::fsdp
