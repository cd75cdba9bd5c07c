// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which ops to run again for a price of kept bytes is a smallest cut: ops on
// the source's side run again. An op that does pays its time. A value whose op
// does not run again pays its bytes, if the backward reads it or an op that
// runs again does. (PyTorch's partitioner cuts such a graph once; Checkmate,
// Jain et al., 2020, solves an integer program for a limit.) All prices
// together give the lower convex hull of time and bytes. A search that starts
// with its ends finds it: between two choices, the price at which both cost the
// same finds a choice below their line, or proves that there is none.
#include "compiler/schedule/recompute_cut.h"

#include "compiler/schedule/min_cut.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace fsdpc::schedule {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

bool isSet(const std::vector<bool> &again, std::optional<int> op) {
  return op && again[*op];
}

class Hull {
public:
  explicit Hull(const RepeatableUnit &unit);

  std::vector<RepeatedOps> run();

private:
  RepeatedOps cut(double perUs, double perByte) const;
  void refine(const RepeatedOps &few, const RepeatedOps &many, int depth = 0);

  const RepeatableUnit &unit;
  // Sums, which bring capacities to about 1.
  double us = 0, bytes = 0;
  std::vector<RepeatedOps> found; // strictly between the ends, in order
};

Hull::Hull(const RepeatableUnit &unit) : unit(unit) {
  for (const RepeatableOp &op : unit.ops)
    us += op.always ? 0 : op.costUs;
  for (const KeepableValue &value : unit.values)
    bytes += static_cast<double>(value.bytes);
}

// Returns the choice with the least sum of perUs x time and perByte x bytes.
RepeatedOps Hull::cut(double perUs, double perByte) const {
  int ops = static_cast<int>(unit.ops.size());
  int source = ops + static_cast<int>(unit.values.size()), sink = source + 1;
  MinCut graph(sink + 1);
  for (int i = 0; i < ops; ++i) {
    if (unit.ops[i].always)
      graph.addEdge(source, i, infinity);
    else
      graph.addEdge(i, sink, perUs * unit.ops[i].costUs);
  }
  for (int i = 0; i < static_cast<int>(unit.values.size()); ++i) {
    const KeepableValue &value = unit.values[i];
    double price = perByte * static_cast<double>(value.bytes);
    if (value.isRead) {
      // It is kept in any case if nothing can compute it again.
      if (value.producer)
        graph.addEdge(source, *value.producer, price);
      continue;
    }
    // The value's own node is on the source's side if the backward needs it.
    for (int reader : value.readers)
      graph.addEdge(reader, ops + i, infinity);
    graph.addEdge(ops + i, value.producer.value_or(sink), price);
  }
  std::vector<bool> again = graph.solve(source, sink);
  std::vector<int> chosen;
  for (int i = 0; i < ops; ++i)
    if (again[i] && !unit.ops[i].always)
      chosen.push_back(i);
  return costOfRepeating(unit, std::move(chosen));
}

// Adds the choices of the hull between two of its choices, in order. A unit may
// have as many choices as a model has ops, and one call within another for
// each; those that lie deeper than any that a search could tell apart are left
// out.
void Hull::refine(const RepeatedOps &few, const RepeatedOps &many, int depth) {
  constexpr int deepest = 32;
  if (depth == deepest)
    return;
  double perUs = static_cast<double>(few.keptBytes - many.keptBytes);
  double perByte = many.costUs - few.costUs;
  // Normed, so that capacities are around 1.
  double scale = perUs * us + perByte * bytes;
  RepeatedOps middle = cut(perUs / scale, perByte / scale);
  auto price = [&](const RepeatedOps &choice) {
    return (perUs * choice.costUs +
            perByte * static_cast<double>(choice.keptBytes)) /
           scale;
  };
  // Less than both by more than rounding errors, or nothing lies below.
  if (price(middle) > std::min(price(few), price(many)) - 1e-9)
    return;
  refine(few, middle, depth + 1);
  found.push_back(middle);
  refine(middle, many, depth + 1);
}

std::vector<RepeatedOps> Hull::run() {
  RepeatedOps none = costOfRepeating(unit, {});
  if (us == 0 || bytes == 0)
    return {none};
  // Bytes decide, and time only among equals.
  RepeatedOps least = cut(1e-6 / us, 1 / bytes);
  if (least.keptBytes >= none.keptBytes)
    return {none};
  refine(none, least);
  std::vector<RepeatedOps> options = {none};
  options.insert(options.end(), found.begin(), found.end());
  options.push_back(least);
  return options;
}

} // namespace

RepeatedOps costOfRepeating(const RepeatableUnit &unit, std::vector<int> ops) {
  RepeatedOps choice;
  std::vector<bool> again(unit.ops.size());
  for (size_t i = 0; i < unit.ops.size(); ++i)
    again[i] = unit.ops[i].always;
  for (int op : ops) {
    again[op] = true;
    choice.costUs += unit.ops[op].costUs;
  }
  for (const KeepableValue &value : unit.values) {
    bool isNeeded =
        value.isRead || std::any_of(value.readers.begin(), value.readers.end(),
                                    [&](int reader) { return again[reader]; });
    if (isNeeded && !isSet(again, value.producer))
      choice.keptBytes += value.bytes;
  }
  choice.ops = std::move(ops);
  return choice;
}

std::vector<RepeatedOps> repeatingOptions(const RepeatableUnit &unit) {
  return Hull(unit).run();
}

} // namespace fsdpc::schedule
