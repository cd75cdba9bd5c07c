// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Initial values of parameters and buffers: from the model's own files, from
// the program itself (--embed-weights), from a rule (--init-rule), or from the
// files of --init, which take precedence.
#pragma once

#include "runtime/cli/command_line.h"
#include "runtime/data/init_file.h"
#include "runtime/include/fsdpc.h"
#include "runtime/numeric/init_values.h"

#include <map>
#include <optional>

namespace fsdpc::runtime {

class Weights {
public:
  /// Opens every file that holds a value and checks that each value has a
  /// source of the right size. The error names the first that has none.
  Status open(const Manifest &manifest, const fsdpc_program &program,
              const Options &options);
  /// Checks that files have not changed since the compile, by their hashes.
  /// Ranks share the work: this one hashes its part of the ranges.
  Status verify(int rank, int ranks) const;

  /// Returns a hash of what --init gives the program, the same on ranks that
  /// load the same values, or "none" without --init. It covers each tensor's
  /// name and type, and 256 KiB of its values or all of them if there are no
  /// more.
  Result<std::string> hashOfInit() const;

  /// The same of the values that come from the model's own files. `verify`
  /// shares its work among ranks, so it does not see a copy of a file that only
  /// some ranks have and others check.
  Result<std::string> hashOfFiles() const;

  /// Reads elements [begin, begin + count) of a parameter as f32.
  Status readParameter(const Member &member, int64_t begin, int64_t count,
                       float *to) const;
  /// Reads bytes [begin, begin + count) of a member of a layout of bytes, which
  /// are those of whole elements.
  Status readBytes(const Member &member, int64_t begin, int64_t count,
                   char *to) const;
  /// Reads a model buffer in its own dtype.
  Status readBuffer(const Buffer &buffer, void *to) const;

  /// Drops the pages of embedded values, which count as memory of this process
  /// once they are read, and what was computed of a rule. Both can be had
  /// again.
  void release() const;

  /// Paths of the model's own files that hold values.
  std::vector<std::string> paths() const;

  /// Names of tensors in --init that the program has no parameter or buffer
  /// for.
  std::vector<std::string> unused() const;
  /// The files of --init, and what to say of their names, or "".
  std::vector<std::string> initPaths() const;
  std::string initNote() const { return init ? init->note() : ""; }
  /// The hash of the frozen parameters that --init leaves out, or "". They come
  /// from where they come without --init.
  std::string initBase() const { return init ? init->base() : ""; }

private:
  static constexpr uint64_t pieceBytes = 1 << 20; ///< read at once
  /// The place of a value's bytes: in a file, in memory, or nowhere (a rule).
  struct Place {
    const File *file = nullptr;
    const char *memory = nullptr;
    uint64_t offset = 0;
    std::string dtype;
    std::optional<InitRule> rule; ///< of ruleForShape
    bool isInit = false;          ///< of --init
  };
  Status locate(const std::string &name,
                const std::vector<std::string> &aliases,
                const std::vector<int64_t> &shape, const Source &source,
                bool parameter, bool inInit);
  Status checkTied(const std::string &name, const InitFile::Names &names);
  Result<Place> placeInInit(const std::string &name, const InitTensor &tensor,
                            const std::vector<int64_t> &shape, bool parameter);
  Result<Place> placeOf(const std::string &name,
                        const std::vector<int64_t> &shape, const Source &source,
                        bool parameter);
  Status openInit(const Options &options);
  /// Returns true if --init has to have the layout's parameters.
  bool initHas(const Layout &layout) const;
  Result<const File *> openFile(const std::string &path,
                                const std::string &name);
  Status verifyFile(const std::string &name, const File &file,
                    const Source &source) const;
  /// Computes elements [begin, begin + count) of a tensor that has a rule.
  void compute(const InitRule &rule, const std::string &name,
               const std::vector<int64_t> &shape, int64_t begin, int64_t count,
               float *to) const;
  Status read(const Place &place, int64_t begin, int64_t count, void *to,
              const std::string &dtype) const;

  const Manifest *manifest = nullptr;
  const fsdpc_program *program = nullptr;
  std::string directory; ///< --weights
  uint64_t seed = 0;
  std::optional<InitFile> init;        ///< --init
  std::map<std::string, File> files;   ///< by path in the manifest
  std::map<std::string, Place> places; ///< by name of the parameter or buffer
  /// The tensors of --init that the program takes, and for which value.
  std::map<const InitTensor *, std::string> used;
  /// The last orthogonal parameter that was read: a shard may be read in
  /// pieces.
  mutable std::string orthogonalName;
  mutable std::vector<float> orthogonal;
};

} // namespace fsdpc::runtime
