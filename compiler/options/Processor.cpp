// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The features of the levels, and of this machine (Processor.h).
#include "compiler/options/Processor.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"

namespace fsdpc::fsdp {

// The features that levels 3 and 4 add. AVX2 with FMA is the least that host
// kernels need.
static const char *const kLevel3[] = {"avx",  "avx2", "bmi",   "bmi2",
                                      "f16c", "fma",  "lzcnt", "movbe"};
static const char *const kLevel4[] = {"avx512f", "avx512bw", "avx512cd",
                                      "avx512dq", "avx512vl"};

std::vector<std::string> featuresOf(Cpu cpu) {
  bool level4 = cpu == Cpu::X86_64_V4, hasBf16 = false;
  if (cpu == Cpu::Native) {
    auto host = llvm::sys::getHostCPUFeatures();
    auto present = [&](const char *feature) { return host.lookup(feature); };
    if (!llvm::all_of(kLevel3, present))
      return {};
    level4 = llvm::all_of(kLevel4, present);
    hasBf16 = level4 && present("avx512bf16");
  }
  std::vector<std::string> features(std::begin(kLevel3), std::end(kLevel3));
  if (level4)
    features.insert(features.end(), std::begin(kLevel4), std::end(kLevel4));
  if (hasBf16)
    features.push_back("avx512bf16");
  return features;
}

} // namespace fsdpc::fsdp
