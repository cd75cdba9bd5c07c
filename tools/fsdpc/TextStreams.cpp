// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/fsdpc/TextStreams.h"

#include "runtime/support/spelling.h"

#include <string>

namespace {

// Waits for the end of a line, since a character may come in pieces.
class TextStream final : public llvm::raw_ostream {
public:
  explicit TextStream(llvm::raw_ostream &below)
      : raw_ostream(/*unbuffered=*/true), below(below) {}

private:
  void write_impl(const char *text, size_t bytes) override {
    written += bytes;
    line.append(text, bytes);
    size_t end = line.rfind('\n') + 1; // 0 if there is none
    below << fsdpc::runtime::printableLines({line.data(), end});
    line.erase(0, end);
  }
  uint64_t current_pos() const override { return written; }

  llvm::raw_ostream &below;
  std::string line;
  uint64_t written = 0;
};

} // namespace

llvm::raw_ostream &fsdpc::driver::textOut() {
  static TextStream stream(llvm::outs());
  return stream;
}

llvm::raw_ostream &fsdpc::driver::textErr() {
  static TextStream stream(llvm::errs());
  return stream;
}
