// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The help of our programs, as CLI11 writes it, in lines that fit a terminal.
#pragma once

#include "runtime/support/wrap.h"

#include <CLI/CLI.hpp>

namespace fsdpc {

class HelpFormat : public CLI::Formatter {
public:
  /// Makes an app print its help in this form, and each subcommand that is
  /// added later.
  static void setOn(CLI::App &app) {
    app.formatter(std::make_shared<HelpFormat>());
  }

  std::string make_help(const CLI::App *app, std::string name,
                        CLI::AppFormatMode mode) const override {
    return wrapLines(CLI::Formatter::make_help(app, name, mode));
  }
};

} // namespace fsdpc
