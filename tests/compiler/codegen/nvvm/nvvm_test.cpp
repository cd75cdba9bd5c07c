// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The PTX of a grid kernel for each architecture, what ptxas is asked for, and
// where the CUDA toolkit is looked for. Needs no GPU and, except for the
// search, no toolkit: it reads the generated text, and scripts stand in for
// ptxas.
#include "compiler/codegen/nvvm/Assemble.h"
#include "compiler/codegen/nvvm/EmitPtx.h"
#include "compiler/codegen/nvvm/LowerToNVVM.h"
#include "compiler/codegen/nvvm/Toolkit.h"
#include "compiler/options/Options.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include "gmock/gmock.h"

#include <cstdlib>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using testing::AnyOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Eq;
using testing::HasSubstr;
using testing::Not;

namespace {

// The sum of 32 rows of 4, one row per lane of a warp, and its square root.
constexpr const char *kKernel = R"mlir(
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @NAME(%x: !llvm.ptr, %y: !llvm.ptr) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
      %thread = gpu.thread_id x
      %i = arith.index_cast %thread : index to i64
      %p = llvm.getelementptr %x[%i] : (!llvm.ptr, i64) -> !llvm.ptr, vector<4xf32>
      %v = llvm.load %p {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
      %s = vector.reduction <add>, %v : vector<4xf32> into f32
      %w = gpu.subgroup_reduce add %s uniform : (f32) -> f32
      %r = math.sqrt %w : f32
      %zero = arith.constant 0 : index
      %first = arith.cmpi eq, %thread, %zero : index
      scf.if %first {
        llvm.store %r, %y : f32, !llvm.ptr
      }
      gpu.return
    }
  }
}
)mlir";

class NVVMTest : public testing::Test {
protected:
  NVVMTest() {
    DialectRegistry registry;
    registry
        .insert<arith::ArithDialect, cf::ControlFlowDialect, gpu::GPUDialect,
                LLVM::LLVMDialect, math::MathDialect, NVVM::NVVMDialect,
                scf::SCFDialect, vector::VectorDialect>();
    kernels::registerGpuTranslations(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }

  std::string ptx(const GpuArch &arch, StringRef name) {
    std::string text = kKernel;
    text.replace(text.find("NAME"), 4, name.str());
    auto module = parseSourceString<ModuleOp>(text, &context);
    std::string result;
    EXPECT_TRUE(module && succeeded(kernels::lowerToNVVM(*module)));
    EXPECT_EQ(kernels::emitPtx(*module, arch, result), "");
    return result;
  }

  // Returns the diagnostic that `work` emits.
  std::string errorOf(llvm::function_ref<void()> work) {
    std::string text;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      text += diagnostic.str();
      return success();
    });
    work();
    return text;
  }

  MLIRContext context;
  Location loc = UnknownLoc::get(&context);
};

// Vector loads, a sum over the warp by shuffles, and an exact root; no calls
// remain.
TEST_F(NVVMTest, EachArchitectureOfTheOptionHasItsPtx) {
  using fsdp::Gpu;
  for (const GpuArch &arch : gpuArchs({Gpu::SM80, Gpu::SM86, Gpu::SM89,
                                       Gpu::SM90, Gpu::SM100, Gpu::SM120})) {
    std::string text = ptx(arch, "sum");
    EXPECT_THAT(text, HasSubstr((".target " + arch.name + "\n").str()));
    EXPECT_THAT(text, HasSubstr(".visible .entry sum("));
    EXPECT_THAT(text, HasSubstr(".maxntid 32"));
    EXPECT_THAT(text, HasSubstr("ld.global.v4"));
    EXPECT_THAT(text, HasSubstr("shfl.sync.bfly.b32"));
    EXPECT_THAT(text, HasSubstr("sqrt.rn.f32"));
    EXPECT_THAT(text, Not(HasSubstr("call")));
    // Additions that ptxas must not fuse.
    EXPECT_THAT(text, HasSubstr("add.rn.f32"));
  }
}

