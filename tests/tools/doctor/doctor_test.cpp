// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Judges machines that do not exist.
#include "tools/doctor/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace fsdpc::doctor;
using testing::HasSubstr;

namespace {

constexpr uint64_t gibibyte = uint64_t(1) << 30;

// A machine on which nothing is to be mended.
Facts whole() {
  Facts facts;
  facts.processor = "EPYC";
  facts.level = 4;
  facts.cores = facts.onlineCores = 8;
  facts.memory = facts.availableMemory = 64 * gibibyte;
  facts.sharedMemory = facts.freeSharedMemory = gibibyte;
  facts.temporary = "/tmp";
  facts.freeTemporary = gibibyte;
  facts.cudaRuntime = "/lib";
  facts.mpirun = "/usr/bin/mpirun";
  facts.gpus = {"H200", "H200"};
  facts.driver = "580.1";
  facts.toolkit = "/usr/local/cuda";
  facts.nccl = "2.27.3";
  return facts;
}

Finding about(const Facts &facts, const std::string &name) {
  for (const Finding &finding : judge(facts))
    if (finding.about == name)
      return finding;
  ADD_FAILURE() << "nothing about " << name;
  return {};
}

void expect(const Facts &facts, const char *name, Verdict verdict,
            const char *found, const char *mend) {
  Finding finding = about(facts, name);
  EXPECT_EQ(finding.verdict, verdict) << name;
  EXPECT_THAT(finding.found, HasSubstr(found));
  EXPECT_THAT(finding.mend, HasSubstr(mend));
}

TEST(Doctor, NothingToMend) {
  for (const Finding &finding : judge(whole())) {
    EXPECT_EQ(finding.verdict, Verdict::fine) << finding.about;
    EXPECT_EQ(finding.mend, "") << finding.about;
  }
  EXPECT_EQ(about(whole(), "GPUs").found, "2 x H200, driver 580.1");
}

TEST(Doctor, EachFaultHasItsMend) {
  Facts facts = whole();
  facts.level = 0;
  expect(facts, "processor", Verdict::wrong, "no AVX2", "another machine");
  facts = whole();
  facts.quota = 1.5;
  expect(facts, "cores", Verdict::optional,
         "8 of 8, of which the control group grants the time of 1.5", "--cpus");
  facts = whole();
  facts.memoryLimit = gibibyte / 2;
  expect(facts, "memory", Verdict::wrong, "512.0 MiB", "--memory");
  facts = whole();
  facts.freeSharedMemory = gibibyte / 32;
  expect(facts, "/dev/shm", Verdict::optional, "32.0 MiB free of 1.0 GiB",
         "--shm-size");
  facts.freeSharedMemory.reset();
  expect(facts, "/dev/shm", Verdict::optional, "missing", "mount -t tmpfs");
  facts = whole();
  facts.freeTemporary = 1;
  expect(facts, "temporary files", Verdict::wrong, "'/tmp'", "TMPDIR");
  facts.freeTemporary.reset();
  expect(facts, "temporary files", Verdict::wrong, "no folder '/tmp'",
         "TMPDIR");
  facts = whole();
  facts.files = 64;
  expect(facts, "open files", Verdict::optional, "64", "ulimit -n 1024");
  facts.processes = 20;
  expect(facts, "processes", Verdict::optional, "20", "ulimit -u 256");
}

TEST(Doctor, MissingParts) {
  Facts facts = whole();
  facts.missing = {"lib/libfsdpc_runtime.a", "lib/link/crti.o"};
  expect(facts, "compiler", Verdict::wrong,
         "lacks 'lib/libfsdpc_runtime.a', 'lib/link/crti.o'",
         "install fsdpc again");
  facts.mpiFault = "libmpi.so.40: not found";
  expect(facts, "mpirun", Verdict::optional, "libmpi.so.40: not found",
         "LD_LIBRARY_PATH");
  facts.mpirun = "";
  expect(facts, "mpirun", Verdict::optional, "not on PATH",
         "apt install openmpi-bin");
  facts.gpus.clear();
  expect(facts, "GPUs", Verdict::optional, "none", "--gpus all");
  facts.cudaRuntime = facts.toolkit = facts.nccl = "";
  expect(facts, "CUDA runtime", Verdict::optional, "not in this fsdpc",
         "FSDPC_CUDA_TOOLKIT");
  expect(facts, "CUDA toolkit", Verdict::optional, "none", "--cuda-path");
  expect(facts, "NCCL", Verdict::optional, "cannot be loaded", "libnccl2");
}

TEST(Doctor, TheReportNamesTheMendUnderTheFault) {
  EXPECT_EQ(reportOf({{Verdict::fine, "cores", "8 of 8", ""},
                      {Verdict::wrong, "memory", "none", "buy some"}}),
            "ok    cores   8 of 8\n"
            "WRONG memory  none\n"
            "              -> buy some\n");
}

// TMPDIR may name any folder.
TEST(Doctor, NamesCommandNoTerminal) {
  EXPECT_EQ(reportOf({{Verdict::wrong, "files", "no '\x1b[2J\n'", "\x9b"}}),
            "WRONG files  no '\\x1b[2J\\x0a'\n"
            "             -> \\x9b\n");
}

} // namespace
