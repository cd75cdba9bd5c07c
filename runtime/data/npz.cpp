// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the directory at the end of a zip archive (PKWARE's APPNOTE, 4.3), with
// the 64-bit fields of large ones, as NumPy writes it. Every offset and size is
// checked against the file, because a damaged archive may hold any number.
// Inflating is zlib's.
#include "runtime/data/npz.h"
#include "runtime/data/sample_file.h"
#include "runtime/support/concat.h"
#include "runtime/support/nearest.h"
#include "runtime/support/output_file.h"
#include "runtime/support/spelling.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>
#include <zlib.h>

namespace fsdpc::runtime {
namespace {

constexpr uint64_t pieceBytes = 256 << 10;
constexpr uint64_t in64Bits = 0xffffffff; // the number is in a further field

// A file of the archive. `begin` is where its local header begins.
struct Member {
  std::string name;
  unsigned method = 0, flags = 0;
  uint32_t crc = 0;
  uint64_t packed = 0, size = 0, begin = 0;
};

// Little-endian numbers of a text; 0 where it ends too early, which the checks
// of signatures and ranges then find.
uint64_t number(const std::string &text, uint64_t at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes; i-- > 0;)
    value =
        value << 8 | (at + uint64_t(i) < text.size()
                          ? static_cast<unsigned char>(text[at + uint64_t(i)])
                          : 0);
  return value;
}

Result<std::string> bytesOf(const File &file, uint64_t begin, uint64_t count) {
  // Compared before the text is allocated.
  if (begin > file.size() || count > file.size() - begin)
    return inputError("'" + file.path() +
                      "' is a damaged .npz file: its directory "
                      "points past its end");
  std::string text(count, '\0');
  FSDPC_TRY(file.read(begin, text.data(), count));
  return text;
}

Error damaged(const File &file, const std::string &why) {
  return inputError("'" + file.path() + "' is a damaged .npz file: " + why);
}

// Returns the directory. Its place and size stand in a record at the end of the
// file, before a comment of at most 64 KiB. The record of large archives
// precedes that record, found through a locator of 20 bytes.
Result<std::string> readDirectory(const File &file) {
  const std::string mark("PK\5\6", 4);
  constexpr uint64_t recordBytes = 22;
  uint64_t tailBytes = std::min<uint64_t>(file.size(), recordBytes + (1 << 16));
  auto tail = bytesOf(file, file.size() - tailBytes, tailBytes);
  FSDPC_TRY(tail);
  size_t at = tail->rfind(mark);
  if (at == std::string::npos || tail->size() - at < recordBytes)
    return damaged(file, "it has no directory at its end, as if it was cut "
                         "off");
  uint64_t size = number(*tail, at + 12, 4), begin = number(*tail, at + 16, 4);
  if (size == in64Bits || begin == in64Bits) {
    if (at < 20 || number(*tail, at - 20, 4) != 0x07064b50)
      return damaged(file, "its directory is not where its end says");
    auto record = bytesOf(file, number(*tail, at - 12, 8), 56);
    FSDPC_TRY(record);
    if (number(*record, 0, 4) != 0x06064b50)
      return damaged(file, "its directory is not where its end says");
    size = number(*record, 40, 8);
    begin = number(*record, 48, 8);
  }
  // An entry is some 60 bytes; the bound keeps a damaged size from allocating
  // gigabytes.
  if (size > (64 << 20))
    return damaged(file, concat("its directory would have ", size, " bytes"));
  return bytesOf(file, begin, size);
}

// Takes from a further field what does not fit into 32 bits: only the numbers
// that are marked so stand in it, in this order.
void read64(const std::string &extra, Member &member) {
  for (uint64_t at = 0; at + 4 <= extra.size();
       at += 4 + number(extra, at + 2, 2)) {
    if (number(extra, at, 2) != 1)
      continue;
    uint64_t from = at + 4;
    for (uint64_t *value : {&member.size, &member.packed, &member.begin})
      if (*value == in64Bits) {
        *value = number(extra, from, 8);
        from += 8;
      }
    return;
  }
}

// Offsets within an entry are those of APPNOTE 4.3.12.
Result<std::vector<Member>> membersOf(const File &file) {
  auto directory = readDirectory(file);
  FSDPC_TRY(directory);
  const std::string &text = *directory;
  std::vector<Member> members;
  for (uint64_t at = 0; at < text.size();) {
    if (number(text, at, 4) != 0x02014b50)
      return damaged(file, concat("entry ", members.size(),
                                  " of its directory has no signature"));
    Member member;
    member.flags = unsigned(number(text, at + 8, 2));
    member.method = unsigned(number(text, at + 10, 2));
    member.crc = uint32_t(number(text, at + 16, 4));
    member.packed = number(text, at + 20, 4);
    member.size = number(text, at + 24, 4);
    member.begin = number(text, at + 42, 4);
    uint64_t name = number(text, at + 28, 2), extra = number(text, at + 30, 2),
             comment = number(text, at + 32, 2);
    if (text.size() - at < 46 + name + extra + comment)
      return damaged(file, "its directory is cut off");
    member.name = text.substr(at + 46, name);
    read64(text.substr(at + 46 + name, extra), member);
    members.push_back(std::move(member));
    at += 46 + name + extra + comment;
  }
  return members;
}

// Writes what zlib has put out, and counts it.
Status append(const File &file, const Member &member, int to,
              const std::vector<char> &out, uint64_t count, uint64_t &done,
              uLong &crc) {
  if (count > member.size - done)
    return damaged(file, concat("'", printable(member.name),
                                "' has more than its ", member.size, " bytes"));
  crc = crc32(crc, reinterpret_cast<const Bytef *>(out.data()), uInt(count));
  if (!writeAt(to, done, out.data(), count)) {
    Error error = fileError(file.path(), "inflate");
    error.message +=
        concat("; point TMPDIR to a folder with room for ", member.size,
               " bytes per rank, or save the array with numpy.savez");
    return error;
  }
  done += count;
  return {};
}

// Inflates the packed bytes, on which `file` has been cut. Stops at a stream
// that gives more than the directory promised, so a hostile archive cannot fill
// the disk.
Status inflateTo(const File &file, const Member &member, int to) {
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) // no header of zlib's own
    return runError("cannot inflate '" + file.path() + "': out of memory");
  std::unique_ptr<z_stream, int (*)(z_stream *)> end(&stream, inflateEnd);
  std::vector<char> in(pieceBytes), out(pieceBytes);
  uint64_t read = 0, done = 0;
  uLong crc = 0;
  for (int state = Z_OK; state != Z_STREAM_END;) {
    if (stream.avail_in == 0 && read < file.size()) {
      uint64_t count = std::min<uint64_t>(pieceBytes, file.size() - read);
      FSDPC_TRY(file.read(read, in.data(), count));
      read += count;
      stream.next_in = reinterpret_cast<Bytef *>(in.data());
      stream.avail_in = uInt(count);
    }
    stream.next_out = reinterpret_cast<Bytef *>(out.data());
    stream.avail_out = uInt(pieceBytes);
    state = inflate(&stream, Z_NO_FLUSH);
    // Without input and output left to give, Z_BUF_ERROR ends a cut stream.
    if (state != Z_OK && state != Z_STREAM_END)
      return damaged(file, concat("'", printable(member.name),
                                  "' cannot be inflated after byte ", done,
                                  " of the array's file"));
    FSDPC_TRY(append(file, member, to, out, pieceBytes - stream.avail_out, done,
                     crc));
  }
  if (done != member.size || crc != member.crc)
    return damaged(file, "the checksum of '" + printable(member.name) +
                             "' is another one");
  return {};
}