// Kernels are compiled in groups, but ptxas gets one module per architecture.
TEST_F(NVVMTest, ModulesAreJoinedUnderOneHeader) {
  GpuArch arch = gpuArchs({fsdp::Gpu::SM90}).front();
  std::string text = kernels::joinPtx({ptx(arch, "a"), ptx(arch, "b")});
  StringRef joined = text;
  EXPECT_EQ(joined.count(".version"), 1u);
  EXPECT_EQ(joined.count(".address_size"), 1u);
  EXPECT_EQ(joined.count(".visible .entry a("), 1u);
  EXPECT_EQ(joined.count(".visible .entry b("), 1u);
}

// The message lists each place that was searched and what it lacks.
TEST_F(NVVMTest, AMissingToolkitIsReportedWithEachPlace) {
  llvm::SmallString<128> folder;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("toolkit", folder));
  EXPECT_EQ(errorOf([&] { (void)findCudaToolkit(loc, folder); }),
            ("cannot find a CUDA toolkit with ptxas, fatbinary, cudart, "
             "cublasLt, cudnn and nccl; searched '" +
             folder +
             "' (--cuda-path) lacks bin/ptxas, bin/fatbinary, "
             "libcudart.so, libcublasLt.so, libcudnn.so, libnccl.so; set one "
             "with --cuda-path=DIR, or: pip install nvidia-cuda-nvcc "
             "nvidia-cublas nvidia-cudnn-cu13 nvidia-nccl-cu13")
                .str());
  llvm::sys::fs::remove(folder);
  setenv("CUDA_HOME", folder.c_str(), 1);
  std::string error = errorOf([&] {
    if (succeeded(findCudaToolkit(loc, "")))
      emitError(loc, "found another");
  });
  unsetenv("CUDA_HOME");
  EXPECT_THAT(
      error, AnyOf("found another",
                   HasSubstr("'" + folder.str().str() +
                             "' (CUDA_HOME) does not exist or is not a folder; "
                             "'/usr/local/cuda' (default)")));
}

// The folder of libraries becomes the program's runpath, which must work
// wherever the program is started.
TEST_F(NVVMTest, ARelativeToolkitBecomesAbsolute) {
  namespace fs = llvm::sys::fs;
  llvm::SmallString<128> before, folder;
  ASSERT_FALSE(fs::current_path(before));
  ASSERT_FALSE(fs::createUniqueDirectory("toolkit", folder));
  ASSERT_FALSE(fs::set_current_path(folder));
  for (const char *name : {"cuda/bin", "cuda/lib64"})
    ASSERT_FALSE(fs::create_directories(name));
  for (const char *name :
       {"bin/ptxas", "bin/fatbinary", "lib64/libcudart.so",
        "lib64/libcublasLt.so", "lib64/libcudnn.so", "lib64/libnccl.so"})
    ASSERT_FALSE(fs::create_link("/bin/true", std::string("cuda/") + name));
  FailureOr<CudaToolkit> toolkit = findCudaToolkit(loc, "cuda");
  ASSERT_FALSE(fs::set_current_path(before));
  fs::remove_directories(folder);
  ASSERT_TRUE(succeeded(toolkit));
  EXPECT_THAT(toolkit->libraryFolders(),
              ElementsAre((folder + "/cuda/lib64").str()));
  EXPECT_THAT(toolkit->libraries,
              Contains((folder + "/cuda/lib64/libnccl.so").str()));
}

