// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shortens modules for dumps. Attributes are changed on the module, so MLIR
// prints and parses them; lines are broken in the printed text, since MLIR's
// printers know no width.
#include "passes/pipeline/ShortForm.h"

#include "compiler/dialects/fsdp/CostNote.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/Origins.h"

#include <optional>

using namespace mlir;
using namespace fsdpc;

void pipeline::shorten(ModuleOp module) {
  module.walk([](Operation *op) {
    fsdp::foldCost(op);
    auto modules =
        op->getAttrOfType<nn::ModulesAttr>(nn::NNDialect::kModulesAttr);
    if (!modules)
      return;
    op->removeDiscardableAttr(nn::NNDialect::kModulesAttr);
    op->setLoc(nn::withModules(op->getLoc(), modules));
  });
}

LogicalResult pipeline::restore(ModuleOp module) {
  auto result = module.walk([](Operation *op) -> WalkResult {
    fsdp::unfoldCost(op);
    if (!nn::hasModules(op->getLoc()))
      return WalkResult::advance();
    auto [location, modules] = nn::withoutModules(op->getLoc());
    op->setLoc(location);
    if (!modules)
      return op->emitError("location lists a module without its class; write "
                           "a path and a class of each");
    op->setDiscardableAttr(nn::NNDialect::kModulesAttr, modules);
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

namespace {

// A space of a line that may become a line break.
struct Gap {
  size_t at;
  int depth; // brackets around it; fewer are better
};

// Returns true if a line may end before `rest`: an attribute dictionary, types,
// results or a location begin there. A bracket at the end opens a region.
bool begins(StringRef rest) {
  return (rest.starts_with("{") && rest.size() > 1) || rest.starts_with(": ") ||
         rest.starts_with("-> ") || rest.starts_with("attributes {");
}

// Returns the gaps of a line, in order and up to the first one beyond `width`:
// behind commas, and before what begins a part of an op. Strings have none.
std::vector<Gap> gapsOf(StringRef line, size_t width = StringRef::npos) {
  std::vector<Gap> gaps;
  int depth = 0;
  for (size_t i = 0;
       i < line.size() && (gaps.empty() || gaps.back().at <= width); ++i) {
    char c = line[i];
    StringRef rest = line.substr(i + 1);
    bool isArrow = c == '>' && i > 0 && line[i - 1] == '-';
    if (c == '"')
      for (++i; i < line.size() && line[i] != '"'; ++i)
        i += line[i] == '\\';
    else if (StringRef("([{<").contains(c))
      ++depth;
    else if (StringRef(")]}>").contains(c) && !isArrow)
      --depth;
    else if (c == ' ' && i > 0 && line[i - 1] == ',')
      gaps.push_back({i, depth});
    else if (c == ' ' && begins(rest))
      gaps.push_back({i, depth});
    else if (c == ' ' && rest.starts_with("loc("))
      // The types of an op go on with its location.
      gaps.push_back({i, depth + 1});
  }
  return gaps;
}

// Returns where to break a line: within the width at the last of the gaps with
// the fewest brackets around, else as early as possible.
std::optional<size_t> breakOf(StringRef line, size_t width) {
  std::optional<Gap> best;
  size_t begin = line.find_first_not_of(' ');
  for (Gap gap : gapsOf(line, width)) {
    if (gap.at <= begin)
      continue;
    if (gap.at > width) {
      if (!best)
        best = gap;
      break;
    }
    if (!best || gap.depth <= best->depth)
      best = gap;
  }
  return best ? std::optional(best->at) : std::nullopt;
}

void appendBroken(std::string &out, StringRef line, size_t width) {
  size_t indent = line.find_first_not_of(' '), margin = 0;
  while (margin + line.size() > width) {
    std::optional<size_t> at = breakOf(line, width - std::min(width, margin));
    if (!at)
      break;
    out.append(margin, ' ').append(line.take_front(*at)) += '\n';
    line = line.drop_front(*at + 1);
    margin = indent + 8;
  }
  out.append(margin, ' ').append(line);
}

// Appends the line of the module with each of its attributes in a line.
void appendModule(std::string &out, StringRef line, size_t width) {
  std::string parts;
  size_t begin = 0;
  for (Gap gap : gapsOf(line)) {
    if (gap.depth != 1 || line[gap.at - 1] != ',')
      continue;
    appendBroken(parts, line.slice(begin, gap.at), width);
    parts += "\n       ";
    begin = gap.at;
  }
  appendBroken(parts, line.substr(begin), width);
  out += parts;
}

} // namespace

std::string pipeline::brokenLines(StringRef text, size_t width) {
  std::string out;
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    if (line.size() <= width)
      out += line;
    else if (line.starts_with("module "))
      appendModule(out, line, width);
    else
      appendBroken(out, line, width);
    out += '\n';
    text = rest;
  }
  return out;
}
