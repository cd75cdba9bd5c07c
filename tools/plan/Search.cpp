// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Branch and bound. A plan without a cap is fast to make, and no slower than
// the same settings under one that it exceeds: recomputation and less
// prefetching only add time. So all combinations of sharding and type are
// planned without a cap first, and only those that are over it and still faster
// than the best one that fits are planned again under it, which searches what
// to compute again.
#include "tools/plan/Search.h"

#include "compiler/options/OptionTable.h"
#include "compiler/options/StrategyTable.h"
#include "runtime/support/concat.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::plan;

namespace {

class Search {
public:
  Search(Planner &planner, const SearchRequest &request)
      : planner(planner), request(request) {}

  SearchResult run();

private:
  bool isGiven(StringRef name) const {
    return llvm::is_contained(request.options.given, fsdp::findOption(name));
  }
  std::vector<Settings> shardings() const;
  std::vector<Settings> combinations() const;
  const Point *best() const;
  bool isPlanned(const Settings &settings) const {
    return llvm::any_of(result.points, [&](const Point &point) {
      return point.settings == settings;
    });
  }
  bool isOver(const Point &point) const {
    return request.cap > 0 && point.estimate.peakBytes > request.cap;
  }
  void add(Settings settings, int64_t accumulate);
  void planShardings();
  void planMicrobatches();
  void planVariants();

  Planner &planner;
  const SearchRequest &request;
  SearchResult result;
};

// A user's settings are kept, so each list has a single entry for what is
// given.
std::vector<Settings> Search::shardings() const {
  if (isGiven("strategy") || isGiven("reshard-to"))
    return {{}};
  std::vector<Settings> settings = {{}}; // the default
  SmallVector<fsdp::Strategy> strategies =
      llvm::to_vector(llvm::make_pointer_range(fsdp::allStrategies()));
  llvm::sort(strategies, fsdp::shardsMore);
  for (fsdp::Strategy strategy : strategies)
    if (strategy != fsdp::defaultStrategy() &&
        strategy->over != fsdp::CutOver::Group)
      settings.push_back({{"strategy", strategy->name.str()}});
  int node = request.machine.ranksPerNode;
  int64_t ranks = request.options.planRanks;
  if (node <= 1 || node >= ranks || ranks % node)
    return settings;
  std::string text = std::to_string(node);
  settings.push_back({{"reshard-to", text}});
  for (fsdp::Strategy strategy : strategies)
    if (strategy->over == fsdp::CutOver::Group)
      settings.push_back(
          {{"strategy", strategy->name.str()}, {"plan-ranks-per-node", text}});
  return settings;
}

std::vector<Settings> Search::combinations() const {
  std::vector<Settings> all;
  for (const char *type : {"", "bf16"}) {
    if (*type && isGiven("param-dtype"))
      continue;
    for (Settings settings : shardings()) {
      if (*type)
        settings.push_back({"param-dtype", type});
      if (planner.check(settings).empty())
        all.push_back(std::move(settings));
    }
  }
  return all;
}

const Point *Search::best() const {
  const Point *best = nullptr;
  for (const Point &point : result.points)
    if (point.isValid() &&
        (!best || point.estimate.stepUs < best->estimate.stepUs))
      best = &point;
  return best;
}

// Returns the settings with another --memory-limit, or with none for 0.
Settings limited(Settings settings, int64_t bytes) {
  llvm::erase_if(settings, [](const auto &setting) {
    return setting.first == "memory-limit";
  });
  if (bytes > 0)
    settings.push_back({"memory-limit", std::to_string(bytes)});
  return settings;
}

void Search::add(Settings settings, int64_t accumulate) {
  if (!isPlanned(settings))
    result.points.push_back(planner.plan(std::move(settings), accumulate));
}

void Search::planShardings() {
  add(limited({}, request.cap), request.accumulate); // the flags as given
  struct Candidate {
    Point point;
    Settings settings;
  };
  std::vector<Candidate> candidates;
  for (const Settings &settings : combinations()) {
    if (isPlanned(settings))
      continue; // without a cap, the flags as given are the first of them
    Point point = planner.plan(settings, request.accumulate);
    if (point.isValid())
      candidates.push_back({point, settings});
    else
      result.over.push_back(std::move(point));
  }
  llvm::stable_sort(candidates, [](const Candidate &a, const Candidate &b) {
    return a.point.estimate.stepUs < b.point.estimate.stepUs;
  });
  for (Candidate &candidate : candidates) {
    if (!isOver(candidate.point)) {
      result.points.push_back(candidate.point);
      continue;
    }
    result.over.push_back(candidate.point);
    const Point *now = best();
    if (!now || candidate.point.estimate.stepUs < now->estimate.stepUs)
      add(limited(candidate.settings, request.cap), request.accumulate);
  }
  // The fastest may use what it has left of the cap.
  if (const Point *now = best())
    add(limited(now->settings, request.cap), now->accumulate);
}

// Smaller microbatches of the same samples: less memory for activations, and
// more collectives.
void Search::planMicrobatches() {
  const Point *found = best();
  auto dim = request.options.dims.find(request.batchDim);
  if (!found || dim == request.options.dims.end())
    return;
  Settings settings = found->settings;
  for (int64_t parts : {2, 4, 8}) {
    if (dim->second % parts)
      break;
    Settings cut = settings;
    cut.push_back({"dim", concat(request.batchDim, "=", dim->second / parts)});
    add(cut, request.accumulate * parts);
  }
}

// Trades around the fastest plan and the smallest one: less prefetching, more
// that is computed again.
void Search::planVariants() {
  const Point *found = best();
  if (!found)
    return;
  Point fastest = *found, smallest = *found;
  for (const Point &point : result.points)
    if (point.isValid() &&
        point.estimate.peakBytes < smallest.estimate.peakBytes)
      smallest = point;
  if (!isGiven("recompute"))
    for (double share : {0.85, 0.7, 0.55})
      add(limited(fastest.settings,
                  int64_t(double(fastest.estimate.peakBytes) * share)),
          fastest.accumulate);
  Settings least = limited(smallest.settings, 0);
  if (!isGiven("recompute"))
    least.push_back({"recompute", "units"});
  add(least, smallest.accumulate);
  if (!isGiven("prefetch")) {
    least.push_back({"prefetch", "none"});
    add(least, smallest.accumulate);
  }
}

SearchResult Search::run() {
  planShardings();
  planMicrobatches();
  planVariants();
  for (Point &point : result.points)
    if (point.isValid() && isOver(point))
      point.fault = "the planned peak is above the cap";
  std::vector<size_t> order;
  for (size_t i = 0; i < result.points.size(); ++i)
    if (result.points[i].isValid())
      order.push_back(i);
  auto estimateOf = [&](size_t i) -> const Estimate & {
    return result.points[i].estimate;
  };
  llvm::stable_sort(order, [&](size_t a, size_t b) {
    return std::pair(estimateOf(a).stepUs, estimateOf(a).peakBytes) <
           std::pair(estimateOf(b).stepUs, estimateOf(b).peakBytes);
  });
  for (size_t i : order)
    if (result.front.empty() ||
        estimateOf(i).peakBytes < estimateOf(result.front.back()).peakBytes)
      result.front.push_back(i);
  return result;
}

} // namespace

SearchResult plan::search(Planner &planner, const SearchRequest &request) {
  return Search(planner, request).run();
}
