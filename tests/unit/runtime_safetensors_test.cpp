// safetensors files are read as strictly as by their own library.
#include "runtime/core/safetensors.h"
#include "tests/unit/runtime_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::HasSubstr;

namespace {

// The error of opening a file with this header and data, or an empty string.
std::string safetensorsError(const std::string &header,
                             const std::string &data) {
  TemporaryFolder folder;
  uint64_t length = header.size();
  std::string bytes(reinterpret_cast<char *>(&length), 8);
  auto file =
      SafeTensors::open(folder.write("x.safetensors", bytes + header + data));
  return file ? "" : file.error().message;
}

// A tensor is found by its name and by its aliases.
TEST(SafeTensors, RoundTripsWithAliases) {
  TemporaryFolder folder;
  SafeTensorsHeader header;
  header.add("a", "f32", {2}, {"tied"});
  EXPECT_EQ(header.add("b", "i64", {}, {}), 8u);
  std::string text = header.text();
  EXPECT_EQ(text.size() % 64, 0u);
  std::string path =
      folder.write("x.safetensors", text + std::string(16, '\1'));
  auto file = SafeTensors::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->find("a", {}), file->find("tied", {}));
  EXPECT_EQ(file->find("other", {"b"})->dtype, "i64");
  EXPECT_EQ(file->find("other", {}), nullptr);
  EXPECT_EQ(file->find("a", {})->offset, text.size());
}

// Ranges, sizes, overlaps and the JSON itself are checked.
TEST(SafeTensors, TrustsNothing) {
  auto tensor = [](const char *shape, const char *range) {
    return std::string("{\"dtype\":\"F32\",\"shape\":") + shape +
           ",\"data_offsets\":" + range + "}";
  };
  EXPECT_EQ(safetensorsError("{\"a\":" + tensor("[1]", "[0,4]") + "}", "1234"),
            "");
  EXPECT_THAT(
      safetensorsError("{\"a\":" + tensor("[1]", "[0,8]") + "}", "1234"),
      HasSubstr("is outside the file"));
  EXPECT_THAT(
      safetensorsError("{\"a\":" + tensor("[2]", "[0,4]") + "}", "1234"),
      HasSubstr("needs 8 bytes but has 4"));
  EXPECT_THAT(safetensorsError("{\"a\":" + tensor("[1]", "[0,4]") +
                                   ",\"b\":" + tensor("[1]", "[0,4]") + "}",
                               "1234"),
              HasSubstr("overlap"));
  EXPECT_THAT(
      safetensorsError(
          "{\"a\":" + tensor("[4611686018427387905,4]", "[0,4]") + "}", "1234"),
      HasSubstr("overflows"));
  EXPECT_THAT(
      safetensorsError("{\"a\":" + tensor("[-1]", "[0,4]") + "}", "1234"),
      HasSubstr("-1 in its shape or place"));
  EXPECT_THAT(
      safetensorsError("{\"a\":" + tensor("[1]", "[4,0]") + "}", "1234"),
      HasSubstr("is outside the file"));
  EXPECT_THAT(
      safetensorsError("{\"a\":" + tensor("[1]", "[0,4.0]") + "}", "1234"),
      HasSubstr("4.0 in its shape or place"));
  EXPECT_THAT(safetensorsError("{\"a\":", ""), HasSubstr("malformed"));
  EXPECT_THAT(safetensorsError("[1]", ""), HasSubstr("malformed"));
  EXPECT_THAT(safetensorsError(std::string(1000, '['), ""),
              HasSubstr("malformed"));
}

// The metadata is texts, and a shape is a list. Text of the file does not reach
// the terminal as it is.
TEST(SafeTensors, ChecksKindsOfValues) {
  auto tensor = [](const char *name, const char *shape) {
    return "{\"" + std::string(name) +
           "\":{\"dtype\":\"F32\",\"shape\":" + shape +
           ",\"data_offsets\":[0,4]}";
  };
  EXPECT_THAT(safetensorsError(tensor("a", "1") + "}", "1234"),
              HasSubstr("tensor 'a' has a shape that is not a list"));
  for (const char *metadata :
       {"1", "[]", "{\"format\":1}", "{\"aliases\":\"[]\"}",
        "{\"aliases\":\"{\\\"a\\\":[[[[1]]]]}\"}"})
    EXPECT_THAT(safetensorsError(tensor("a", "[1]") +
                                     ",\"__metadata__\":" + metadata + "}",
                                 "1234"),
                HasSubstr("malformed"))
        << metadata;
  EXPECT_THAT(safetensorsError(tensor("a\\u001b[2J\\n", "[2]") + "}", "1234"),
              HasSubstr("tensor 'a\\x1b[2J\\x0a' of shape"));
}

// The format's own library refuses these too.
TEST(SafeTensors, IsAsStrictAsItsLibrary) {
  std::string a = "\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
                  "\"data_offsets\":[0,4]}";
  std::string b = "\"b\":{\"dtype\":\"F32\",\"shape\":[1],"
                  "\"data_offsets\":[8,12]}";
  EXPECT_EQ(safetensorsError("{" + a + "}", "1234"), "");
  EXPECT_THAT(safetensorsError("{" + a + "}", "12345"),
              HasSubstr("belong to no tensor"));
  EXPECT_THAT(safetensorsError("{" + a + "," + b + "}", "123456789012"),
              HasSubstr("belong to no tensor"));
  EXPECT_THAT(safetensorsError("{" + a + "," + a + "}", "1234"),
              HasSubstr("'a' stands in it twice"));
  EXPECT_THAT(
      safetensorsError("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", "1234"),
      HasSubstr("'dtype' stands in it twice"));
  EXPECT_THAT(safetensorsError("{\"a\":{\"dtype\":\"Q7\",\"shape\":[1],"
                               "\"data_offsets\":[0,4]}}",
                               "1234"),
              HasSubstr("has the unknown type 'Q7'"));
  EXPECT_EQ(safetensorsError("{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],"
                             "\"data_offsets\":[0,4]}}",
                             "1234"),
            "");
  EXPECT_THAT(safetensorsError(std::string(1000, '['), ""),
              HasSubstr("nested too deeply"));
}

// The length comes first in the file and must not decide an allocation.
TEST(SafeTensors, RefusesAHeaderLongerThanTheFile) {
  TemporaryFolder folder;
  auto file = SafeTensors::open(
      folder.write("x", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)));
  EXPECT_THAT(file.error().message, HasSubstr("not a safetensors file"));
}

} // namespace
