// Parses --lr-schedule.
#include "runtime/core/lr_schedule.h"
#include "runtime/core/flag_values.h"
#include "runtime/core/spelling.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

namespace fsdpc::runtime {

// The first part is the kind, the others are key=value in any order.
Result<LrSchedule> parseSchedule(const std::string &text) {
  const std::vector<std::string> kinds = {"constant", "linear", "cosine"};
  const std::vector<std::string> keys = {"warmup", "min"};
  std::istringstream parts(text);
  std::string part;
  std::getline(parts, part, ',');
  auto kind = std::find(kinds.begin(), kinds.end(), part);
  if (kind == kinds.end()) {
    std::string near = meant(part, kinds);
    return Error{"'" + part + "' is not a schedule" +
                 (near.empty() ? "; there are " + listed(kinds) : near)};
  }
  LrSchedule schedule;
  // `kinds` is in the order of the enum.
  schedule.kind = LrSchedule::Kind(kind - kinds.begin());
  std::set<std::string> given;
  while (std::getline(parts, part, ',')) {
    size_t equals = part.find('=');
    // Without '=' the whole part is the key and its value is empty, which no
    // key accepts.
    std::string key = part.substr(0, equals);
    if (!given.insert(key).second)
      return Error{"'" + key + "' stands twice in '" + text + "'"};
    std::string value =
        equals == std::string::npos ? "" : part.substr(equals + 1);
    if (key == "warmup") {
      if (!parseInteger(value, schedule.warmup) || schedule.warmup < 0)
        return Error{"warmup '" + value +
                     "' is not a whole number of at least 0"};
    } else if (key == "min") {
      if (!parseNumber(value, schedule.minimum) || schedule.minimum < 0)
        return Error{"min '" + value + "' is not a number of at least 0"};
    } else {
      std::string near = meant(key, keys);
      return Error{"'" + key + "' is not a part of a schedule" +
                   (near.empty() ? "; there are " + listed(keys) : near)};
    }
  }
  return schedule;
}

} // namespace fsdpc::runtime
