// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gives the tensors of a checkpoint of onnxruntime-training the names that the
// import expects. That each has the bytes of its shape, in the checkpoint or in
// the file beside it, is checked when it is opened.
#include "tools/ckpt/ort_source.h"
#include "frontends/onnx/ort/ort_checkpoint.h"
#include "runtime/abi/element_type.h"
#include "runtime/abi/plan_shapes.h"
#include "runtime/support/concat.h"
#include "runtime/support/new_file.h"
#include "runtime/support/spelling.h"

#include <cstring>
#include <utility>

namespace fsdpc::ckpt {

using runtime::printable;

namespace {

struct Type {
  int32_t number; // of onnx.TensorProto.DataType
  const char *name;
};
constexpr Type types[] = {{1, "f32"},  {10, "f16"}, {16, "bf16"},
                          {11, "f64"}, {6, "i32"},  {7, "i64"}};

bool endsWith(const std::string &text, const std::string &end) {
  return text.size() >= end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// onnxruntime has no buffers, so they are known as those of a plain file are
// (imported.cpp).
bool isBuffer(const OrtTensor &tensor) {
  return tensor.type != types[0].number ||
         endsWith(tensor.name, "running_mean") ||
         endsWith(tensor.name, "running_var");
}

class OrtSource : public TensorSource {
public:
  explicit OrtSource(InputFile file) : file(std::move(file)) {}

  // `path` is that of the checkpoint.
  Status add(const OrtCheckpoint &checkpoint, const std::string &path);
  Status read(size_t tensor, uint64_t offset, void *to,
              uint64_t bytes) const override {
    if (tensor == places.size()) { // the step
      std::memcpy(to, reinterpret_cast<const char *>(&step) + offset, bytes);
      return {};
    }
    const Place &place = places[tensor];
    return (place.isExternal ? *beside : file)
        .read(place.offset + offset, to, bytes);
  }

private:
  struct Place {
    bool isExternal;
    uint64_t offset;
  };
  Status add(const std::string &part, const std::string &name,
             const OrtTensor &tensor);
  Status addState(const OrtState &state);

  InputFile file;
  std::optional<InputFile> beside; // with the bytes of external tensors
  std::string besidePath;
  std::vector<Place> places; // of each tensor but the last
  int64_t step = 0;
};

Status OrtSource::add(const std::string &part, const std::string &name,
                      const OrtTensor &tensor) {
  const Type *type = nullptr;
  for (const Type &known : types)
    if (known.number == tensor.type)
      type = &known;
  std::string label = "tensor '" + printable(tensor.name) + "'";
  if (!type)
    return inputError(concat(label, " has type ", tensor.type,
                             " of ONNX, which a checkpoint does not hold"));
  int64_t elements = elementsOf(tensor.shape, 0);
  if (elements < 0)
    return inputError(label + " has a shape of too many elements");
  if (tensor.isExternal && !beside) {
    Result<InputFile> opened = InputFile::open(besidePath);
    FSDPC_TRY(opened);
    beside = *std::move(opened);
    paths.push_back(besidePath);
  }
  Tensor added;
  added.name = part + "/" + name;
  added.dtype = type->name;
  added.shape = tensor.shape;
  added.bytes = uint64_t(elements * dtypeBytes(type->name));
  uint64_t end = (tensor.isExternal ? *beside : file).size();
  bool fits = tensor.isExternal || tensor.bytes == added.bytes;
  if (!fits || tensor.offset > end || added.bytes > end - tensor.offset)
    return inputError(label + " does not have the bytes of its shape");
  list.push_back(std::move(added));
  places.push_back({tensor.isExternal, tensor.offset});
  return {};
}

Status OrtSource::addState(const OrtState &state) {
  constexpr std::pair<const char *, const char *> names[] = {
      {"momentum0", "exp_avg"}, {"momentum1", "exp_avg_sq"}};
  for (const OrtTensor &moment : state.moments) {
    const char *part = nullptr;
    for (auto [theirs, ours] : names)
      if (moment.name == theirs)
        part = ours;
    if (!part)
      return inputError("'" + printable(state.parameter) +
                        "' has the optimizer state '" + printable(moment.name) +
                        "'; known are momentum0 and momentum1");
    FSDPC_TRY(add(part, state.parameter, moment));
  }
  return {};
}

// A frozen tensor has no state.
Status OrtSource::add(const OrtCheckpoint &checkpoint,
                      const std::string &path) {
  paths.push_back(path);
  besidePath = path + ".data";
  step = checkpoint.step;
  for (const OrtTensor &tensor : checkpoint.trained)
    FSDPC_TRY(add("value", tensor.name, tensor));
  for (const OrtTensor &tensor : checkpoint.frozen)
    FSDPC_TRY(add(isBuffer(tensor) ? "buffer" : "value", tensor.name, tensor));
  for (const OrtState &state : checkpoint.states)
    FSDPC_TRY(addState(state));
  Tensor number;
  number.name = "step";
  number.dtype = "i64";
  number.bytes = sizeof step;
  list.push_back(std::move(number));
  return {};
}

} // namespace

// The reader takes the name of a file in a folder, and refuses links.
Result<std::unique_ptr<TensorSource>>
openOrtCheckpoint(const std::string &path) {
  std::string name = path.substr(path.rfind('/') + 1);
  Result<OrtCheckpoint> checkpoint =
      readOrtCheckpoint(runtime::folderOf(path), name);
  FSDPC_TRY(checkpoint);
  Result<InputFile> file = InputFile::open(path);
  FSDPC_TRY(file);
  auto source = std::make_unique<OrtSource>(*std::move(file));
  FSDPC_TRY(source->add(*checkpoint, path));
  return std::unique_ptr<TensorSource>(std::move(source));
}

} // namespace fsdpc::ckpt
