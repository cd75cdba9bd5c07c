// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The values of --init: tensors by name, from a safetensors file, a folder in
// Hugging Face's sharded layout or its index, or a .npz file.
#pragma once

#include "runtime/data/safetensors.h"
#include "runtime/support/file.h"
#include "runtime/support/status.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdpc::runtime {

/// A tensor of the files, which live as long as the InitFile.
struct InitTensor {
  const File *file = nullptr;
  SafeTensor place;
};

class InitFile {
public:
  /// All names of a parameter of the program; a tied one has several.
  using Names = std::vector<std::string>;

  static Result<InitFile> open(const std::string &path);

  /// Decides which name of the file is meant by a name of the program. `rename`
  /// is FROM=TO: a name that begins with FROM in the file begins with TO in the
  /// program. If it is empty and not all parameters have their names in the
  /// file, they may all lack or all have one prefix of whole components, such
  /// as "model."; fails if several prefixes would do. Comes before `find`.
  Status match(const std::vector<Names> &parameters, const std::string &rename);

  /// Returns the tensor that has one of the program's names, or null.
  const InitTensor *find(const Names &names) const;
  /// Returns the tensors that the file has under the program's names, one per
  /// name in the file: a file may hold a tied parameter several times.
  std::vector<const InitTensor *> findAll(const Names &names) const;
  /// Returns the name that a tensor of the file has in it.
  std::string nameOf(const InitTensor &tensor) const;
  /// Returns how the names of the file differ, as a line for the user, or "".
  std::string note() const;

  const std::string &path() const { return given; }
  /// The hash of the frozen parameters that the files leave out, or "".
  std::string base() const;
  std::vector<std::string> files() const;
  /// The keys are the names in the file, without aliases.
  const std::map<std::string, InitTensor> &tensors() const { return entries; }
  /// Returns the end of a message about a parameter that has no tensor: the
  /// nearest name.
  std::string nearestTo(const std::string &name) const;

private:
  /// A name that begins with `inFile` in the file begins with `inProgram` in
  /// the program.
  struct Renaming {
    std::string inFile, inProgram;
    bool operator<(const Renaming &other) const {
      return std::pair(inFile, inProgram) <
             std::pair(other.inFile, other.inProgram);
    }
  };
  std::string nameInFile(const std::string &name, const Renaming &by) const;
  const InitTensor *lookUp(const std::string &name, const Renaming &by) const;
  const InitTensor *lookUp(const Names &names, const Renaming &by) const;
  bool fits(const std::vector<Names> &parameters, const Renaming &by) const;
  std::vector<Renaming> candidates(const Names &names) const;

  std::string given;
  /// Entries point into these, which do not move with the InitFile.
  std::vector<SafeTensors> opened;
  std::unique_ptr<File> npz;
  std::map<std::string, InitTensor> entries;
  std::map<std::string, std::string> aliases; ///< of the file: alias → name
  Renaming renaming;
};

} // namespace fsdpc::runtime