// NVIDIA's packages from PyPI have the libraries in several folders, by the
// names that programs load. A machine's own toolkit comes before them.
TEST_F(NVVMTest, PackagesOfPythonAreAToolkit) {
  namespace fs = llvm::sys::fs;
  llvm::SmallString<128> folder;
  ASSERT_FALSE(fs::createUniqueDirectory("environment", folder));
  std::string packages =
      (folder + "/lib/python3.12/site-packages/nvidia").str();
  for (const char *name : {"/cu13/bin", "/cu13/lib", "/cudnn/lib", "/nccl/lib"})
    ASSERT_FALSE(fs::create_directories(packages + name));
  for (const char *name :
       {"/cu13/bin/ptxas", "/cu13/bin/fatbinary", "/cu13/lib/libcudart.so.13",
        "/cu13/lib/libcublasLt.so.13", "/cudnn/lib/libcudnn.so.9",
        "/nccl/lib/libnccl.so.2"})
    ASSERT_FALSE(fs::create_link("/bin/true", packages + name));
  FailureOr<CudaToolkit> named = findCudaToolkit(loc, packages + "/cu13");
  std::string path = getenv("PATH");
  unsetenv("CUDA_HOME");
  unsetenv("CUDA_PATH");
  setenv("PATH", "/nowhere", 1);
  setenv("VIRTUAL_ENV", folder.c_str(), 1);
  FailureOr<CudaToolkit> found = findCudaToolkit(loc, "");
  unsetenv("VIRTUAL_ENV");
  setenv("PATH", path.c_str(), 1);
  fs::remove_directories(folder);
  ASSERT_TRUE(succeeded(named));
  EXPECT_THAT(named->libraryFolders(),
              ElementsAre(packages + "/cu13/lib", packages + "/cudnn/lib",
                          packages + "/nccl/lib"));
  ASSERT_TRUE(succeeded(found));
  EXPECT_THAT(found->root, AnyOf("/usr/local/cuda", Eq(packages + "/cu13")));
}

// A variable of the environment may come from anywhere, so a folder that it
// names relative to the working folder is no toolkit. Nor is one that a runpath
// would cut in two, as the second part would be relative.
TEST_F(NVVMTest, ToolkitsOfTheWorkingFolderAreSkipped) {
  namespace fs = llvm::sys::fs;
  llvm::SmallString<128> before, folder;
  ASSERT_FALSE(fs::current_path(before));
  ASSERT_FALSE(fs::createUniqueDirectory("toolkit", folder));
  ASSERT_FALSE(fs::set_current_path(folder));
  for (const char *root : {"cuda", "cu:da"}) {
    for (const char *name : {"/bin", "/lib64"})
      ASSERT_FALSE(fs::create_directories(root + std::string(name)));
    for (const char *name :
         {"/bin/ptxas", "/bin/fatbinary", "/bin/nvcc", "/lib64/libcudart.so",
          "/lib64/libcublasLt.so", "/lib64/libcudnn.so", "/lib64/libnccl.so"})
      ASSERT_FALSE(fs::create_link("/bin/true", root + std::string(name)));
  }
  auto found = [&](StringRef given) {
    std::string result;
    std::string error = errorOf([&] {
      if (FailureOr<CudaToolkit> toolkit = findCudaToolkit(loc, given);
          succeeded(toolkit))
        result = toolkit->root;
    });
    return result + error;
  };
  std::string path = getenv("PATH");
  setenv("CUDA_HOME", "cuda", 1);
  setenv("CUDA_PATH", "./cuda", 1);
  setenv("PATH", "cuda/bin", 1);
  EXPECT_THAT(found(""),
              AnyOf("/usr/local/cuda",
                    AllOf(HasSubstr("'cuda' (CUDA_HOME) is not an absolute "
                                    "path; './cuda' (CUDA_PATH) is not an "
                                    "absolute path; '/usr/local/cuda'"),
                          Not(HasSubstr("nvcc in PATH")))));
  unsetenv("CUDA_HOME");
  unsetenv("CUDA_PATH");
  setenv("PATH", path.c_str(), 1);
  EXPECT_THAT(found("cu:da"),
              HasSubstr("(--cuda-path) contains ':', which separates the "
                        "folders of a runpath"));
  ASSERT_FALSE(fs::set_current_path(before));
  fs::remove_directories(folder);
}

