// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every system call of a run fails in turn (runtime_fault_shim.cpp). Whatever
// fails: the run ends by itself, with one line of error or none. Each file that
// it writes is the old one or the whole new one, and a run that reports success
// has saved its weights.
#include "tests/runtime/train/runtime_faults.h"

using testing::HasSubstr;
using testing::Not;

namespace {

TEST_F(Faults, EveryFileIsTheOldOneOrTheNewOne) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  Outcome counted = runWith("FAULT_COUNTS=counts");
  ASSERT_EQ(counted.code, 0) << counted.err;
  std::vector<Fault> faults = countedFaults();
  EXPECT_GT(faults.size(), 100u);
  for (const Fault &fault : sampled(faults)) {
    std::string variables = "FAULT_CALL=" + fault.call +
                            " FAULT_AT=" + std::to_string(fault.at) +
                            " FAULT_ERRNO=" + std::to_string(fault.code);
    writeOld();
    Outcome outcome = runWith(variables);
    EXPECT_EQ(wrong(outcome, fault), "") << variables << "\n" << outcome.err;
    shell("rm -f .*.tmp-*");
  }
}

// The end of one rank kills the others, rank 0 in the middle of its file of
// --save. Until it is complete, this file has no name that could stay.
TEST_F(Faults, AKilledSaveLeavesNothing) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  folder.write("s.st", "old");
  Outcome killed = runWith("FAULT_PATH=/# FAULT_CALL=write FAULT_AT=2 "
                           "FAULT_KILL=1",
                           "--steps 2 --ranks 2 --save s.st");
  EXPECT_EQ(killed.code, 137) << killed.err;
  EXPECT_EQ(folder.read("s.st"), "old");
  EXPECT_EQ(shell("ls -A | grep tmp-").out, "");
}

// A read that fails may succeed later: the run goes on, and says so once. A
// disk that stays bad ends it, with the name of the file and the byte.
TEST_F(Faults, ReadsOfDataAreTriedAgain) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  const std::string onIds = "FAULT_PATH=/ids.npy FAULT_CALL=read ";
  ASSERT_EQ(runWith("", "--steps 2 --save whole").code, 0);
  for (int code : {EIO, ESTALE, EAGAIN}) {
    Outcome passed =
        runWith(onIds + "FAULT_AT=7 FAULT_ERRNO=" + std::to_string(code),
                "--steps 2 --save out");
    EXPECT_EQ(passed.code, 0) << passed.err;
    EXPECT_THAT(passed.err, HasSubstr("ids.npy' at byte "));
    EXPECT_THAT(passed.err, HasSubstr("; trying again"));
    EXPECT_EQ(folder.read("out"), folder.read("whole"));
  }
  Outcome stays = runWith(onIds + "FAULT_FROM=7 FAULT_ERRNO=5", "--steps 2");
  EXPECT_EQ(stays.code, 3);
  EXPECT_EQ(stays.errors(), 1);
  EXPECT_THAT(stays.err, HasSubstr("error: cannot read 'ids.npy' at byte "));
  EXPECT_THAT(stays.err, HasSubstr("(tried 4 times)"));
  EXPECT_EQ(stays.err.find("trying again"), stays.err.rfind("trying again"));
  // A failure that cannot pass is not tried again.
  Outcome refused = runWith(onIds + "FAULT_FROM=7 FAULT_ERRNO=1", "--steps 2");
  EXPECT_EQ(refused.code, 1); // EPERM
  EXPECT_THAT(refused.err, Not(HasSubstr("tried")));
}

