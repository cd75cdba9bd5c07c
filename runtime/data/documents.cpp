// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The index of --split-at. A window counts in the block that holds the last of
// the tokens it needs, for only there is it known that its document goes on as
// far. The same walk over a block counts windows and finds one.
#include "runtime/data/documents.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/numeric/dtype.h"

#include <algorithm>

namespace fsdpc::runtime {

namespace {
// Blocks of 4,096 tokens, or larger ones so that there are at most 2^20 marks
// of 16 bytes.
constexpr int64_t leastBlock = 4096, mostMarks = 1 << 20;
} // namespace

// The windows of a document of which this many tokens are read.
int64_t DocumentWindows::windowsOf(int64_t tokens) const {
  return tokens < reach ? 0 : (tokens - reach) / window + 1;
}

// Reads the tokens of a block as i64, whatever the stream's type.
Status DocumentWindows::read(const TokenStream &stream, int64_t block,
                             Scratch &scratch) const {
  int64_t first = block * blockTokens;
  int64_t count = std::min(blockTokens, stream.tokens - first);
  auto bytes = uint64_t(dtypeBytes(stream.dtype));
  scratch.raw.resize(uint64_t(count) * bytes);
  scratch.tokens.resize(size_t(count));
  FSDPC_TRY(stream.file->read(stream.offset + uint64_t(first) * bytes,
                              scratch.raw.data(), scratch.raw.size()));
  convert(scratch.raw.data(), stream.dtype, scratch.tokens.data(), "i64",
          count);
  return {};
}

// Calls visit(document, from, to) for each part of a document in the block, of
// which `from` tokens lie before the part and `to` before its end. Stops when
// it returns false. Returns the document that is open at the block's end.
template <typename Visit>
int64_t DocumentWindows::walk(int64_t block, int64_t document,
                              const Scratch &scratch, Visit visit) const {
  int64_t at = block * blockTokens;
  auto token = scratch.tokens.begin();
  while (token != scratch.tokens.end()) {
    auto last = std::find(token, scratch.tokens.end(), end);
    bool ends = last != scratch.tokens.end();
    int64_t next = at + (last - token) + ends;
    if (!visit(document, at - document, next - document))
      return document;
    token = last + ends;
    at = next;
    if (ends)
      document = next;
  }
  return document;
}

// One pass over the stream, in memory of one block.
Result<DocumentWindows> DocumentWindows::build(const TokenStream &stream,
                                               int64_t end, int64_t window,
                                               int64_t reach) {
  DocumentWindows index;
  index.end = end;
  index.window = window;
  index.reach = reach;
  index.blockTokens = std::max(leastBlock, stream.tokens / mostMarks + 1);
  Scratch scratch;
  int64_t document = 0;
  for (int64_t block = 0; block * index.blockTokens < stream.tokens; ++block) {
    index.marks.push_back({index.windows, document});
    FSDPC_TRY(index.read(stream, block, scratch));
    int64_t open = index.walk(
        block, document, scratch, [&](int64_t, int64_t from, int64_t to) {
          index.windows += index.windowsOf(to) - index.windowsOf(from);
          return true;
        });
    index.found |= open != document;
    document = open;
  }
  return index;
}

// The last mark that counts no more windows than `index` is that of its block:
// a window counts in the block where the last token that it needs lies.
Result<int64_t> DocumentWindows::begin(const TokenStream &stream, int64_t index,
                                       Scratch &scratch) const {
  auto after = std::upper_bound(
      marks.begin(), marks.end(), index,
      [](int64_t value, const Mark &mark) { return value < mark.windows; });
  const Mark &mark = after[-1];
  int64_t block = after - marks.begin() - 1, left = index - mark.windows;
  FSDPC_TRY(read(stream, block, scratch));
  int64_t result = -1;
  walk(block, mark.document, scratch,
       [&](int64_t document, int64_t from, int64_t to) {
         int64_t before = windowsOf(from), here = windowsOf(to) - before;
         if (left < here)
           result = document + (before + left) * window;
         left -= here;
         return result < 0;
       });
  // The counts were of the file as it was.
  if (result < 0)
    return inputError("'" + stream.file->path() +
                      "' has changed since it was opened: its documents end "
                      "elsewhere");
  return result;
}

} // namespace fsdpc::runtime
