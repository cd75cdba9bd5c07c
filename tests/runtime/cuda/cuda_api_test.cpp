// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The real side of the table on a machine without a GPU: it links the four
// libraries but not the driver, and says in one line what is missing. On a
// machine with a GPU the conformance suites test the rest.
#include "runtime/cuda/real_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

namespace {

std::vector<std::string> loadedLibraries() {
  std::vector<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *names) {
        static_cast<std::vector<std::string> *>(names)->push_back(
            info->dlpi_name);
        return 0;
      },
      &names);
  return names;
}

// A program that links the driver would not even start without one.
TEST(CudaApi, LinksTheLibrariesAndNotTheDriver) {
  std::vector<std::string> names = loadedLibraries();
  for (const char *library : {"libcudart.so.13", "libcublasLt.so.13",
                              "libcudnn.so.9", "libnccl.so.2"})
    EXPECT_THAT(names, Contains(HasSubstr(library)));
  // cudart loads it at the first call, if there is one.
  EXPECT_THAT(names, Not(Contains(HasSubstr("libcuda.so"))));
}

TEST(CudaApi, IsNoEmulation) { EXPECT_EQ(cudaApi().label(), ""); }

// Each possible reason has its own sentence, and planning fails in the same
// way.
TEST(CudaApi, SaysWhatIsMissing) {
  int count = 0;
  CudaStatus status = cudaApi().deviceCount(count);
  if (status == cudaOk)
    GTEST_SKIP() << "this machine has " << count << " GPUs";
  EXPECT_THAT(
      cudaApi().errorText(status),
      AnyOf(AllOf(StartsWith("no NVIDIA driver found"), HasSubstr("CUDA 13.")),
            AllOf(StartsWith("the NVIDIA driver supports CUDA"),
                  HasSubstr("needs 13.")),
            StartsWith("the NVIDIA driver reports no GPU")));
  CudaGemmShape shape;
  shape.m = shape.n = shape.k = shape.lda = shape.ldb = shape.ldc = 64;
  shape.dtypeA = shape.dtypeB = shape.dtypeC = "bf16";
  CudaGemm gemm = nullptr;
  CudaChoice choice;
  EXPECT_EQ(cudaApi().planGemm(shape, 1 << 25, gemm, choice), status);
}

// The offset of a code tells whose it is.
TEST(CudaApi, SaysInOneLineWhatEachLibraryReports) {
  auto text = [](CudaStatus status) { return cudaApi().errorText(status); };
  EXPECT_EQ(text(2), "CUDA: out of memory");
  EXPECT_THAT(text(209), HasSubstr("--gpu-arch"));
  EXPECT_THAT(text(cublasCodes + 15), StartsWith("cuBLASLt: "));
  EXPECT_THAT(text(cudnnCodes + 3000), StartsWith("cuDNN: "));
  EXPECT_THAT(text(cudnnGraphCodes + 7), StartsWith("cuDNN: "));
  EXPECT_THAT(text(ncclCodes + 6), StartsWith("NCCL: remote process"));
  for (CudaStatus status :
       {2, 35, 100, 209, 700, 999, cublasCodes + 13, cudnnCodes + 5000,
        cudnnGraphCodes + 1, ncclCodes + 3, cudaRefused, cudaInProgress})
    EXPECT_THAT(text(status), AllOf(Not(HasSubstr("\n")), Not("")));
}

} // namespace