// A read or write may move less than it is asked to, or be interrupted. That is
// no failure: the run goes on without a word, and its files have the same
// bytes.
TEST_F(Faults, ShortReadsAndWritesAreContinued) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  const std::string flags = "--steps 3 --checkpoint c --checkpoint-every 1 "
                            "--resume --save out.safetensors --log log";
  ASSERT_EQ(runWith("", "--steps 1 --checkpoint c").code, 0);
  shell("cp -r c old");
  Outcome counted = runWith("FAULT_COUNTS=counts", flags);
  ASSERT_EQ(counted.code, 0) << counted.err;
  const std::string whole = folder.read("out.safetensors");
  std::vector<std::string> cases;
  std::istringstream counts(folder.read("counts"));
  std::string call;
  for (int64_t count; counts >> call >> count;)
    for (int64_t at = 1; (call == "read" || call == "write") && at <= count;
         ++at)
      for (const char *how : {"FAULT_SHORT=1", "FAULT_ERRNO=4"}) // 4: EINTR
        cases.push_back(std::string(how) + " FAULT_CALL=" + call +
                        " FAULT_AT=" + std::to_string(at));
  EXPECT_GT(cases.size(), 40u);
  cases = sampled(std::move(cases), 12);
  // All calls of a run at once.
  for (const char *which : {"read", "write"})
    cases.push_back(std::string("FAULT_SHORT=1 FAULT_FROM=1 FAULT_CALL=") +
                    which);
  for (const std::string &variables : cases) {
    shell("rm -rf c log && cp -r old c");
    Outcome outcome = runWith(variables, flags);
    EXPECT_EQ(outcome.code, 0) << variables << outcome.err;
    // The one warning is not about files.
    EXPECT_EQ(outcome.err.rfind("warning: "),
              outcome.err.find("warning: the run resumes with other settings: "
                               "--steps is '3', was '1'\n"))
        << variables << outcome.err;
    EXPECT_EQ(folder.read("out.safetensors"), whole) << variables;
    EXPECT_EQ(log().size(), 3u) << variables; // the header, steps 1 and 2
    Outcome next = runWith("", "--steps 3 --checkpoint c --resume=3");
    EXPECT_EQ(next.code, 0) << variables << next.err;
  }
}

// A machine may have more cores than a cpu_set_t, whose 1024 bits its kernel
// then refuses, or more than the runtime knows of.
TEST_F(Faults, MachinesMayHaveManyCores) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  for (auto &[cores, list] :
       {std::pair("2000", "1998-1999"), std::pair("100000", "")}) {
    Outcome outcome = runWith(std::string("FAULT_CPUS=") + cores);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    ASSERT_FALSE(log().empty());
    EXPECT_EQ(log()[0]["cores"], list);
    EXPECT_EQ(log()[0]["ranks"], 1);
  }
}

// Rank 0 writes the log. If that is slow, the other rank waits for it, and only
// it is named.
TEST_F(Faults, ASlowRankIsNamed) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  Outcome outcome = runWith("FAULT_PATH=/log FAULT_CALL=write FAULT_FROM=1 "
                            "FAULT_SLEEP=40",
                            "--steps 26 --ranks 2 --log log");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("warning: rank 0 on host '"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("warning: rank 1")));
}

// A log or a trace that cannot be written costs a warning, not the weights.
TEST_F(Faults, WhatMattersMostIsSaved) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  writeOld();
  // The header is the first line, step 0 the second one.
  Outcome outcome =
      runWith("FAULT_CALL=write FAULT_PATH=/log FAULT_FROM=3 FAULT_ERRNO=28");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("warning: cannot write 'log': No space "
                                     "left on device; the run goes on, and its "
                                     "log ends before step 1"));
  EXPECT_TRUE(isSaved("out.safetensors"));
  EXPECT_EQ(log().size(), 2u);
  writeOld();
  outcome =
      runWith("FAULT_CALL=write FAULT_PATH=t.json FAULT_FROM=1 FAULT_ERRNO=28");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("warning: cannot save 't.json': No space "
                                     "left on device; the run has no trace"));
  EXPECT_TRUE(isSaved("out.safetensors"));
  EXPECT_EQ(folder.read("t.json"), "old");
  EXPECT_EQ(outcome.errors(), 0);
}

} // namespace
