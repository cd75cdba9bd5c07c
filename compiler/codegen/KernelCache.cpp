// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See KernelCache.h. An entry is the digest of its key and code, then the code.
// The folder belongs to the user alone; the digest finds what a full disk or
// a crash has left.
#include "compiler/codegen/KernelCache.h"

#include "runtime/support/cache_folder.h"
#include "runtime/support/input_file.h"
#include "runtime/support/output_file.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"

#include <cstring>
#include <link.h>

namespace fsdpc::codegen {
namespace {

// Some 15,000 entries.
constexpr uint64_t kMostBytes = uint64_t(256) << 20;
// The code of a group of kernels has kilobytes.
constexpr uint64_t kMostEntryBytes = uint64_t(64) << 20;

using Digest = llvm::BLAKE3Result<>;

// Each text counts with its length, so that two lists have one digest only if
// they are equal.
Digest digestOf(llvm::ArrayRef<llvm::StringRef> texts) {
  llvm::BLAKE3 hash;
  for (llvm::StringRef text : texts) {
    uint64_t size = text.size();
    hash.update(
        llvm::ArrayRef(reinterpret_cast<const uint8_t *>(&size), sizeof size));
    hash.update(text);
  }
  return hash.final();
}

// Appends the build ID of a loaded file to the text at `data`. The linker
// makes it from all of the file's content.
int addBuildId(dl_phdr_info *info, size_t, void *data) {
  auto &text = *static_cast<std::string *>(data);
  // The kernel's own pages change with the kernel.
  if (llvm::StringRef(info->dlpi_name).starts_with("linux-vdso"))
    return 0;
  bool found = false;
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) &header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE)
      continue;
    const char *at =
        reinterpret_cast<const char *>(info->dlpi_addr + header.p_vaddr);
    const char *end = at + header.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      memcpy(&note, at, sizeof note);
      const char *name = at + sizeof note;
      const char *content = name + llvm::alignTo(note.n_namesz, 4);
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
          memcmp(name, "GNU", 4) == 0) {
        text += llvm::toHex(llvm::StringRef(content, note.n_descsz)) + "\n";
        found = true;
      }
      at = content + llvm::alignTo(note.n_descsz, 4);
    }
  }
  // Without its ID, a file could not be told from another build of it.
  return found ? 0 : 1;
}

std::string compilerId() {
  std::string text;
  return dl_iterate_phdr(addBuildId, &text) == 0 ? text : "";
}

} // namespace

std::optional<KernelCache> KernelCache::open(const std::string &chosen,
                                             std::string &fault) {
  std::string compiler = compilerId();
  if (compiler.empty()) {
    fault = "fsdpc or a library of it was linked without a build ID";
    return std::nullopt;
  }
  Result<std::string> folder = cacheFolder(chosen, "kernels");
  if (!folder) {
    fault = folder.error().message;
    return std::nullopt;
  }
  return KernelCache(*folder, compiler);
}

std::string KernelCache::keyOf(llvm::StringRef recipe,
                               llvm::ArrayRef<std::string> kernels) const {
  llvm::SmallVector<llvm::StringRef> texts = {compiler, recipe};
  texts.append(kernels.begin(), kernels.end());
  return llvm::toHex(digestOf(texts), /*LowerCase=*/true);
}

std::optional<std::string> KernelCache::find(llvm::StringRef key) const {
  Result<InputFile> file = InputFile::openBelow(folder, key.str());
  if (!file)
    return std::nullopt;
  Result<std::string> entry = file->readAll(kMostEntryBytes);
  if (!entry || entry->size() < sizeof(Digest))
    return std::nullopt;
  llvm::StringRef code = llvm::StringRef(*entry).drop_front(sizeof(Digest));
  Digest digest = digestOf({key, code});
  if (memcmp(entry->data(), digest.data(), sizeof(Digest)) != 0)
    return std::nullopt;
  noteUse(folder + "/" + key.str());
  return code.str();
}

void KernelCache::store(llvm::StringRef key, llvm::StringRef code) const {
  Result<OutputFile> file =
      OutputFile::create(folder + "/" + key.str(), /*mode=*/0600);
  Digest digest = digestOf({key, code});
  if (!file || !file->write(digest.data(), sizeof(Digest)) ||
      !file->write(code.data(), code.size()) || !file->commit())
    return;
  // Looks at all entries, so only now and then: of 16 digits one is '0'.
  if (key.front() == '0')
    trimCache(folder, {.bytes = kMostBytes});
}

} // namespace fsdpc::codegen
