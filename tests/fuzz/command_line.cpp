// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes a program's command line: one argument per line.
#include "runtime/cli/command_line.h"
#include "tests/fuzz/input.h"

#include <cmath>
#include <sstream>
#include <vector>

using namespace fsdpc;
using namespace fsdpc::runtime;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::istringstream lines(std::string(data, data + size));
  std::vector<std::string> arguments = {"program"};
  for (std::string line; std::getline(lines, line) && arguments.size() < 64;)
    // An argument ends at its first zero byte, as in argv.
    arguments.push_back(line.substr(0, line.find('\0')));
  std::vector<const char *> list;
  for (const std::string &argument : arguments)
    list.push_back(argument.c_str());
  list.push_back(nullptr);
  Manifest manifest;
  manifest.lr = 0.1;
  // Two inputs, so that flags which take one value per input have something to
  // match.
  manifest.inputs = {{"ids", {2, 3}, "i64"}, {"labels", {2, 3}, "i64"}};
  auto options = parseCommandLine(int(arguments.size()), list.data(), manifest);
  if (!options) {
    fuzz::demand(!options.error().message.empty(), "an error has a message");
    return 0;
  }
  // These end the program before it uses the other options.
  if (!options->help.empty() || options->info || options->manifest)
    return 0;
  fuzz::demand(options->steps > 0 && options->accumulate > 0 &&
                   options->data.size() == 2 && options->lr >= 0,
               "what runs is valid");
  double rate = options->schedule.at(options->steps - 1, options->steps, 0.1);
  fuzz::demand(std::isfinite(rate), "the rate is finite");
  return 0;
}
