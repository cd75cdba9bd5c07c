// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes on whole lines, for two reasons: a character that must be escaped may
// come in pieces, and a terminal would break a long line within a word. Output
// that goes to a file or a pipe keeps its lines, since scripts read them.
#include "tools/fsdpc/TextStreams.h"

#include "runtime/support/spelling.h"

#include <algorithm>
#include <string>
#include <sys/ioctl.h>
#include <unistd.h>

namespace {

// Lines longer than this are hard to read, however wide the terminal is.
constexpr size_t kMostColumns = 100;
constexpr size_t kIndent = 4; // of what continues a line

// Returns the columns of the terminal, or 0 if the file is none.
size_t columnsOf(int file) {
  winsize size;
  if (!isatty(file) || ioctl(file, TIOCGWINSZ, &size) != 0)
    return 0;
  return size.ws_col == 0 ? kMostColumns
                          : std::min<size_t>(size.ws_col, kMostColumns);
}

// Returns the characters of UTF-8 text, of one column each.
size_t lengthOf(llvm::StringRef text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) {
    return (c & 0xC0) != 0x80; // a byte that begins one
  }));
}

// Appends a line without its '\n', broken at spaces. A word that is longer than
// a line stays whole, so that paths can be copied.
void appendBroken(std::string &text, llvm::StringRef line, size_t columns) {
  size_t indent = 0;
  while (lengthOf(line) + indent > columns) {
    size_t column = indent, last = llvm::StringRef::npos;
    // A table's or a list's own indent is no place for a break.
    size_t begin = std::min(line.find_first_not_of(' '), line.size());
    for (size_t i = 0; i < line.size(); ++i) {
      if (i > begin && line[i] == ' ' &&
          (column <= columns || last == llvm::StringRef::npos))
        last = i;
      column += (line[i] & 0xC0) != 0x80;
    }
    if (last == llvm::StringRef::npos)
      break;
    text.append(indent, ' ').append(line.take_front(last).rtrim().str());
    text += '\n';
    line = line.drop_front(last).ltrim(' ');
    indent = kIndent;
  }
  text.append(indent, ' ').append(line.str());
}

std::string broken(llvm::StringRef text, size_t columns) {
  std::string lines;
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    appendBroken(lines, line, columns);
    lines += '\n';
    text = rest;
  }
  return lines;
}

class TextStream final : public llvm::raw_ostream {
public:
  TextStream(llvm::raw_ostream &below, int file)
      : raw_ostream(/*unbuffered=*/true), below(below),
        columns(columnsOf(file)) {}

private:
  void write_impl(const char *text, size_t bytes) override {
    written += bytes;
    line.append(text, bytes);
    size_t end = line.rfind('\n') + 1; // 0 if there is none
    std::string whole = fsdpc::runtime::printableLines({line.data(), end});
    below << (columns == 0 ? whole : broken(whole, columns));
    line.erase(0, end);
  }
  uint64_t current_pos() const override { return written; }

  llvm::raw_ostream &below;
  size_t columns; ///< of the terminal; 0: lines stay as they are
  std::string line;
  uint64_t written = 0;
};

} // namespace

llvm::raw_ostream &fsdpc::driver::textOut() {
  static TextStream stream(llvm::outs(), STDOUT_FILENO);
  return stream;
}

llvm::raw_ostream &fsdpc::driver::textErr() {
  static TextStream stream(llvm::errs(), STDERR_FILENO);
  return stream;
}
