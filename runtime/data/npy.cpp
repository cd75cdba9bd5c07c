// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reader of .npy files (NumPy enhancement proposal 1). The header is one
// line of Python: a dict with 'descr', 'fortran_order' and 'shape'. It is
// parsed by hand and strictly, since a file that is read wrongly would train on
// garbage.
#include "runtime/abi/memory_plan.h"
#include "runtime/data/sample_file.h"
#include "runtime/numeric/dtype.h"
#include "runtime/support/concat.h"
#include "runtime/support/spelling.h"

#include <cstring>
#include <utility>

namespace fsdpc::runtime {
namespace {

constexpr char magic[] = "\x93NUMPY";

// A cursor over the header's text. Each function returns true if it matched,
// and then stands behind the match. After a failure it may stand anywhere,
// since no caller goes on.
class Cursor {
public:
  explicit Cursor(const std::string &text) : text(text) {}

  // Spaces before a token are skipped.
  bool token(char c) {
    spaces();
    return at < text.size() && text[at] == c ? (++at, true) : false;
  }
  // A Python string without escapes; NumPy writes none in its keys and types.
  bool quoted(std::string &value) {
    spaces();
    if (at >= text.size() || (text[at] != '\'' && text[at] != '"'))
      return false;
    size_t end = text.find(text[at], at + 1);
    if (end == std::string::npos)
      return false;
    value = text.substr(at + 1, end - at - 1);
    at = end + 1;
    return true;
  }
  // Compares a prefix. A longer word fails at the token that follows.
  bool word(const char *expected) {
    spaces();
    size_t length = std::strlen(expected);
    if (text.compare(at, length, expected) != 0)
      return false;
    at += length;
    return true;
  }
  // Digits only: a negative extent does not match. Fails on overflow.
  bool number(int64_t &value) {
    spaces();
    size_t start = at;
    value = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text[at] - '0', &value))
        return false;
    return at > start;
  }

  bool atEnd() {
    spaces();
    return at == text.size();
  }

private:
  void spaces() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\n'))
      ++at;
  }
  const std::string &text;
  size_t at = 0;
};

// "(3, 4)", "(3,)" or "()". The limit on axes keeps a damaged header short.
bool parseShape(Cursor &cursor, std::vector<int64_t> &shape) {
  if (!cursor.token('('))
    return false;
  while (!cursor.token(')')) {
    int64_t extent;
    if (!cursor.number(extent))
      return false;
    shape.push_back(extent);
    if (!cursor.token(','))
      return shape.size() > 1 && cursor.token(')'); // "(3)" is not a tuple
    if (shape.size() > 32)
      return false;
  }
  return true;
}

// Requires each of the three keys, in any order, and no other.
bool parseHeader(const std::string &text, std::string &descr, bool &fortran,
                 std::vector<int64_t> &shape) {
  Cursor cursor(text);
  if (!cursor.token('{'))
    return false;
  // One bit per key; 7 are all three.
  int seen = 0;
  std::string key;
  // NumPy ends the dict with a comma, which this loop allows.
  while (cursor.quoted(key)) {
    if (!cursor.token(':'))
      return false;
    int before = seen;
    if (key == "descr" && cursor.quoted(descr))
      seen |= 1;
    else if (key == "fortran_order" &&
             (fortran = cursor.word("True"), fortran || cursor.word("False")))
      seen |= 2;
    else if (key == "shape" && parseShape(cursor, shape))
      seen |= 4;
    else
      return false;
    if (seen == before)
      return false; // a key stands twice
    if (!cursor.token(','))
      break;
  }
  return cursor.token('}') && seen == 7 && cursor.atEnd();
}

// Translates a NumPy type ("<i8") to the manifest's name ("i64"). Empty if
// there is none. '=' is the machine's own order, '|' has none; '>' is
// big-endian and refused.
std::string dtypeOf(const std::string &descr) {
  if (descr == "|b1" || descr == "?")
    return "i1";
  if (descr.size() != 3 || std::strchr("<|=", descr[0]) == nullptr ||
      descr[2] < '1' || descr[2] > '8')
    return "";
  // "<f4" is "f" and 4 bytes, hence "f32". Kinds that the manifest does not
  // name, such as complex, have no size and drop out.
  std::string name = concat(descr[1], (descr[2] - '0') * 8);
  return dtypeBytes(name) ? name : "";
}

} // namespace

Result<bool> isNpy(const File &file) {
  char start[6];
  if (file.size() < sizeof start)
    return false;
  FSDPC_TRY(file.read(0, start, sizeof start));
  return std::memcmp(start, magic, sizeof start) == 0;
}

// The file must end where the array does.
Result<NpyHeader> readNpyHeader(const File &file) {
  auto wrong = [&](const std::string &what) {
    return inputError("'" + file.path() + "' " + what);
  };
  if (file.size() == 0)
    return wrong("is empty");
  Result<bool> known = isNpy(file);
  FSDPC_TRY(known);
  if (!*known)
    return wrong("is not a .npy file");
  unsigned char start[12] = {};
  uint64_t startBytes = file.size() < 12 ? file.size() : 12;
  FSDPC_TRY(file.read(0, start, startBytes));
  int version = start[6];
  if (version < 1 || version > 3)
    return wrong(concat("is a .npy file of version ", version,
                        "; versions 1 to 3 are supported"));
  // Version 1 has a length of two bytes, later ones of four; little-endian.
  uint64_t length = start[8] | start[9] << 8;
  uint64_t lengthEnd = 10;
  if (version > 1) {
    length |= uint64_t(start[10]) << 16 | uint64_t(start[11]) << 24;
    lengthEnd = 12;
  }
  // The bound of 1 MiB keeps a damaged length from allocating gigabytes.
  if (startBytes < lengthEnd || length > file.size() - lengthEnd ||
      length > (1 << 20))
    return wrong("is truncated: the .npy header is incomplete");
  std::string text(length, '\0'), descr;
  FSDPC_TRY(file.read(lengthEnd, text.data(), length));
  bool fortran = false;
  NpyHeader header;
  if (!parseHeader(text, descr, fortran, header.shape))
    return wrong("has a malformed .npy header");
  // With one axis both orders are the same.
  if (fortran && header.shape.size() > 1)
    return wrong("is in Fortran order; save it with numpy.ascontiguousarray");
  header.dtype = dtypeOf(descr);
  if (header.dtype.empty())
    return wrong("has elements of type '" + printable(descr) +
                 "'; little-endian integers, floats and bool are supported");
  header.offset = lengthEnd + length;

  // Checked products: a shape whose size overflows must not look small.
  int64_t bytes = dtypeBytes(header.dtype);
  for (int64_t extent : header.shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes))
      return wrong("has a shape that overflows: " + shapeText(header.shape));
  // A longer file holds more than one array, or was written for another shape.
  uint64_t there = file.size() - header.offset;
  if (uint64_t(bytes) != there)
    return wrong(concat(uint64_t(bytes) > there
                            ? "is truncated: shape "
                            : "is longer than its data: shape ",
                        shapeText(header.shape), " needs ", bytes, " bytes, ",
                        there, " are there"));
  return header;
}

} // namespace fsdpc::runtime
