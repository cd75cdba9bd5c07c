// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// checkpoint.json with any value in any of its fields, under a right checksum,
// which whoever forges a file can compute: it is refused, or what it says is
// legal and survives writing and reading.
#include "runtime/checkpoint/checkpoint_reader.h"
#include "runtime/checkpoint/training_checkpoint.h"
#include "runtime/support/json_fields.h"
#include "runtime/support/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::HasSubstr;

namespace {

// A manifest with a value in every field.
CheckpointManifest full() {
  CheckpointManifest stored;
  stored.state = {7, 70, {0.125f, 3, 2}};
  stored.settings = {{"fsdpc", "1"}, {"seed", "3"}};
  stored.ranks = 2;
  auto member = [](const char *name, int64_t offset, int64_t position) {
    Member made;
    made.name = name;
    made.shape = {64, 50};
    made.elements = 3200;
    made.offset = offset;
    made.position = position;
    return made;
  };
  StoredLayout layout;
  layout.name = "unit";
  layout.shard = 3200;
  layout.states = 2;
  layout.average = true;
  layout.members = {member("v", 0, 1), member("w", 3200, 2)};
  layout.members[1].aliases = {"tied"};
  layout.optimizer = "lion";
  layout.stateNames = {"exp_avg"};
  layout.since = {0, 5};
  layout.residual = 6400;
  layout.compression = {"power-sgd", 2};
  StoredLayout cut;
  cut.name = "cut";
  cut.shard = 2;
  cut.group = 2;
  cut.factored = true;
  StoredLayout owned;
  owned.name = "owned";
  owned.shard = 4;
  owned.owner = 1;
  owned.dtype = "bf16";
  StoredLayout base;
  base.name = "base";
  base.shard = 2;
  base.leftOut = true;
  stored.base = "0123456789abcdef";
  stored.layouts = {layout, cut, owned, base};
  Buffer buffer;
  buffer.name = "b";
  buffer.dtype = "f32";
  buffer.shape = {3, 2};
  buffer.optimizerState = true;
  stored.buffers = {buffer};
  stored.files = {{1, {2, 3}}, {4, {5, 6}}};
  return stored;
}

// Returns the text of a manifest whose body is `body`, under its checksum.
std::string sign(const Json &whole, const Json &body) {
  std::string text = dump(body);
  char digits[17];
  std::snprintf(
      digits, sizeof digits, "%016llx",
      static_cast<unsigned long long>(XXH64(text.data(), text.size(), 0)));
  Json signedOne = whole;
  signedOne["checksum"] = digits;
  signedOne["checkpoint"] = body;
  return dump(signedOne) + "\n";
}

std::vector<Json::json_pointer> places(const Json &json,
                                       const Json::json_pointer &at) {
  std::vector<Json::json_pointer> found = {at};
  if (json.is_structured())
    for (auto &[key, value] : json.items()) {
      Json::json_pointer below =
          json.is_array() ? at / std::stoull(key) : at / key;
      for (const Json::json_pointer &place : places(value, below))
        found.push_back(place);
    }
  return found;
}

// Fails the test unless the text is refused in one line, or means what it says.
void expectSound(const std::string &text, const std::string &what) {
  auto read = parseCheckpoint(text);
  if (!read) {
    EXPECT_EQ(read.error().message.find('\n'), std::string::npos) << what;
    return;
  }
  // Sizes are computed without overflow, which sanitizers see.
  EXPECT_GE(checkpointBytes(*read), 0) << what;
  for (int rank = 0; rank < int(read->ranks) && rank < 4; ++rank)
    (void)tensorsOf(*read, rank);
  std::string again = toJson(*read);
  auto second = parseCheckpoint(again);
  ASSERT_TRUE(second) << what << ": " << second.error().message;
  EXPECT_EQ(toJson(*second), again) << what;
}

TEST(CheckpointManifest, AnyFieldMayBeForged) {
  const Json whole = parseJson(toJson(full()), 16);
  const Json &body = whole["checkpoint"];
  ASSERT_TRUE(parseCheckpoint(sign(whole, body)));
  const std::vector<Json> values = {nullptr,
                                    true,
                                    0,
                                    1,
                                    -1,
                                    2,
                                    7,
                                    8,
                                    3200,
                                    int64_t(1) << 20,
                                    INT64_MAX,
                                    INT64_MIN,
                                    UINT64_MAX,
                                    1e300,
                                    0.5,
                                    "",
                                    "f32",
                                    "w",
                                    "bf16",
                                    "\x1b[31m",
                                    std::string(5000, 'x'),
                                    Json::array(),
                                    Json::object(),
                                    Json::array({1}),
                                    Json::array({""}),
                                    Json::array({Json::array()})};
  size_t tried = 0, taken = 0;
  for (const Json::json_pointer &place : places(body, Json::json_pointer())) {
    for (const Json &value : values) {
      Json forged = body;
      forged[place] = value;
      std::string text = sign(whole, forged);
      expectSound(text, place.to_string() + " = " + dump(value));
      taken += bool(parseCheckpoint(text));
      ++tried;
    }
    // Without it, and twice of it.
    if (place.empty())
      continue;
    Json forged = body;
    Json &above = forged[place.parent_pointer()];
    if (above.is_array()) {
      above.push_back(body[place]);
      expectSound(sign(whole, forged), place.to_string() + " twice");
      above.erase(std::stoull(place.back()));
    } else {
      above.erase(place.back());
    }
    expectSound(sign(whole, forged), "without " + place.to_string());
  }
  EXPECT_GT(tried, 1000u);
  // Counters, settings and names may have other values.
  EXPECT_LT(taken, tried / 4);
}

TEST(CheckpointManifest, ForgedFieldsAreNamed) {
  auto fault = [](auto change) {
    CheckpointManifest forged = full();
    change(forged);
    auto parsed = parseCheckpoint(toJson(forged));
    return parsed ? "none" : parsed.error().message;
  };
  EXPECT_EQ(fault([](auto &) {}), "none");
  EXPECT_THAT(fault([](auto &m) { m.layouts[0].since[1] = 8; }),
              HasSubstr("'since' is 8, not a whole number from 0 to 7"));
  EXPECT_THAT(fault([](auto &m) { m.buffers[0].dtype = ""; }),
              HasSubstr("'dtype' is \"\", not an element type"));
  EXPECT_EQ(fault([](auto &m) { m.layouts[0].members[1].offset = 3199; }),
            "parameters 'v' and 'w' share elements");
  EXPECT_EQ(fault([](auto &m) { m.layouts[0].members[0].name = "w"; }),
            "it has two parameters 'w'");
  EXPECT_EQ(fault([](auto &m) { m.buffers.push_back(m.buffers[0]); }),
            "it has two buffers 'b'");
  EXPECT_EQ(fault([](auto &m) { m.buffers[0].name = ""; }),
            "it has a buffer without a name");
}

} // namespace
