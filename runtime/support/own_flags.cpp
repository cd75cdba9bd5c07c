// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes the names from the two tables of flags (own_flags.h).
#include "runtime/support/own_flags.h"

namespace fsdpc {

std::span<const std::string_view> compilerFlags() {
  static constexpr std::string_view names[] = {
#define OPTION(field, name, ...) name,
#include "runtime/support/compile_options.def"
  };
  return names;
}

std::span<const std::string_view> programFlags() {
  static constexpr std::string_view names[] = {
#define FLAG(name, ...) name,
#include "runtime/support/program_flags.def"
  };
  return names;
}

} // namespace fsdpc