// Returns the place of a member's bytes, which follow its local header.
Result<uint64_t> beginOf(const File &file, const Member &member) {
  auto header = bytesOf(file, member.begin, 30);
  FSDPC_TRY(header);
  if (number(*header, 0, 4) != 0x04034b50)
    return damaged(file, "'" + printable(member.name) +
                             "' is not where its directory says");
  return member.begin + 30 + number(*header, 26, 2) + number(*header, 28, 2);
}

// Cuts the file on the bytes of a member.
Status cutOn(File &file, const Member &member) {
  auto begin = beginOf(file, member);
  FSDPC_TRY(begin);
  return file.cut(*begin, member.packed);
}

bool isEncrypted(const Member &member) { return member.flags & 1; }

// Returns the name of the array, without the suffix of its file.
std::string arrayName(const Member &member) {
  const std::string &name = member.name;
  bool hasSuffix =
      name.size() > 4 && name.compare(name.size() - 4, 4, ".npy") == 0;
  return hasSuffix ? name.substr(0, name.size() - 4) : name;
}

// Suggests the nearest name, or lists the first five.
Error noSuch(const File &file, const std::string &name,
             const std::vector<Member> &members) {
  std::vector<std::string> names;
  std::string all;
  for (const Member &member : members) {
    std::string array = printable(arrayName(member));
    if (names.size() < 5)
      all += (names.empty() ? "'" : ", '") + array + "'";
    names.push_back(array);
  }
  std::string near = meant(name, names);
  if (near.empty() && !all.empty())
    near = "; it has " + all + (names.size() > 5 ? " …" : "") +
           ": name one, as in " + file.path() + ":" + names[0];
  return inputError("'" + file.path() + "' has no array '" + printable(name) +
                    "'" + near);
}

} // namespace

