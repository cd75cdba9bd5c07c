// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The first rank makes the memory, and the others find it among its open files
// in /proc. It begins with random bytes, which the first rank tells the others:
// that they find them says that all mean the same memory, and not that of a
// process of another host with this number.
#include "runtime/comm/shared_memory.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/wire.h"
#include "runtime/support/concat.h"
#include "runtime/support/descriptor.h"
#include "runtime/support/round_up.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdpc::runtime {

namespace {

constexpr int64_t page = 4096;

// Where the memory is: file `file` of a process, if `file` is not negative.
struct Place {
  int32_t process, file;
  Bytes32 mark; // its first bytes
};

} // namespace

std::unique_ptr<SharedMemory> SharedMemory::make(Communicator &ranks,
                                                 size_t bytes) {
  std::unique_ptr<SharedMemory> made(
      new SharedMemory(ranks.size(), size_t(roundUp(int64_t(bytes), page))));
  Place place = {getpid(), -1, randomBytes()};
  Descriptor file(-1);
  if (ranks.rank() == 0) {
    file.file = memfd_create("fsdpc", MFD_CLOEXEC);
    // Allocated at once: a lack of memory would be a SIGBUS later.
    off_t all = off_t(made->bytes) * ranks.size();
    if (file.file >= 0 && posix_fallocate(file.file, 0, all) == 0 &&
        made->map(file.file)) {
      memcpy(made->memory, place.mark.data(), place.mark.size());
      place.file = file.file;
    }
  }
  broadcast(ranks, &place, sizeof place, 0);
  if (ranks.rank() != 0 && place.file >= 0) {
    std::string path = concat("/proc/", place.process, "/fd/", place.file);
    // A stranger's file may be a pipe, or a terminal.
    file.file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat state;
    if (file.file >= 0 && fstat(file.file, &state) == 0 &&
        state.st_uid == geteuid() && S_ISREG(state.st_mode) &&
        state.st_size == off_t(made->bytes) * ranks.size())
      made->map(file.file);
  }
  int32_t isWhole = made->memory && memcmp(made->memory, place.mark.data(),
                                           place.mark.size()) == 0;
  std::vector<int32_t> all(size_t(ranks.size()));
  ranks.allGather(&isWhole, all.data(), sizeof isWhole);
  if (std::find(all.begin(), all.end(), 0) != all.end())
    return nullptr;
  // All have seen it. Zeroed memory is a valid barrier, which nobody may use
  // before.
  if (ranks.rank() == 0)
    memset(made->memory, 0, place.mark.size());
  ranks.barrier();
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
