// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// safetensors files are read as strictly as by their own library.
#include "runtime/data/safetensors.h"
#include "tests/runtime/data/runtime_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::HasSubstr;

namespace {

// A folder with one file, whose header and data a test gives.
class SafeTensorsFile : public testing::Test {
protected:
  Result<SafeTensors> open(const std::string &bytes) {
    return SafeTensors::open(folder.write("x.safetensors", bytes));
  }
  // Returns the error of opening a file with these tensors, as JSON without the
  // outer braces, or an empty string.
  std::string errorOf(const std::string &tensors,
                      const std::string &data = "1234") {
    return errorOfHeader("{" + tensors + "}", data);
  }
  std::string errorOfHeader(const std::string &header,
                            const std::string &data = "") {
    uint64_t length = header.size();
    auto file =
        open(std::string(reinterpret_cast<char *>(&length), 8) + header + data);
    return file ? "" : file.error().message;
  }
  // The entry of a tensor, in JSON.
  static std::string tensor(const std::string &name, const std::string &shape,
                            const std::string &range = "[0,4]",
                            const std::string &dtype = "F32") {
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
           ",\"data_offsets\":" + range + "}";
  }

  TemporaryFolder folder;
};

// A tensor is found by its name and by its aliases.
TEST_F(SafeTensorsFile, RoundTripsWithAliases) {
  SafeTensorsHeader header;
  header.add("a", "f32", {2}, {"tied"});
  EXPECT_EQ(header.add("b", "i64", {}, {}), 8u);
  std::string text = header.text();
  EXPECT_EQ(text.size() % 64, 0u);
  auto file = open(text + std::string(16, '\1'));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->find("a", {}), file->find("tied", {}));
  EXPECT_EQ(file->find("other", {"b"})->dtype, "i64");
  EXPECT_EQ(file->find("other", {}), nullptr);
  EXPECT_EQ(file->find("a", {})->offset, text.size());
}

// Ranges, sizes, overlaps and the JSON itself are checked.
TEST_F(SafeTensorsFile, TrustsNothing) {
  EXPECT_EQ(errorOf(tensor("a", "[1]")), "");
  EXPECT_THAT(errorOf(tensor("a", "[1]", "[0,8]")),
              HasSubstr("is outside the file"));
  EXPECT_THAT(errorOf(tensor("a", "[2]")),
              HasSubstr("needs 8 bytes but has 4"));
  EXPECT_THAT(errorOf(tensor("a", "[1]") + "," + tensor("b", "[1]")),
              HasSubstr("overlap"));
  EXPECT_THAT(errorOf(tensor("a", "[4611686018427387905,4]")),
              HasSubstr("overflows"));
  EXPECT_THAT(errorOf(tensor("a", "[-1]")),
              HasSubstr("-1 in its shape or place"));
  EXPECT_THAT(errorOf(tensor("a", "[1]", "[4,0]")),
              HasSubstr("is outside the file"));
  EXPECT_THAT(errorOf(tensor("a", "[1]", "[0,4.0]")),
              HasSubstr("4.0 in its shape or place"));
  EXPECT_THAT(errorOfHeader("{\"a\":"), HasSubstr("malformed"));
  EXPECT_THAT(errorOfHeader("[1]"), HasSubstr("malformed"));
  EXPECT_THAT(errorOfHeader(std::string(1000, '[')), HasSubstr("malformed"));
}

// The metadata is texts, and a shape is a list. Text of the file does not reach
// the terminal as it is.
TEST_F(SafeTensorsFile, ChecksKindsOfValues) {
  EXPECT_THAT(errorOf(tensor("a", "1")),
              HasSubstr("tensor 'a' has a shape that is not a list"));
  for (const char *metadata :
       {"1", "[]", "{\"format\":1}", "{\"aliases\":\"[]\"}",
        "{\"aliases\":\"{\\\"a\\\":[[[[1]]]]}\"}"})
    EXPECT_THAT(errorOf(tensor("a", "[1]") + ",\"__metadata__\":" + metadata),
                HasSubstr("malformed"))
        << metadata;
  EXPECT_THAT(errorOf(tensor("a\\u001b[2J\\n", "[2]")),
              HasSubstr("tensor 'a\\x1b[2J\\x0a' of shape"));
}

// The format's own library refuses these too.
TEST_F(SafeTensorsFile, IsReadAsStrictlyAsByItsLibrary) {
  std::string a = tensor("a", "[1]"), b = tensor("b", "[1]", "[8,12]");
  EXPECT_EQ(errorOf(a), "");
  EXPECT_THAT(errorOf(a, "12345"), HasSubstr("belong to no tensor"));
  EXPECT_THAT(errorOf(a + "," + b, "123456789012"),
              HasSubstr("belong to no tensor"));
  EXPECT_THAT(errorOf(a + "," + a), HasSubstr("'a' stands in it twice"));
  EXPECT_THAT(errorOf("\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}"),
              HasSubstr("'dtype' stands in it twice"));
  EXPECT_THAT(errorOf(tensor("a", "[1]", "[0,4]", "Q7")),
              HasSubstr("has the unknown type 'Q7'"));
  EXPECT_EQ(errorOf(tensor("a", "[4]", "[0,4]", "F8_E4M3")), "");
  EXPECT_THAT(errorOfHeader(std::string(1000, '[')),
              HasSubstr("nested too deeply"));
}

// The length comes first in the file and must not decide an allocation.
TEST_F(SafeTensorsFile, RefusesAHeaderLongerThanTheFile) {
  auto file = open(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10));
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("not a safetensors file"));
}

} // namespace
