// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Curves as an SVG image: no display, no font file and no library is needed,
// and browsers show it. Four panels share the axis of steps. A curve of many
// steps is drawn by the least and the greatest value of each column, so no
// spike is lost. Values that are not finite leave a gap.
#include "runtime/support/spelling.h"
#include "tools/top/top.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <utility>

namespace fsdpc::top {
namespace {

constexpr int width = 480, height = 260; // of a panel
constexpr int left = 64, right = 16, above = 32, below = 32;
constexpr int columns = width - left - right;
const char *const colours[] = {"#1f77b4", "#d62728", "#2ca02c", "#ff7f0e",
                               "#9467bd", "#8c564b", "#17becf", "#7f7f7f"};

// The extent of an axis over finite values.
struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  void add(double value) {
    if (!std::isfinite(value))
      return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  // A single value lies in the middle.
  void widen() {
    if (least > most)
      least = 0, most = 1;
    if (least == most)
      least -= 1, most += 1;
  }
  // Maps a value to 0 … 1. Call widen() first, which makes the extent positive.
  double part(double value) const { return (value - least) / (most - least); }
};

// For short texts with numbers: names may be longer than the line and are
// appended as they are.
template <typename... Values>
std::string format(const char *text, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, text, values...);
  return line;
}

// Names of logs may hold any byte, so control characters are made visible and
// XML's own characters become entities.
std::string escaped(const std::string &text) {
  std::string out;
  for (char c : runtime::printable(text))
    out += c == '&'   ? "&amp;"
           : c == '<' ? "&lt;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  return out;
}

std::string label(int x, int y, const char *anchor, const std::string &text) {
  return format("<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">", x, y, anchor) +
         escaped(text) + "</text>\n";
}

// Draws one curve as polylines between gaps.
std::string lineOf(const Curve &curve, const Range &steps, const Range &values,
                   const char *colour, bool dashed) {
  std::string begin =
      format("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.2\"%s "
             "points=\"",
             colour, dashed ? " stroke-dasharray=\"5 3\"" : "");
  std::string text, points;
  auto end = [&] {
    if (!points.empty())
      text += begin + points + "\"/>\n";
    points.clear();
  };
  auto point = [&](double step, double value) {
    points +=
        format("%.1f,%.1f ", left + columns * steps.part(step),
               height - below - (height - below - above) * values.part(value));
  };
  for (auto at = curve.begin(); at != curve.end();) {
    // All steps of one column of the image.
    int column = int(columns * steps.part(double(at->first)));
    auto least = curve.end(), most = curve.end();
    bool gap = false;
    for (; at != curve.end() &&
           int(columns * steps.part(double(at->first))) == column;
         ++at) {
      if (!std::isfinite(at->second)) {
        gap = true;
        continue;
      }
      if (least == curve.end() || at->second < least->second)
        least = at;
      if (most == curve.end() || at->second > most->second)
        most = at;
    }
    if (gap)
      end();
    if (least == curve.end())
      continue;
    auto [first, second] = std::minmax(least->first, most->first);
    // In the order of steps, so a line does not run backwards within a column.
    point(double(first), curve.at(first));
    if (second != first)
      point(double(second), curve.at(second));
  }
  end();
  return text;
}

// One panel: its frame, the ends of its axes, and a curve per log and key.
std::string panelOf(const std::vector<RunLog> &logs, const std::string &title,
                    const std::vector<std::string> &keys, const Range &steps) {
  Range values;
  for (const RunLog &log : logs)
    for (const std::string &key : keys)
      for (auto [step, value] : log.curve(key))
        values.add(value);
  values.widen();
  std::string text =
      format("<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
             "fill=\"none\" stroke=\"#bbb\"/>\n",
             left, above, columns, height - above - below);
  text += label(left, above - 10, "start", title);
  text += label(left - 6, above + 10, "end", format("%.4g", values.most));
  text += label(left - 6, height - below, "end", format("%.4g", values.least));
  text += label(left, height - 12, "start", format("%.0f", steps.least));
  text +=
      label(width - right, height - 12, "end", format("step %.0f", steps.most));
  for (size_t i = 0; i < logs.size(); ++i)
    for (size_t k = 0; k < keys.size(); ++k)
      text += lineOf(logs[i].curve(keys[k]), steps, values,
                     colours[i % std::size(colours)], k > 0);
  return text;
}

} // namespace

std::string plotOf(const std::vector<RunLog> &logs) {
  Range steps;
  for (const RunLog &log : logs)
    for (const char *key : {"loss", "eval_loss"})
      for (auto [step, value] : log.curve(key))
        steps.add(double(step));
  steps.widen();
  const std::pair<const char *, std::vector<std::string>> panels[] = {
      {"loss (dashed: eval_loss)", {"loss", "eval_loss"}},
      {"grad_norm", {"grad_norm"}},
      {"lr", {"lr"}},
      {"tokens/s or samples/s", {"tokens_per_s", "samples_per_s"}}};
  int legend = 20 * int(logs.size()) + 10;
  std::string text = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      2 * width, 2 * height + legend);
  for (int i = 0; i < 4; ++i)
    text += format("<g transform=\"translate(%d %d)\">\n", i % 2 * width,
                   i / 2 * height) +
            panelOf(logs, panels[i].first, panels[i].second, steps) + "</g>\n";
  for (size_t i = 0; i < logs.size(); ++i) {
    int y = 2 * height + 20 * int(i) + 12;
    text += format("<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"4\" "
                   "fill=\"%s\"/>\n",
                   left, y - 6, colours[i % std::size(colours)]);
    text += label(left + 22, y, "start", logs[i].name());
  }
  return text + "</svg>\n";
}

} // namespace fsdpc::top
