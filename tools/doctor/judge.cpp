// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Judges the facts of a machine, and words the report. A finding that is not
// fine says what mends it: a command where one does, else what to do. Limits
// are those below which a compile or a run of a few ranks is known to fail.
#include "runtime/support/concat.h"
#include "runtime/support/spelling.h"
#include "tools/doctor/doctor.h"

#include <algorithm>

namespace fsdpc::doctor {
namespace {

constexpr uint64_t mebibyte = uint64_t(1) << 20;
// Windows of the ranks of a node stay below 32 MiB together
// (runtime/abi/staging.cpp).
constexpr uint64_t leastSharedMemory = 64 * mebibyte;
constexpr uint64_t leastMemory = 1024 * mebibyte;
constexpr uint64_t leastTemporary = 256 * mebibyte;
// A rank opens its data, logs, checkpoints and a connection to each other rank.
constexpr uint64_t leastFiles = 1024;
// Streams, pools and watches of a few ranks.
constexpr uint64_t leastProcesses = 256;

class Report {
public:
  void fine(std::string about, std::string found) {
    findings.push_back({Verdict::fine, std::move(about), std::move(found), ""});
  }
  void wrong(std::string about, std::string found, std::string mend) {
    findings.push_back(
        {Verdict::wrong, std::move(about), std::move(found), std::move(mend)});
  }
  void optional(std::string about, std::string found, std::string mend) {
    findings.push_back({Verdict::optional, std::move(about), std::move(found),
                        std::move(mend)});
  }
  std::vector<Finding> findings;
};

void judgeProcessor(const Facts &facts, Report &report) {
  std::string level = facts.level == 4   ? "AVX-512 (x86-64-v4)"
                      : facts.level == 3 ? "AVX2 (x86-64-v3)"
                                         : "no AVX2";
  std::string text =
      (facts.processor.empty() ? "unknown model" : facts.processor) + ", " +
      level;
  if (facts.level == 0)
    report.wrong("processor", text,
                 "programs need AVX2 and FMA; use another machine, or show a "
                 "virtual machine its host's processor (qemu -cpu host)");
  else
    report.fine("processor", text);
}

void judgeCores(const Facts &facts, Report &report) {
  std::string text = concat(facts.cores, " of ", facts.onlineCores);
  bool throttled = facts.quota && *facts.quota < facts.cores;
  if (throttled) {
    std::string quota = std::to_string(*facts.quota);
    text += ", of which the control group grants the time of " +
            quota.substr(0, quota.find('.') + 2);
    report.optional("cores", text,
                    "start as many ranks times --threads, or raise the quota "
                    "(docker run --cpus=N)");
  } else {
    report.fine("cores", text);
  }
}

void judgeMemory(const Facts &facts, Report &report) {
  if (!facts.memory)
    return;
  uint64_t left = facts.availableMemory.value_or(*facts.memory);
  std::string text = runtime::bytesText(int64_t(left)) + " available of " +
                     runtime::bytesText(int64_t(*facts.memory));
  if (facts.memoryLimit) {
    text += ", the control group allows " +
            runtime::bytesText(int64_t(*facts.memoryLimit));
    left = std::min(left, *facts.memoryLimit);
  }
  if (left < leastMemory)
    report.wrong("memory", text,
                 "a compile takes up to 1 GiB; end other programs, or raise "
                 "the limit (docker run --memory=N)");
  else
    report.fine("memory", text);
}

void judgeFolders(const Facts &facts, Report &report) {
  if (!facts.freeSharedMemory)
    report.optional("/dev/shm", "missing",
                    "mpirun needs it: mount -t tmpfs tmpfs /dev/shm");
  else if (*facts.freeSharedMemory < leastSharedMemory)
    report.optional(
        "/dev/shm",
        runtime::bytesText(int64_t(*facts.freeSharedMemory)) + " free of " +
            runtime::bytesText(int64_t(facts.sharedMemory.value_or(0))),
        "mpirun needs more: mount -o remount,size=1g /dev/shm, "
        "docker run --shm-size=1g");
  else
    report.fine("/dev/shm",
                runtime::bytesText(int64_t(*facts.freeSharedMemory)) + " free");
  if (!facts.freeTemporary)
    report.wrong("temporary files", "no folder '" + facts.temporary + "'",
                 "set TMPDIR to a folder that can be written");
  else if (*facts.freeTemporary < leastTemporary)
    report.wrong("temporary files",
                 runtime::bytesText(int64_t(*facts.freeTemporary)) +
                     " free in '" + facts.temporary + "'",
                 "set TMPDIR to a folder with more room");
  else
    report.fine("temporary files",
                runtime::bytesText(int64_t(*facts.freeTemporary)) +
                    " free in '" + facts.temporary + "'");
}

void judgeLimit(const char *about, const std::optional<uint64_t> &limit,
                uint64_t least, const std::string &flag, Report &report) {
  if (!limit || *limit >= least)
    report.fine(about, limit ? std::to_string(*limit) : "unlimited");
  else
    report.optional(about, std::to_string(*limit),
                    concat("many ranks need more: ulimit ", flag, " ", least));
}

void judgeCompiler(const Facts &facts, Report &report) {
  std::string lacks;
  for (const std::string &part : facts.missing)
    lacks += (lacks.empty() ? "lacks '" : ", '") + part + "'";
  if (!lacks.empty())
    report.wrong("compiler", lacks,
                 "install fsdpc again (pip install --force-reinstall, apt "
                 "install --reinstall), or build it: ninja -C build fsdpc");
  else
    report.fine("compiler",
                "links programs by itself; no other toolchain is needed");
}

void judgeMpi(const Facts &facts, Report &report) {
  const char *install = "ranks can be threads without it (--ranks N); for "
                        "processes: apt install openmpi-bin";
  if (facts.mpirun.empty())
    report.optional("mpirun", "not on PATH", install);
  else if (!facts.mpiFault.empty())
    report.optional("mpirun", facts.mpirun + ", but " + facts.mpiFault,
                    "set LD_LIBRARY_PATH to the folder of libmpi.so.40, or: "
                    "apt install openmpi-bin");
  else
    report.fine("mpirun", facts.mpirun);
}

void judgeGpus(const Facts &facts, Report &report) {
  if (facts.gpus.empty()) {
    report.optional("GPUs", "none that NVIDIA's driver knows",
                    "only --target=cuda needs one; in a container: docker run "
                    "--gpus all");
  } else {
    std::string names = facts.gpus.front();
    if (facts.gpus.size() > 1)
      names = concat(facts.gpus.size(), " x ", names);
    report.fine("GPUs", names + ", driver " + facts.driver);
  }
  if (facts.cudaRuntime.empty())
    report.optional("CUDA runtime", "not in this fsdpc",
                    "--target=cuda needs it; build fsdpc with a CUDA toolkit "
                    "(cmake -DFSDPC_CUDA_TOOLKIT=DIR)");
  else
    report.fine("CUDA runtime", facts.cudaRuntime);
  if (facts.toolkit.empty())
    report.optional("CUDA toolkit", "none that is complete",
                    "a compile for --target=cuda needs ptxas, fatbinary, "
                    "cudart, cublasLt, cudnn and nccl; name the folder with "
                    "--cuda-path, or: apt install cuda-toolkit "
                    "libcudnn9-dev-cuda-13 libnccl-dev, or: pip install "
                    "nvidia-cuda-nvcc nvidia-cublas nvidia-cudnn-cu13 "
                    "nvidia-nccl-cu13");
  else
    report.fine("CUDA toolkit", facts.toolkit);
  if (facts.nccl.empty())
    report.optional("NCCL", "libnccl.so.2 cannot be loaded",
                    "programs for several GPUs need it: apt install libnccl2, "
                    "or set LD_LIBRARY_PATH to its folder");
  else
    report.fine("NCCL", facts.nccl);
}

} // namespace

std::vector<Finding> judge(const Facts &facts) {
  Report report;
  judgeProcessor(facts, report);
  judgeCores(facts, report);
  judgeMemory(facts, report);
  judgeFolders(facts, report);
  judgeLimit("open files", facts.files, leastFiles, "-n", report);
  judgeLimit("processes", facts.processes, leastProcesses, "-u", report);
  judgeCompiler(facts, report);
  judgeMpi(facts, report);
  judgeGpus(facts, report);
  return report.findings;
}

std::string reportOf(const std::vector<Finding> &findings) {
  size_t width = 0;
  for (const Finding &finding : findings)
    width = std::max(width, finding.about.size());
  std::string text;
  for (const Finding &finding : findings) {
    const char *mark = finding.verdict == Verdict::fine       ? "ok    "
                       : finding.verdict == Verdict::optional ? "-     "
                                                              : "WRONG ";
    text += mark + finding.about +
            std::string(width + 2 - finding.about.size(), ' ') +
            runtime::printable(finding.found) + "\n";
    if (!finding.mend.empty())
      text += std::string(6 + width + 2, ' ') + "-> " +
              runtime::printable(finding.mend) + "\n";
  }
  return text;
}

} // namespace fsdpc::doctor
