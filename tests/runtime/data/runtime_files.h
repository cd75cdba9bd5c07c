// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files for tests: a folder that is removed with its owner, and .npy bytes.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

/// Under the system's folder for temporary files.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "fsdpc-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string &name) const {
    return path + "/" + name;
  }
  std::string write(const std::string &name, const std::string &bytes) const {
    std::ofstream(*this / name, std::ios::binary) << bytes;
    return *this / name;
  }
  std::string read(const std::string &name) const {
    std::ifstream file(*this / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

private:
  std::string path;
};

/// Returns a .npy file with `count` elements 0, 1, 2, … of type T, whatever its
/// header says.
template <class T>
std::string npy(const std::string &descr, const std::string &shape,
                int64_t count, int version = 1,
                const std::string &fortran = "False") {
  std::string header = "{'descr': '" + descr +
                       "', 'fortran_order': " + fortran +
                       ", 'shape': " + shape + ", }";
  header.resize(117, ' ');
  header += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += char(version);
  bytes += '\0';
  bytes += char(header.size());
  bytes += '\0';
  if (version > 1)
    bytes += std::string(2, '\0');
  bytes += header;
  for (int64_t i = 0; i < count; ++i) {
    T value = T(i);
    bytes.append(reinterpret_cast<char *>(&value), sizeof value);
  }
  return bytes;
}

/// Writes what the toy program reads: 40 samples of ids in [0, 10) and targets,
/// and a file that contains its weights.
inline void writeToyData(const TemporaryFolder &folder) {
  std::string ids = npy<int32_t>("<i4", "(40, 3)", 120);
  auto *values = reinterpret_cast<int32_t *>(&ids[128]);
  for (int i = 0; i < 120; ++i)
    values[i] = i * 7 % 10;
  folder.write("ids.npy", ids);
  std::string target = npy<float>("<f4", "(40,)", 40);
  auto *floats = reinterpret_cast<float *>(&target[128]);
  for (int i = 0; i < 40; ++i)
    floats[i] = std::sin(float(i));
  folder.write("target.npy", target);
  const float stored[] = {9, 0.5f, -0.25f, 0.125f, 9};
  folder.write(
      "weights.bin",
      std::string(reinterpret_cast<const char *>(stored), sizeof stored));
}
