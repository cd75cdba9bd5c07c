// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes event files: TFRecord framing around the messages of TensorFlow's
// event.proto and summary.proto. Only five messages are needed, so they are
// encoded here by hand; docs/rationale/runtime.md says why protobuf is not
// linked into programs.
#include "runtime/train/event_file.h"
#include "runtime/numeric/crc32c.h"
#include "runtime/support/file.h"
#include "runtime/support/new_file.h"
#include "runtime/support/output_file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdpc::runtime {
namespace {

// Field numbers of the official .proto files.
enum Field {
  eventWallTime = 1,    // double
  eventStep = 2,        // int64
  eventFileVersion = 3, // string
  eventSummary = 5,     // Summary
  eventSessionLog = 7,  // SessionLog
  summaryValue = 1,     // repeated Summary.Value
  valueTag = 1,         // string
  valueSimple = 2,      // float
  valueHistogram = 5,   // HistogramProto
  sessionStatus = 1,    // enum
  // HistogramProto; bucket i holds the values in (limit[i-1], limit[i]].
  histogramLeast = 1, // double, as those that follow
  histogramMost = 2,
  histogramCount = 3,
  histogramSum = 4,
  histogramSquares = 5, // the sum of squares
  histogramLimits = 6,  // repeated double, packed
  histogramBuckets = 7, // repeated double, packed: how many values
};
constexpr uint64_t sessionStart = 1;

// Protobuf's wire types.
enum Wire { varint = 0, eight = 1, counted = 2, four = 5 };

// A message as its bytes. Numbers are little-endian, as on all our targets.
class Message {
public:
  void number(Field field, uint64_t value) {
    key(field, varint);
    append(value);
  }
  // A double, 8 bytes.
  void real(Field field, double value) {
    key(field, eight);
    raw(&value, sizeof value);
  }
  void single(Field field, float value) {
    key(field, four);
    raw(&value, sizeof value);
  }
  void text(Field field, const std::string &value) {
    key(field, counted);
    append(value.size());
    bytes += value;
  }
  void reals(Field field, const std::vector<double> &values) {
    key(field, counted);
    append(values.size() * sizeof(double));
    raw(values.data(), values.size() * sizeof(double));
  }
  void message(Field field, const Message &value) { text(field, value.bytes); }
  const std::string &encoded() const { return bytes; }

private:
  void key(Field field, Wire wire) { append(uint64_t(field) << 3 | wire); }
  void append(uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      bytes += char(value | 0x80);
    bytes += char(value);
  }
  void raw(const void *value, size_t size) {
    bytes.append(static_cast<const char *>(value), size);
  }
  std::string bytes;
};

// Seconds since the epoch.
double wallTime() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// An event carries its time and the step that its points belong to.
Message eventAt(int64_t step) {
  Message event;
  event.real(eventWallTime, wallTime());
  event.number(eventStep, uint64_t(step));
  return event;
}

// TFRecord stores checksums rotated and with an offset, so that the checksum of
// a file that contains checksums is still a good one.
uint32_t maskedChecksum(const void *data, size_t bytes) {
  uint32_t crc = crc32c(data, bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// Returns the bucket of a value: bucket i ends at 10^(i/10). Ratios of norms
// spread over many powers of ten. Values outside of 1e-12 to 1e12 count in the
// first or last one.
int bucketOf(double value) {
  return value <= 1e-12 ? -120
                        : std::min(120, int(std::ceil(std::log10(value) * 10)));
}

Message encoded(const Histogram &histogram) {
  std::vector<double> values = histogram.values, limits, buckets;
  std::sort(values.begin(), values.end());
  double sum = 0, squares = 0;
  // Buckets follow each other without gaps, empty ones between others too,
  // since TensorBoard spreads the values of a bucket over its width.
  int first = bucketOf(values.front());
  for (double value : values) {
    sum += value;
    squares += value * value;
    for (int next = first + int(limits.size()); next <= bucketOf(value);
         ++next) {
      limits.push_back(std::pow(10, next / 10.));
      buckets.push_back(0);
    }
    buckets.back() += 1;
  }
  Message message;
  message.real(histogramLeast, values.front());
  message.real(histogramMost, values.back());
  message.real(histogramCount, double(values.size()));
  message.real(histogramSum, sum);
  message.real(histogramSquares, squares);
  message.reals(histogramLimits, limits);
  message.reals(histogramBuckets, buckets);
  return message;
}

constexpr const char *prefix = "events.out.tfevents.";

// Returns the newest time in the names of the folder's event files.
int64_t newestIn(const std::string &folder) {
  int64_t newest = 0;
  DIR *entries = opendir(folder.c_str());
  if (!entries)
    return 0;
  while (const dirent *entry = readdir(entries))
    if (std::strncmp(entry->d_name, prefix, std::strlen(prefix)) == 0)
      newest = std::max<int64_t>(
          newest,
          std::strtoll(entry->d_name + std::strlen(prefix), nullptr, 10));
  closedir(entries);
  return newest;
}

} // namespace

EventFile::~EventFile() {
  if (file >= 0)
    close(file);
}

// Makes the folders above it too, as TensorBoard's own writers do.
Status EventFile::prepare(const std::string &name) {
  folder = name;
  for (size_t slash = folder.find('/', 1);;
       slash = folder.find('/', slash + 1)) {
    if (mkdir(folder.substr(0, slash).c_str(), 0777) != 0 && errno != EEXIST)
      return fileError(folder, "make the folder");
    if (slash == std::string::npos)
      break;
  }
  struct stat status;
  if (stat(folder.c_str(), &status) == 0 && !S_ISDIR(status.st_mode))
    return inputError("--tensorboard: '" + folder +
                      "' is not a folder; event files are made in one");
  return checkWritable(folder + "/" + prefix);
}

// TensorBoard reads the files of a folder in the order of their names, and
// drops what was before only if it sees the newer file last. So the time in the
// name is past that of every file there, whatever the clock says.
Status EventFile::create() {
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  int64_t time = std::max(int64_t(wallTime()), newestIn(folder) + 1);
  char name[384];
  std::snprintf(name, sizeof name, "/%s%010lld.%s.%d.0", prefix,
                static_cast<long long>(time), host, int(getpid()));
  path = folder + name;
  file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  return file < 0 ? Status(fileError(path, "write")) : Status();
}

// The first record names the format's version, the second starts a session at
// `firstStep`: TensorBoard drops what it has from there on.
Status EventFile::begin(int64_t firstStep) {
  if (folder.empty())
    return {};
  FSDPC_TRY(create());
  Message version;
  version.real(eventWallTime, wallTime());
  version.text(eventFileVersion, "brain.Event:2");
  FSDPC_TRY(record(version.encoded()));
  Message session, start = eventAt(firstStep);
  session.number(sessionStatus, sessionStart);
  start.message(eventSessionLog, session);
  return record(start.encoded());
}

Status EventFile::add(int64_t step, const std::vector<Scalar> &scalars,
                      const std::vector<Histogram> &histograms) {
  if (file < 0)
    return {};
  Message summary, event = eventAt(step);
  for (const auto &[tag, number] : scalars) {
    Message value;
    value.text(valueTag, tag);
    value.single(valueSimple, float(number));
    summary.message(summaryValue, value);
  }
  for (const Histogram &histogram : histograms) {
    Message value;
    value.text(valueTag, histogram.tag);
    value.message(valueHistogram, encoded(histogram));
    summary.message(summaryValue, value);
  }
  event.message(eventSummary, summary);
  return record(event.encoded());
}

// Closes the file at the first failure, so that no later record follows a gap.
Status EventFile::record(const std::string &event) {
  uint64_t length = event.size();
  uint32_t ofLength = maskedChecksum(&length, sizeof length);
  uint32_t ofEvent = maskedChecksum(event.data(), event.size());
  std::string whole(reinterpret_cast<const char *>(&length), sizeof length);
  whole.append(reinterpret_cast<const char *>(&ofLength), sizeof ofLength);
  whole += event;
  whole.append(reinterpret_cast<const char *>(&ofEvent), sizeof ofEvent);
  if (writeAll(file, whole.data(), whole.size())) {
    written += whole.size();
    return {};
  }
  Error error = fileError(path, "write");
  if (ftruncate(file, off_t(written)) != 0)
    error.message += "; its last record is incomplete";
  close(file);
  file = -1;
  return error;
}

} // namespace fsdpc::runtime
