// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compares the trained tensors with those of the graph. The importer's table
// says which tensors of the graph are parameters and which names they have, so
// an export knows a tensor by the same name as the training.
#include "tools/export/Values.h"
#include "frontends/onnx/ElementTypes.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/data/sample_file.h"
#include "runtime/numeric/dtype.h"
#include "runtime/numeric/float16.h"
#include "runtime/support/concat.h"
#include "runtime/support/json_text.h"
#include "runtime/support/nearest.h"
#include "runtime/support/spelling.h"

#include <cstring>
#include <set>

namespace fsdpc::exporting {

using frontend::NamedTensor;
using frontend::TensorRole;
using onnx::TensorProto;
using runtime::printable;
using runtime::shapeText;

std::string dtypeOf(int64_t onnxType) {
  switch (onnxType) {
  case TensorProto::FLOAT:
    return "f32";
  case TensorProto::FLOAT16:
    return "f16";
  case TensorProto::BFLOAT16:
    return "bf16";
  case TensorProto::DOUBLE:
    return "f64";
  case TensorProto::INT64:
    return "i64";
  case TensorProto::INT32:
    return "i32";
  case TensorProto::INT8:
    return "i8";
  case TensorProto::UINT8:
    return "u8";
  case TensorProto::BOOL:
    return "i1";
  }
  return frontend::isStorageType(onnxType) ? "u8" : "";
}

bool canWrite(const std::string &from, const std::string &to) {
  return !to.empty() &&
         (from == to || (runtime::isFloat(from) && runtime::isFloat(to)));
}

void convertTo(const char *from, const std::string &fromType, char *to,
               const std::string &toType, size_t count) {
  if (fromType == toType) {
    std::memcpy(to, from, count * size_t(dtypeBytes(toType)));
    return;
  }
  // Every type goes through f32, so a cast from f64 to f64 is never one of
  // these (it is the copy above), and f64 to bf16 rounds twice.
  std::vector<float> values(count);
  runtime::convert(from, fromType, values.data(), "f32", int64_t(count));
  for (size_t i = 0; i < count; ++i) {
    double wide = double(values[i]);
    uint16_t bits = toType == "bf16"
                        ? runtime::toBf16(values[i])
                        : runtime::narrow<runtime::Float16>(values[i]).bits;
    if (toType == "f32")
      std::memcpy(to + i * 4, &values[i], 4);
    else if (toType == "f64")
      std::memcpy(to + i * 8, &wide, 8);
    else
      std::memcpy(to + i * 2, &bits, 2);
  }
}

namespace {

// Collects what is wrong, and keeps a message short.
class Faults {
public:
  void add(const std::string &fault) {
    if (++count <= 5)
      text += (text.empty() ? "" : "; ") + fault;
  }
  Status status(const Arguments &arguments) const {
    if (count == 0)
      return {};
    std::string more = count > 5 ? concat("; and ", count - 5, " more") : "";
    return inputError("'" + arguments.weights + "' does not fit '" +
                      arguments.model + "': " + text + more);
  }

private:
  size_t count = 0;
  std::string text;
};

// Tensors of the graph by name, with where the value is.
struct Place {
  const NamedTensor *tensor;
  Value value;
};

std::map<std::string, Place>
placesOf(const frontend::ModelFile &model,
         const frontend::ParameterTable &parameters) {
  std::map<std::string, Place> places;
  const onnx::GraphProto &graph = model.proto.graph();
  for (const TensorProto &tensor : graph.initializer()) {
    Value value;
    value.onnxType = tensor.data_type();
    value.shape.assign(tensor.dims().begin(), tensor.dims().end());
    const NamedTensor *named = parameters.find(tensor.name());
    // Codes of less than a byte are trained on, and saved, as bytes.
    if (named && named->symbolType != named->type)
      value.shape = named->symbolType.getShape().vec();
    places[tensor.name()] = {named, value};
  }
  for (const onnx::ValueInfoProto &input : graph.input()) {
    const NamedTensor *tensor = parameters.find(input.name());
    if (!tensor || tensor->initializer >= 0)
      continue;
    Value value;
    value.onnxType = input.type().tensor_type().elem_type();
    value.shape.assign(tensor->type.getShape().begin(),
                       tensor->type.getShape().end());
    value.isInput = true;
    places[input.name()] = {tensor, value};
  }
  return places;
}

} // namespace

// Two passes: over the graph, to find a value for each of its tensors, and over
// the file, to find tensors that the graph does not have. A misspelt name shows
// up in both, with the name that was probably meant.
Result<Values> matchValues(const frontend::ModelFile &model,
                           const frontend::ParameterTable &parameters,
                           const ckpt::TensorSource &source,
                           const runtime::Renaming &renaming,
                           const Arguments &arguments) {
  std::map<std::string, size_t> byName;
  std::vector<std::string> names;
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    byName[renaming(source.tensors()[i].name)] = i;
    for (const std::string &alias : source.tensors()[i].aliases)
      byName.try_emplace(renaming(alias), i);
  }
  Faults faults;
  Values values;
  std::set<std::string> known; // names that may be in the source
  for (auto &[name, place] : placesOf(model, parameters)) {
    names.push_back(name);
    std::string stored = runtime::storedName(name); // as files write it
    known.insert(stored);
    auto found = byName.find(stored);
    for (const std::string &alias : place.tensor->aliases) {
      known.insert(alias);
      if (found == byName.end())
        found = byName.find(alias);
    }
    // Counters of batches are not tensors of the graph.
    if (auto counter = parameters.counterOf(name))
      known.insert(*counter);
    std::string quoted = "'" + printable(name) + "'";
    if (found == byName.end()) {
      // Constants have their value in the model, those that programs store too.
      bool isConstant = place.tensor->role == TensorRole::constant ||
                        place.tensor->role == TensorRole::stored;
      if (!isConstant && !arguments.keepMissing)
        faults.add("it has no " + quoted + " " + shapeText(place.value.shape) +
                   " (--keep-missing keeps the model's value)");
      continue;
    }
    const ckpt::Tensor &tensor = source.tensors()[found->second];
    if (tensor.shape != place.value.shape)
      faults.add("its " + quoted + " " + shapeText(tensor.shape) + " is " +
                 shapeText(place.value.shape) + " in the model");
    else if (!canWrite(tensor.dtype, dtypeOf(place.value.onnxType)))
      faults.add(concat("its ", quoted, " of ", tensor.dtype,
                        " cannot become ONNX type ", place.value.onnxType));
    place.value.tensor = found->second;
    values[name] = place.value;
  }
  for (const ckpt::Tensor &tensor : source.tensors()) {
    std::string name = renaming(tensor.name);
    bool isKnown = known.count(name) > 0;
    for (const std::string &alias : tensor.aliases)
      isKnown = isKnown || known.count(renaming(alias)) > 0;
    if (!isKnown)
      faults.add("the model has no '" + printable(name) + "' " +
                 shapeText(tensor.shape) + meant(name, names));
  }
  FSDPC_TRY(faults.status(arguments));
  return values;
}

} // namespace fsdpc::exporting
