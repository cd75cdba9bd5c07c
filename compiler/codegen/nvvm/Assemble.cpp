// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs ptxas for each architecture, side by side, and fatbinary over the
// results. The figures that ptxas -v prints serve two ends: --kernel-report,
// and further runs that give a kernel more registers if it spills, and fewer if
// they leave room for too few threads.
#include "compiler/codegen/nvvm/Assemble.h"

#include "compiler/codegen/Files.h"
#include "runtime/support/concat.h"
#include "runtime/support/threads.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <map>
#include <thread>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

namespace {

// Returns the number in front of `unit` in a line of ptxas, or 0.
int64_t numberBefore(StringRef line, StringRef unit) {
  StringRef before = line.take_front(line.find(unit)).rtrim();
  int64_t number = 0;
  before.take_back(before.size() - before.find_last_not_of("0123456789") - 1)
      .getAsInteger(10, number);
  return line.contains(unit) ? number : 0;
}

// ptxas -v prints four lines per kernel:
//   ptxas info    : Compiling entry function 'NAME' for 'sm_90'
//   ptxas info    : Function properties for NAME
//       0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
//   ptxas info    : Used 8 registers, used 1 barriers, 128 bytes smem
void readFigures(StringRef text, const GpuArch &arch,
                 std::vector<KernelFigures> &figures) {
  SmallVector<StringRef> lines;
  text.split(lines, '\n');
  // The line that names an entry comes before its figures, so `figures` is not
  // empty when they are read.
  for (StringRef line : lines) {
    if (line.contains("Compiling entry function '")) {
      KernelFigures kernel;
      kernel.kernel = line.split('\'').second.split('\'').first.str();
      kernel.arch = arch.name.str();
      figures.push_back(kernel);
    } else if (line.contains("bytes stack frame")) {
      figures.back().stackBytes = numberBefore(line, "bytes stack frame");
      figures.back().spillStores = numberBefore(line, "bytes spill stores");
      figures.back().spillLoads = numberBefore(line, "bytes spill loads");
    } else if (line.contains("Used ")) {
      figures.back().registers = numberBefore(line, "registers");
      figures.back().sharedBytes = numberBefore(line, "bytes smem");
    }
  }
}

// A block of this many threads has half of a multiprocessor's room: two blocks
// fill it, and one leaves half of it idle. That costs more than a spill of a
// few bytes, which stay in the first cache.
constexpr int64_t kHalfThreads = 1024, kFewBytes = 16;

// Threads of a multiprocessor that load enough at a time for its share of the
// memory's bandwidth, and the registers that they divide, in units of 8.
constexpr int64_t kEnoughThreads = 768, kRegisters = 65536, kRegisterUnit = 8;

// Bytes of shared memory that the driver takes of each block.
constexpr int64_t kReservedBytes = 1024;

int64_t spiltBytes(const KernelFigures &kernel) {
  return kernel.spillStores + kernel.spillLoads;
}

// Returns the fewest blocks of a multiprocessor for which ptxas should find
// registers, 0 to leave it to ptxas. It prefers to spill a register or two over
// fitting one block less: asked for one block, it gives the registers. And it
// takes registers that a kernel could do without. Fewer registers are of no use
// if shared memory holds fewer blocks.
int64_t wantedBlocks(const KernelFigures &kernel, int64_t threads,
                     const GpuArch &arch) {
  if (spiltBytes(kernel) > (threads >= kHalfThreads ? kFewBytes : 0))
    return 1;
  int64_t registers =
      threads *
      llvm::alignTo(std::max<int64_t>(kernel.registers, 1), kRegisterUnit);
  bool isEnough = kRegisters / registers * threads >= kEnoughThreads;
  if (isEnough || threads > kEnoughThreads)
    return 0;
  int64_t blocks = llvm::divideCeil(kEnoughThreads, threads);
  return blocks * (kernel.sharedBytes + kReservedBytes) <= arch.sharedBytes
             ? blocks
             : 0;
}

// The blocks that ptxas is asked for, by the place of the directive in the PTX.
struct Wish {
  std::string kernel;
  int64_t blocks;
};
using Wishes = std::map<size_t, Wish>;

// Returns what ptxas should be asked for after a first run.
Wishes wishesFor(StringRef ptx, const GpuArch &arch,
                 ArrayRef<KernelFigures> figures) {
  constexpr StringRef threadsOf = "\n.maxntid ";
  Wishes wishes;
  for (const KernelFigures &kernel : figures) {
    size_t entry = ptx.find(".entry " + kernel.kernel + "(");
    size_t place = ptx.find(threadsOf, entry);
    if (place == StringRef::npos)
      continue;
    int64_t threads = 0;
    StringRef size = ptx.substr(place + threadsOf.size());
    size.consumeInteger(10, threads);
    // The directives of an entry may stand in any order.
    if (int64_t blocks = wantedBlocks(kernel, threads, arch))
      wishes[ptx.find('\n', place + 1)] = {kernel.kernel, blocks};
  }
  return wishes;
}

std::string withWishes(StringRef ptx, const Wishes &wishes) {
  std::string text;
  size_t done = 0;
  for (const auto &[place, wish] : wishes) {
    text += ptx.slice(done, place);
    text += concat("\n.minnctapersm ", wish.blocks);
    done = place;
  }
  return text + ptx.substr(done).str();
}

// Assembles the code of one architecture into files that begin with `path`.
// Returns an error message, or "".
std::string assemble(const CudaToolkit &toolkit, const GpuArch &arch,
                     StringRef ptx, const std::string &path,
                     std::vector<KernelFigures> &figures) {
  std::string error = writeFile(path + ".ptx", ptx);
  std::string log = path + ".ptxas.log";
  // --split-compile=0 compiles the kernels of the module on all cores.
  if (error.empty())
    error = runProgram({toolkit.program("ptxas"), "-v", "-O3",
                        "--split-compile=0", ("-arch=" + arch.name).str(),
                        path + ".ptx", "-o", path + ".cubin"},
                       llvm::sys::path::parent_path(path), log);
  if (!error.empty())
    return error;
  // A second run replaces the figures of the first.
  figures.clear();
  if (auto text = llvm::MemoryBuffer::getFile(log))
    readFigures((*text)->getBuffer(), arch, figures);
  return "";
}

} // namespace

