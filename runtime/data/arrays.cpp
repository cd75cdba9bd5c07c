// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Arrays as samples: a .npy file, an array of a .npz file, or a tensor of a
// safetensors file. An input without an axis of samples has one element per
// sample, which is the value of a step.
#include "runtime/data/npz.h"
#include "runtime/data/safetensors.h"
#include "runtime/data/sample_file.h"
#include "runtime/numeric/dtype.h"
#include "runtime/support/concat.h"
#include "runtime/support/nearest.h"
#include "runtime/support/spelling.h"

#include <utility>

namespace fsdpc::runtime {
namespace {

// Cuts ":TENSOR" off the name of a file that ends in `ending`. Returns false
// for a file of another kind.
bool takeTensor(const std::string &ending, std::string &path,
                std::string &tensor) {
  size_t at = path.rfind(ending);
  size_t end = at + ending.size();
  if (at == std::string::npos || (end < path.size() && path[end] != ':'))
    return false;
  if (end < path.size())
    tensor = path.substr(end + 1);
  path.resize(end);
  return true;
}

// Returns what a .npy file of the tensor would have in its header.
Result<NpyHeader> readTensorHeader(const Input &input, const std::string &path,
                                   const std::string &tensor) {
  Result<SafeTensors> tensors = SafeTensors::open(path);
  FSDPC_TRY(tensors);
  if (const SafeTensor *found = tensors->find(tensor, {})) {
    if (found->shape.empty() && !input.shape.empty())
      return inputError("'" + path + "' tensor '" + tensor +
                        "' is a scalar, but samples need an axis");
    return NpyHeader{found->dtype, found->shape, found->offset};
  }
  std::vector<std::string> names;
  for (auto &[name, stored] : tensors->tensors())
    names.push_back(printable(name));
  std::string near = meant(tensor, names);
  return inputError("'" + path + "' has no tensor '" + printable(tensor) + "'" +
                    (near.empty() ? "; name one that it has, as in '" +
                                        input.name + "=" + path + ":NAME'"
                                  : near));
}

// The array behind the name of --data, and the path of its file.
struct Array {
  std::string path;
  File file;
  NpyHeader header;
};

// Without a name in the file, the input's own name is looked for.
Result<Array> openArray(const Input &input, const std::string &name) {
  std::string path = name, tensor = input.name;
  bool isTensor = takeTensor(".safetensors", path, tensor);
  bool isArchive = !isTensor && takeTensor(".npz", path, tensor);
  Result<File> file = isArchive ? openNpz(path, tensor) : File::open(path);
  FSDPC_TRY(file);
  Result<NpyHeader> header =
      isTensor ? readTensorHeader(input, path, tensor) : readNpyHeader(*file);
  FSDPC_TRY(header);
  if (!converts(header->dtype, input.dtype))
    return inputError("'" + path + "' contains " + header->dtype +
                      ", but input '" + input.name + "' is " + input.dtype);
  return Array{path, std::move(*file), std::move(*header)};
}

SampleFile samplesOf(Array array, int64_t samples, int64_t elements) {
  SampleFile file;
  file.file = std::move(array.file);
  file.dtype = array.header.dtype;
  file.offset = array.header.offset;
  // Only token streams have shifts.
  file.samples = file.unshifted = samples;
  file.sampleElements = elements;
  return file;
}

} // namespace

Result<SampleFile> openArraySamples(const Input &input, const std::string &name,
                                    int64_t rows) {
  Result<Array> array = openArray(input, name);
  FSDPC_TRY(array);
  const std::string &path = array->path;
  const std::vector<int64_t> &shape = array->header.shape;
  // Axis 0 counts the samples of the file, so only the others must match.
  bool fits = shape.size() == input.shape.size();
  for (size_t axis = 1; fits && axis < input.shape.size(); ++axis)
    fits = shape[axis] == input.shape[axis];
  if (!fits) {
    std::string expected = "[samples";
    for (size_t axis = 1; axis < input.shape.size(); ++axis)
      expected += concat(", ", input.shape[axis]);
    return inputError("'" + path + "' has shape " + shapeText(shape) +
                      ", but input '" + input.name + "' takes " + expected +
                      "]");
  }
  if (shape[0] % rows != 0)
    return inputError(concat(
        "'", path, "' has shape ", shapeText(shape),
        ", but a microbatch takes ", rows, " rows of input '", input.name,
        "'; give a multiple of them (the inputs of the model differ "
        "in their first axis, so a microbatch is one sample)"));
  int64_t elements = rows;
  for (size_t axis = 1; axis < input.shape.size(); ++axis)
    elements *= input.shape[axis];
  int64_t samples = shape[0] / rows;
  return samplesOf(std::move(*array), samples, elements);
}

Result<SampleFile> openStepValues(const Input &input, const std::string &name) {
  Result<Array> array = openArray(input, name);
  FSDPC_TRY(array);
  const std::vector<int64_t> &shape = array->header.shape;
  if (shape.size() > 1 || (shape.size() == 1 && shape[0] < 1))
    return inputError("'" + array->path + "' has shape " + shapeText(shape) +
                      ", but input '" + input.name +
                      "' takes a value per step: [steps], or [] for one that "
                      "does not change");
  int64_t values = shape.empty() ? 1 : shape[0];
  return samplesOf(std::move(*array), values, 1);
}

} // namespace fsdpc::runtime
