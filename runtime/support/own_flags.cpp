// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes the names from the two tables of flags (own_flags.h).
#include "runtime/support/own_flags.h"

#include <vector>

namespace fsdpc {
namespace {

// The part of a row that decides whether a value follows.
struct Row {
  std::string_view name;
  const char *value; ///< as --help shows it; null or empty: none
};

std::vector<std::string_view> switchesOf(std::span<const Row> rows) {
  std::vector<std::string_view> names;
  for (const Row &row : rows)
    if (!row.value || !*row.value || *row.value == '[')
      names.push_back(row.name);
  return names;
}

} // namespace

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

std::span<const std::string_view> compilerSwitches() {
  static constexpr Row rows[] = {
#define OPTION(field, name, group, placeholder, ...) {name, placeholder},
#include "runtime/support/compile_options.def"
  };
  static const std::vector<std::string_view> names = switchesOf(rows);
  return names;
}

std::span<const std::string_view> programSwitches() {
  static constexpr Row rows[] = {
#define FLAG(name, value, ...) {name, value},
#include "runtime/support/program_flags.def"
  };
  static const std::vector<std::string_view> names = switchesOf(rows);
  return names;
}

} // namespace fsdpc