// Users write the name without ".npy", as numpy.load shows it.
Result<File> openNpz(const std::string &path, const std::string &name) {
  Result<File> file = File::open(path);
  FSDPC_TRY(file);
  auto members = membersOf(*file);
  FSDPC_TRY(members);
  auto member = std::find_if(
      members->begin(), members->end(), [&](const Member &candidate) {
        return candidate.name == name + ".npy" || candidate.name == name;
      });
  if (member == members->end())
    return noSuch(*file, name, *members);
  bool stored = member->method == 0;
  if ((!stored && member->method != 8) || isEncrypted(*member))
    return inputError(
        "'" + path + "' array '" + printable(name) +
        "' is encrypted or packed by another method than deflate; "
        "save it with numpy.savez");
  FSDPC_TRY(cutOn(*file, *member));
  if (stored)
    return file;
  auto unnamed = makeUnnamed(temporaryFolder() + "/fsdpc-npz");
  FSDPC_TRY(unnamed);
  File inflated = File::adopt(path, *unnamed, member->size);
  FSDPC_TRY(inflateTo(*file, *member, *unnamed));
  return inflated;
}

Result<std::map<std::string, SafeTensor>> arraysInNpz(const std::string &path) {
  Result<File> file = File::open(path);
  FSDPC_TRY(file);
  auto members = membersOf(*file);
  FSDPC_TRY(members);
  std::map<std::string, SafeTensor> arrays;
  for (const Member &member : *members) {
    std::string name = arrayName(member);
    if (member.method != 0 || isEncrypted(member))
      return inputError("'" + path + "' has the array '" + printable(name) +
                        "' in compressed form, of which a rank cannot read its "
                        "part; save it with numpy.savez");
    auto begin = beginOf(*file, member);
    FSDPC_TRY(begin);
    // The reader of headers takes a file, of which all must be the array's.
    Result<File> part = File::open(path);
    FSDPC_TRY(part);
    FSDPC_TRY(part->cut(*begin, member.packed));
    Result<NpyHeader> header = readNpyHeader(*part);
    if (!header)
      return header.error().reworded("array '" + printable(name) + "' of " +
                                     header.error().message);
    SafeTensor array{header->dtype, header->shape, *begin + header->offset,
                     member.packed - header->offset};
    if (!arrays.emplace(name, std::move(array)).second)
      return damaged(*file,
                     "the array '" + printable(name) + "' stands in it twice");
  }
  return arrays;
}

} // namespace fsdpc::runtime
