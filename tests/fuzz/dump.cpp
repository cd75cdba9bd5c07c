// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes dumps: a text is refused with one error, or it is a module that the
// verifiers of its phase accept or refuse. No pass runs on it: what passes make
// of an edited dump is tested by tests/programs/schedules/edited_dumps.py,
// which compares losses and needs seconds per edit, where this target needs
// milliseconds.
//
// Most random texts end in the parser, so mutations edit a dump as a person
// would: a number, a name, or the order of lines.
#include "passes/pipeline/Dump.h"
#include "passes/pipeline/Pipeline.h"
#include "passes/pipeline/Registration.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/packaged_llvm.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include <memory>
#include <random>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::pipeline;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

namespace {

// A context that many inputs share: to load the dialects takes longer than to
// parse a small dump. Attributes and types stay in a context as long as it
// lives, so it is renewed before they fill the memory.
class SharedContext {
public:
  SharedContext() { registerDialects(registry); }
  MLIRContext &get() {
    if (uses++ % 512 == 0)
      // Without threads, so that a crash is reproducible.
      context = std::make_unique<MLIRContext>(registry,
                                              MLIRContext::Threading::DISABLED);
    return *context;
  }

private:
  DialectRegistry registry;
  std::unique_ptr<MLIRContext> context;
  unsigned uses = 0;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static fuzz::MemoryFile file;
  static SharedContext shared;
  MLIRContext &context = shared.get();
  int errors = 0;
  // Errors are counted, and nothing is printed: the fuzzer runs thousands of
  // inputs per second.
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    errors += diagnostic.getSeverity() == DiagnosticSeverity::Error;
    return success();
  });
  OwningOpRef<ModuleOp> module = readDump(file.write(data, size), &context);
  fuzz::demand(errors == (module ? 0 : 1),
               "a dump that is refused has one error");
  if (!module)
    return 0;
  PipelineOptions options;
  // The verifiers behind a dump always run. Only the passes of the first phase
  // follow, and only if the dump is from before them.
  options.last = Phase::Import;
  bool passed = succeeded(runPipeline(*module, options));
  fuzz::demand(passed == (errors == 0), "a failed pass has an error");
  return 0;
}

namespace {

// The places of numbers, or of names that begin with % or @.
std::vector<std::pair<size_t, size_t>> tokens(const std::string &text,
                                              bool names) {
  std::vector<std::pair<size_t, size_t>> found;
  auto isWord = [&](size_t i) {
    return i < text.size() && (isalnum(text[i]) || text[i] == '_');
  };
  for (size_t i = 0; i < text.size(); ++i) {
    bool begins = names ? (text[i] == '%' || text[i] == '@')
                        : isdigit(text[i]) && (i == 0 || !isWord(i - 1));
    if (!begins)
      continue;
    size_t end = i + 1;
    while (isWord(end))
      ++end;
    found.push_back({i, end - i});
    i = end - 1;
  }
  return found;
}

// Edits a number, a name, or a line.
void edit(std::string &text, std::mt19937 &random) {
  // Sizes and axes of small tensors, and the bounds of the types that a parser
  // may choose.
  static const char *edges[] = {"0",
                                "1",
                                "2",
                                "3",
                                "8",
                                "64",
                                "-1",
                                "4096",
                                "2147483648",
                                "4294967296",
                                "9223372036854775807",
                                "99999999999999999999"};
  // 0: a number becomes an edge value. 1: a number becomes another number of
  // the text. 2: a name becomes another. 3: a line is copied. 4: a line is
  // removed.
  int kind = int(random() % 5);
  if (kind < 3) {
    auto places = tokens(text, kind == 2);
    if (places.empty())
      return;
    auto [at, length] = places[random() % places.size()];
    // May be the same place; then nothing changes.
    auto [from, size] = places[random() % places.size()];
    std::string other = kind == 0 ? edges[random() % std::size(edges)]
                                  : text.substr(from, size);
    text.replace(at, length, other);
    return;
  }
  // The position at which each line starts.
  std::vector<size_t> lines{0};
  for (size_t i = 0; i + 1 < text.size(); ++i)
    if (text[i] == '\n')
      lines.push_back(i + 1);
  size_t from = lines[random() % lines.size()];
  size_t end = std::min(text.find('\n', from), text.size() - 1) + 1;
  std::string line = text.substr(from, end - from);
  size_t to = lines[random() % lines.size()];
  if (kind == 3)
    text.insert(to, line);
  else
    text.erase(from, end - from);
}

} // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size,
                                          size_t most, unsigned seed) {
  std::mt19937 random(seed);
  // Bytes now and then, for the parser itself.
  if (size == 0 || random() % 8 == 0)
    return LLVMFuzzerMutate(data, size, most);
  std::string text(reinterpret_cast<char *>(data), size);
  for (unsigned i = random() % 3 + 1; i > 0; --i)
    edit(text, random);
  // The edits can grow a text past the limit.
  if (text.empty() || text.size() > most)
    return LLVMFuzzerMutate(data, size, most);
  std::copy(text.begin(), text.end(), data);
  return text.size();
}
