// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Windows of a token stream that do not cross from one document to the next
// (--split-at). A token ends each document and belongs to it.
//
// The stream is read once, and of every block of tokens two numbers are kept,
// at most 16 MiB in all: how many windows end before it, and where the document
// begins in which it begins. A window is then found by a search for its block
// and a scan of it, so no list of documents or windows is held.
#pragma once

#include "runtime/support/file.h"
#include "runtime/support/status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// Says where the tokens of a stream lie.
struct TokenStream {
  const File *file = nullptr;
  std::string dtype;
  uint64_t offset = 0; ///< in bytes
  int64_t tokens = 0;
};

class DocumentWindows {
public:
  /// Memory for a search, so that only the first one allocates.
  struct Scratch {
    std::vector<char> raw;
    std::vector<int64_t> tokens;
  };

  /// Reads the stream. Windows begin at a document's begin and every `window`
  /// tokens after it; each needs `reach` tokens of its document.
  static Result<DocumentWindows> build(const TokenStream &stream, int64_t end,
                                       int64_t window, int64_t reach);
  int64_t count() const { return windows; }
  /// Returns true if the end token occurs in the stream.
  bool hasEnd() const { return found; }
  /// Returns the first token of a window. `stream` is as in `build`.
  Result<int64_t> begin(const TokenStream &stream, int64_t index,
                        Scratch &scratch) const;

private:
  /// The state at the beginning of a block.
  struct Mark {
    int64_t windows;  ///< whose last token lies before the block
    int64_t document; ///< first token of the document that is open there
  };
  int64_t windowsOf(int64_t tokens) const;
  Status read(const TokenStream &stream, int64_t block, Scratch &scratch) const;
  template <typename Visit>
  int64_t walk(int64_t block, int64_t document, const Scratch &scratch,
               Visit visit) const;

  std::vector<Mark> marks;
  int64_t blockTokens = 0, windows = 0;
  int64_t end = 0, window = 0, reach = 0;
  bool found = false;
};

} // namespace fsdpc::runtime
