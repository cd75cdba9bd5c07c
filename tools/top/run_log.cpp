// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows a log. A run appends whole lines, but a reader may come between two
// writes of a slow file system, so a line without its end waits for the rest.
// A run that resumes cuts its log; the reader notices by the file's size.
#include "tools/top/run_log.h"
#include "runtime/support/concat.h"
#include "runtime/support/file.h"
#include "runtime/support/json_text.h"
#include "runtime/support/spelling.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sys/stat.h>

namespace fsdpc::top {

using Json = nlohmann::ordered_json;

namespace {

// Of a header, whose plan is the longest text that a log holds.
constexpr int deepest = 8;
constexpr size_t mostLineBytes = 1 << 20;

} // namespace

// Called when the file was cut or replaced: all is read anew.
void RunLog::clear() {
  partial.clear();
  mean.clear();
  curves.clear();
  read = 0;
  lines = wanted = ranksOfRun = 0;
}

// Read by position and in pieces, as logs of long runs are large.
Status RunLog::update() {
  auto file = runtime::File::open(path);
  FSDPC_TRY(file);
  struct stat status;
  if (stat(path.c_str(), &status) != 0)
    return runtime::fileError(path, "read");
  changedAt =
      double(status.st_mtim.tv_sec) + double(status.st_mtim.tv_nsec) / 1e9;
  if (file->size() < read || uint64_t(status.st_ino) != inode)
    clear();
  inode = uint64_t(status.st_ino);
  std::string piece;
  while (read < file->size()) {
    piece.resize(size_t(std::min<uint64_t>(file->size() - read, 1 << 20)));
    FSDPC_TRY(file->read(read, piece.data(), piece.size()));
    read += piece.size();
    partial += piece;
    size_t begin = 0;
    for (size_t end; (end = partial.find('\n', begin)) != std::string::npos;
         begin = end + 1)
      FSDPC_TRY(line(partial.substr(begin, end - begin), ++lines));
    partial.erase(0, begin);
    if (partial.size() > mostLineBytes)
      return inputError(
          concat("'", path, "' line ", lines + 1,
                 " is longer than any of a log that a program has "
                 "written with --log"));
  }
  return {};
}

// A line with the program's hash is a header, one with `eval_step` an
// evaluation after so many steps. Lines of kinds that are not known are passed
// over: later versions may add some.
Status RunLog::line(const std::string &text, int64_t number) {
  Json json = runtime::parseJsonOrNull(text, deepest);
  if (!json.is_object() || (number == 1 && !json.contains("program_hash")))
    return inputError(
        concat("'", path, "' line ", number,
               " is not of a log that a program has written with --log"));
  auto whole = [&](const char *key, int64_t otherwise) {
    auto found = json.find(key);
    return found != json.end() && found->is_number_integer()
               ? found->get<int64_t>()
               : otherwise;
  };
  if (json.contains("program_hash")) {
    wanted = whole("steps", wanted);
    ranksOfRun = int(whole("ranks", ranksOfRun));
    auto found = json.find("loss_mean");
    mean = found != json.end() && found->is_string() ? found->get<std::string>()
                                                     : "";
    forgetFrom(whole("first_step", 0));
    return {};
  }
  const char *place = json.contains("eval_step") ? "eval_step" : "step";
  int64_t step = whole(place, -1);
  for (auto &[key, value] : json.items())
    if (step >= 0 && key != place && (value.is_number() || value.is_null()))
      curves[key][step] = value.is_null()
                              ? std::numeric_limits<double>::quiet_NaN()
                              : value.get<double>();
  return {};
}

// A resumed run computes again from its first step on, so what the log has of
// those steps is dropped. An evaluation after N steps belongs to the steps
// before N, so one at exactly `first` stays.
void RunLog::forgetFrom(int64_t first) {
  for (auto &[key, curve] : curves) {
    bool evaluates = key.rfind("eval_", 0) == 0;
    curve.erase(curve.lower_bound(first + evaluates), curve.end());
  }
}

const Curve &RunLog::curve(const std::string &key) const {
  static const Curve none;
  auto found = curves.find(key);
  return found == curves.end() ? none : found->second;
}

double RunLog::newest(const std::string &key) const {
  const Curve &values = curve(key);
  return values.empty() ? std::numeric_limits<double>::quiet_NaN()
                        : values.rbegin()->second;
}

std::string RunLog::rateKey() const {
  for (const char *key : {"tokens_per_s", "samples_per_s"})
    if (!curve(key).empty())
      return key;
  return "";
}

} // namespace fsdpc::top