// The script reports these figures for each kernel, and packs nothing.
constexpr const char *kPtxas = R"sh(#!/bin/sh
cp "$5" "$7"
for kernel in sums:90:0:40960 plain:90:0:0 spills:255:8:0 small:40:0:0; do
  IFS=: read name registers spilt shared <<END
$kernel
END
  echo "ptxas info    : Compiling entry function '$name' for 'sm'"
  echo "    0 bytes stack frame, $spilt bytes spill stores, 0 bytes spill loads"
  echo "ptxas info    : Used $registers registers, $shared bytes smem"
done
)sh";
constexpr const char *kFatbinary = R"sh(#!/bin/sh
echo fat > "${1#--create=}"
)sh";

class AssembleTest : public NVVMTest {
protected:
  AssembleTest() {
    EXPECT_FALSE(llvm::sys::fs::createUniqueDirectory("assemble", folder));
    toolkit.root = folder.str().str();
    EXPECT_FALSE(llvm::sys::fs::create_directories(folder + "/bin"));
    writeProgram("ptxas", kPtxas);
    writeProgram("fatbinary", kFatbinary);
  }
  ~AssembleTest() override { llvm::sys::fs::remove_directories(folder); }

  void writeProgram(StringRef name, StringRef script) {
    std::string path = toolkit.program(name);
    std::error_code error;
    llvm::raw_fd_ostream(path, error) << script;
    EXPECT_FALSE(error);
    EXPECT_FALSE(
        llvm::sys::fs::setPermissions(path, llvm::sys::fs::perms::all_all));
  }

  // Returns the PTX that ptxas got last, for kernels with 256 threads a block.
  std::string assembled(fsdp::Gpu gpu) {
    std::string ptx;
    for (const char *name : {"sums", "plain", "spills", "small"})
      ptx += ".visible .entry " + std::string(name) +
             "()\n.maxntid 256\n{\n\tret;\n}\n";
    SmallVector<GpuArch> archs = gpuArchs({gpu});
    std::vector<KernelFigures> figures;
    EXPECT_TRUE(
        succeeded(assembleKernels(loc, toolkit, archs, ptx, folder, figures)));
    EXPECT_EQ(figures.size(), 4u);
    auto text = llvm::MemoryBuffer::getFile(folder + "/kernels." +
                                            archs.front().name + ".ptx");
    return text ? (*text)->getBuffer().str() : "";
  }

  llvm::SmallString<128> folder;
  CudaToolkit toolkit;
};

// 96 registers fit two blocks of 256 threads, too few to load at full
// bandwidth. What spills gets the registers of one block.
TEST_F(AssembleTest, PtxasIsAskedForRegistersOfEnoughBlocks) {
  std::string text = assembled(fsdp::Gpu::SM90);
  EXPECT_THAT(text,
              HasSubstr(".entry sums()\n.maxntid 256\n.minnctapersm 3\n{"));
  EXPECT_THAT(text,
              HasSubstr(".entry plain()\n.maxntid 256\n.minnctapersm 3\n{"));
  EXPECT_THAT(text,
              HasSubstr(".entry spills()\n.maxntid 256\n.minnctapersm 1\n{"));
  EXPECT_THAT(text, HasSubstr(".entry small()\n.maxntid 256\n{"));
}

// 40 KiB of shared memory fit twice in 100 KiB, whatever the registers are.
TEST_F(AssembleTest, NoMoreBlocksAreAskedForThanSharedMemoryHolds) {
  for (fsdp::Gpu gpu : {fsdp::Gpu::SM86, fsdp::Gpu::SM89, fsdp::Gpu::SM120}) {
    std::string text = assembled(gpu);
    EXPECT_THAT(text, HasSubstr(".entry sums()\n.maxntid 256\n{"));
    EXPECT_THAT(text, HasSubstr(".entry plain()\n.maxntid 256\n"
                                ".minnctapersm 3\n{"));
  }
}

} // namespace