FailureOr<std::string>
fsdpc::codegen::assembleKernels(Location loc, const CudaToolkit &toolkit,
                                ArrayRef<GpuArch> archs,
                                ArrayRef<std::string> ptx, StringRef folder,
                                std::vector<KernelFigures> &figures) {
  auto path = [&](const GpuArch &arch) {
    return (folder + "/kernels." + arch.name).str();
  };
  // A slot per architecture, so that the threads share nothing. Errors are
  // emitted after the threads have joined.
  std::vector<std::string> errors(archs.size());
  std::vector<std::vector<KernelFigures>> found(archs.size());
  auto work = [&](size_t i) {
    auto run = [&](const std::string &text) {
      if (errors[i].empty())
        errors[i] = assemble(toolkit, archs[i], text, path(archs[i]), found[i]);
    };
    run(ptx[i]);
    Wishes wishes = wishesFor(ptx[i], archs[i], found[i]);
    if (wishes.empty())
      return;
    run(withWishes(ptx[i], wishes));
    // A kernel that spills because more blocks were asked for stays as ptxas
    // chose it.
    bool changed = std::erase_if(wishes, [&](const auto &each) {
      const Wish &wish = each.second;
      return wish.blocks > 1 &&
             llvm::any_of(found[i], [&](const KernelFigures &kernel) {
               return kernel.kernel == wish.kernel && spiltBytes(kernel) > 0;
             });
    });
    if (changed)
      run(withWishes(ptx[i], wishes));
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < archs.size(); ++i)
    if (tryThread(threads.emplace_back(), [&, i] { work(i); }) != 0) {
      // The system has no more threads.
      threads.pop_back();
      work(i);
    }
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &error : errors)
    // The first error is enough: the others mostly repeat it.
    if (!error.empty())
      return emitError(loc) << "cannot assemble kernels: " << error;
  for (const std::vector<KernelFigures> &arch : found)
    figures.insert(figures.end(), arch.begin(), arch.end());

  std::string fat = (folder + "/kernels.fatbin").str();
  std::vector<std::string> words{toolkit.program("fatbinary"),
                                 "--create=" + fat, "-64"};
  auto add = [&](StringRef kind, const GpuArch &arch, StringRef suffix) {
    words.push_back(concat("--image3=kind=", kind.str(), ",sm=", arch.number,
                           ",file=", path(arch), ".", suffix.str()));
  };
  for (const GpuArch &arch : archs)
    add("elf", arch, "cubin");
  add("ptx", archs.back(), "ptx"); // for GPUs that are newer
  std::string error =
      runProgram(words, folder, (folder + "/fatbinary.log").str());
  auto bytes = llvm::MemoryBuffer::getFile(fat, /*IsText=*/false,
                                           /*RequiresNullTerminator=*/false);
  if (error.empty() && !bytes)
    error = "cannot read '" + fat + "': " + bytes.getError().message();
  if (!error.empty())
    return emitError(loc) << "cannot assemble kernels: " << error;
  return (*bytes)->getBuffer().str();
}
