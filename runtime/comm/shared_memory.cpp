// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The first rank makes the memory and tells the others its name, which is
// random and says by what it is found there that all ranks mean the same
// memory. The name goes before the job begins, so that nothing is left of a job
// that dies.
#include "runtime/comm/shared_memory.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/wire.h"
#include "runtime/support/descriptor.h"
#include "runtime/support/round_up.h"

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdpc::runtime {

namespace {

constexpr int64_t page = 4096;

} // namespace

std::unique_ptr<SharedMemory> SharedMemory::make(Communicator &ranks,
                                                 size_t bytes) {
  std::unique_ptr<SharedMemory> made(
      new SharedMemory(ranks.size(), size_t(roundUp(int64_t(bytes), page))));
  bool first = ranks.rank() == 0;
  Bytes32 random = randomBytes();
  broadcast(ranks, random.data(), random.size(), 0);
  std::string name = "/fsdpc-" + hexOf(random);
  int32_t whole = 0;
  if (first) {
    Descriptor file(shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600));
    // Allocated at once: a lack of space would be a SIGBUS later.
    off_t all = off_t(made->bytes) * ranks.size();
    whole = file.file >= 0 && posix_fallocate(file.file, 0, all) == 0 &&
            made->map(file.file);
  }
  broadcast(ranks, &whole, sizeof whole, 0);
  if (!first && whole) {
    Descriptor file(shm_open(name.c_str(), O_RDWR, 0));
    struct stat state;
    whole = file.file >= 0 && fstat(file.file, &state) == 0 &&
            state.st_uid == geteuid() &&
            state.st_size == off_t(made->bytes) * ranks.size() &&
            made->map(file.file);
  }
  std::vector<int32_t> all(size_t(ranks.size()));
  ranks.allGather(&whole, all.data(), sizeof whole);
  if (first)
    shm_unlink(name.c_str());
  if (std::find(all.begin(), all.end(), 0) != all.end())
    return nullptr;
  return made;
}

bool SharedMemory::map(int file) {
  void *address = mmap(nullptr, bytes * size_t(ranks), PROT_READ | PROT_WRITE,
                       MAP_SHARED, file, 0);
  if (address == MAP_FAILED)
    return false;
  memory = static_cast<char *>(address);
  return true;
}

SharedMemory::~SharedMemory() {
  if (memory)
    munmap(memory, bytes * size_t(ranks));
}

std::vector<char *> SharedMemory::windows() const {
  std::vector<char *> all;
  for (int rank = 0; rank < ranks; ++rank)
    all.push_back(memory + size_t(rank) * bytes);
  return all;
}

} // namespace fsdpc::runtime
