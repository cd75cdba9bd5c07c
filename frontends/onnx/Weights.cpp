// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads tensors. A model file may be hostile, so every size is checked against
// the bytes that exist, and every path of external data must stay in the folder
// of the model, without links (runtime/support/input_file.h).
#include "frontends/onnx/Weights.h"

#include "frontends/onnx/Emitter.h"
#include "frontends/onnx/Fold.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <map>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;
using onnx::TensorProto;

// ---- types ----

// Returns the type's name in a source, which is that of the runtime, or "" for
// a type that only this reader understands.
static StringRef sourceType(int64_t onnxType) {
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
  case TensorProto::UINT64:
    return "u64";
  case TensorProto::INT32:
    return "i32";
  case TensorProto::UINT32:
    return "u32";
  case TensorProto::INT16:
    return "i16";
  case TensorProto::UINT16:
    return "u16";
  case TensorProto::INT8:
    return "i8";
  case TensorProto::UINT8:
    return "u8";
  case TensorProto::BOOL:
    return "i1";
  }
  return "";
}

// Records why a read failed. The caller emits the error, since it knows which
// tensor of which file was meant.
LogicalResult Weights::fail(const Twine &why) {
  problem = why.str();
  return failure();
}

// Returns the bytes that a tensor's shape and type need. Elements of less than
// a byte share one.
FailureOr<uint64_t> Weights::storedBytes(const TensorProto &tensor) {
  uint64_t bits = bitsOf(tensor.data_type());
  if (bits == 0)
    return fail("element type " + Twine(tensor.data_type()) +
                " is not supported");
  auto count =
      countElements(ArrayRef(tensor.dims().data(), tensor.dims_size()));
  if (!count)
    return fail("the shape has a negative dimension or too many elements");
  return (*count * bits + 7) / 8;
}

// ---- external files ----

// Opens the file of an external tensor after checking everything that a hostile
// model could get wrong: the path, the links in it, and the range. The file is
// opened anew for each tensor, since a model may have more files than a process
// may have open.
FailureOr<Weights::Place> Weights::externalPlace(const TensorProto &tensor) {
  FailureOr<uint64_t> bytes = storedBytes(tensor);
  if (failed(bytes))
    return failure();
  std::string location, offset = "0", length = std::to_string(*bytes);
  for (const auto &entry : tensor.external_data()) {
    if (entry.key() == "location")
      location = entry.value();
    else if (entry.key() == "offset")
      offset = entry.value();
    else if (entry.key() == "length")
      length = entry.value();
  }
  ByteRange range;
  if (StringRef(offset).getAsInteger(10, range.offset) ||
      StringRef(length).getAsInteger(10, range.length))
    return fail("offset '" + offset + "' or length '" + length +
                "' of the external data is not a number");
  // A length that is absent is the one that the shape needs.
  if (range.length != *bytes)
    return fail("the external data has " + length +
                " bytes, but the shape and type require " + Twine(*bytes));
  namespace path = llvm::sys::path;
  std::string folder = path::parent_path(model.path).str();
  Result<InputFile> file =
      InputFile::openBelow(folder.empty() ? "." : folder, location);
  if (!file)
    return fail("external file " + file.error().message);
  opened.insert(file->identity());
  uint64_t size = file->size();
  if (range.offset > size || range.length > size - range.offset)
    return fail("external file '" + location + "' has " + Twine(size) +
                " bytes; bytes [" + Twine(range.offset) + ", " +
                Twine(range.offset) + " + " + length + ") are required");
  SmallString<256> whole(folder);
  path::append(whole, location);
  return Place{*std::move(file), whole.str().str(), range};
}

LogicalResult Weights::check() {
  // Keyed by file, then by offset; an overlap is always with a neighbour.
  std::map<std::pair<FileIdentity, uint64_t>, std::pair<uint64_t, std::string>>
      places;
  Location loc = UnknownLoc::get(context);
  for (const TensorProto &tensor : model.proto.graph().initializer()) {
    if (tensor.data_location() != TensorProto::EXTERNAL)
      continue;
    FailureOr<Place> place = externalPlace(tensor);
    if (failed(place))
      return emitError(loc) << "tensor '" << tensor.name() << "' of '"
                            << model.path << "' cannot be read: " << problem;
    if (place->range.length == 0)
      continue;
    FileIdentity id = place->file.identity();
    auto [entry, fresh] = places.try_emplace(
        {id, place->range.offset}, place->range.length, tensor.name());
    auto overlaps = [&](const std::string &a, const std::string &b) {
      return emitError(loc)
             << "external data of tensor '" << a << "' and tensor '" << b
             << "' overlaps in '" << place->path << "'";
    };
    // Two tensors that begin at the same byte.
    if (!fresh)
      return overlaps(entry->second.second, tensor.name());
    if (entry != places.begin()) {
      auto before = std::prev(entry);
      if (before->first.first == id &&
          before->first.second + before->second.first > place->range.offset)
        return overlaps(before->second.second, tensor.name());
    }
    if (auto after = std::next(entry);
        after != places.end() && after->first.first == id &&
        place->range.offset + place->range.length > after->first.second)
      return overlaps(tensor.name(), after->second.second);
  }
  return success();
}

// ---- elements ----

// Appends the elements of a protobuf list as `To`. ONNX stores narrow integers
// in lists of wider ones.
template <typename To, typename List>
static void gather(const List &list, std::vector<char> &bytes) {
  for (auto value : list) {
    To narrow = static_cast<To>(value);
    const char *from = reinterpret_cast<const char *>(&narrow);
    bytes.insert(bytes.end(), from, from + sizeof(To));
  }
}

// Elements come from one of three places: an external file, raw_data, or the
// list of the tensor's type. The size is checked in each case, so that readers
// of the result need no checks. Returned bytes point into `owned` or into the
// parsed model, and live as long as these.
FailureOr<ArrayRef<char>> Weights::stored(const TensorProto &tensor,
                                          std::vector<char> &owned) {
  FailureOr<uint64_t> size = storedBytes(tensor);
  if (failed(size))
    return failure();
  ArrayRef<char> bytes;
  if (tensor.data_location() == TensorProto::EXTERNAL) {
    FailureOr<Place> place = externalPlace(tensor);
    if (failed(place))
      return failure();
    owned.resize(*size);
    if (Status read =
            place->file.read(place->range.offset, owned.data(), *size);
        !read)
      return fail("external file " + read.error().message);
    return ArrayRef<char>(owned);
  }
  if (tensor.has_raw_data()) {
    bytes = ArrayRef(tensor.raw_data().data(), tensor.raw_data().size());
  } else {
    switch (tensor.data_type()) {
    case TensorProto::FLOAT:
      gather<float>(tensor.float_data(), owned);
      break;
    case TensorProto::DOUBLE:
      gather<double>(tensor.double_data(), owned);
      break;
    case TensorProto::INT64:
      gather<int64_t>(tensor.int64_data(), owned);
      break;
    case TensorProto::UINT64:
      gather<uint64_t>(tensor.uint64_data(), owned);
      break;
    case TensorProto::UINT32:
      gather<uint32_t>(tensor.uint64_data(), owned);
      break;
    case TensorProto::INT32:
      gather<int32_t>(tensor.int32_data(), owned);
      break;
    case TensorProto::INT8:
    case TensorProto::UINT8:
    case TensorProto::BOOL:
      gather<int8_t>(tensor.int32_data(), owned);
      break;
    default:
      if (isStorageType(tensor.data_type()))
        gather<int8_t>(tensor.int32_data(), owned);
      else // 16-bit types
        gather<int16_t>(tensor.int32_data(), owned);
    }
    bytes = owned;
  }
  if (bytes.size() != *size)
    return fail("the tensor has " + Twine(bytes.size()) +
                " bytes, but the shape and type require " + Twine(*size));
  return bytes;
}

// Converts elements from type `From` to type `To`.
template <typename From, typename To>
static std::vector<char> convert(ArrayRef<char> bytes) {
  std::vector<char> result(bytes.size() / sizeof(From) * sizeof(To));
  for (size_t i = 0; i < bytes.size() / sizeof(From); ++i) {
    From from;
    memcpy(&from, &bytes[i * sizeof(From)], sizeof(From));
    To to = static_cast<To>(from);
    memcpy(&result[i * sizeof(To)], &to, sizeof(To));
  }
  return result;
}

// Converts 16-bit floats to f32.
static std::vector<char> widen(ArrayRef<char> bytes,
                               const llvm::fltSemantics &from) {
  std::vector<char> result(bytes.size() * 2);
  for (size_t i = 0; i < bytes.size() / 2; ++i) {
    uint16_t bits;
    memcpy(&bits, &bytes[i * 2], 2);
    float value = APFloat(from, APInt(16, bits)).convertToDouble();
    memcpy(&result[i * 4], &value, 4);
  }
  return result;
}

// Converts narrow floats to f32, and integers of less than a byte to bytes. The
// first element of a byte has its lowest bits.
static std::vector<char> unpack(ArrayRef<char> bytes, int64_t count,
                                int64_t onnxType) {
  unsigned bits = bitsOf(onnxType), perByte = 8 / bits;
  bool isFloat = isNarrowFloat(onnxType);
  std::vector<char> result(count * (isFloat ? 4 : 1));
  for (int64_t i = 0; i < count; ++i) {
    auto byte = static_cast<uint8_t>(bytes[i / perByte]);
    llvm::APInt code(bits, (byte >> (i % perByte * bits)) & ((1 << bits) - 1));
    if (isFloat) {
      float value = APFloat(semanticsOf(onnxType), code).convertToDouble();
      memcpy(&result[i * 4], &value, 4);
    } else {
      result[i] =
          static_cast<char>(isSignedInteger(onnxType) ? code.getSExtValue()
                                                      : code.getZExtValue());
    }
  }
  return result;
}

// Spends the stored size before anything is read.
FailureOr<DenseElementsAttr> Weights::constant(const TensorProto &tensor) {
  FailureOr<uint64_t> size = storedBytes(tensor);
  if (failed(size))
    return failure();
  if (!budgets.spend(Cost::constantBytes, *size))
    return fail("the constants of the model have " +
                Budgets::exceeded(Cost::constantBytes) +
                "; make large ones inputs or parameters");
  return value(tensor);
}

// Converts the stored elements to the imported type.
FailureOr<DenseElementsAttr> Weights::value(const TensorProto &tensor) {
  std::vector<char> owned;
  FailureOr<ArrayRef<char>> bytes = stored(tensor, owned);
  if (failed(bytes))
    return failure();
  auto type =
      RankedTensorType::get(ArrayRef(tensor.dims().data(), tensor.dims_size()),
                            importedType(tensor.data_type(), context));
  if (isStorageType(tensor.data_type()))
    return constantFrom(
        type, unpack(*bytes, type.getNumElements(), tensor.data_type()));
  switch (tensor.data_type()) {
  case TensorProto::FLOAT16:
    return constantFrom(type, widen(*bytes, APFloat::IEEEhalf()));
  case TensorProto::BFLOAT16:
    return constantFrom(type, widen(*bytes, APFloat::BFloat()));
  case TensorProto::DOUBLE:
    return constantFrom(type, convert<double, float>(*bytes));
  case TensorProto::UINT32:
    return constantFrom(type, convert<uint32_t, int64_t>(*bytes));
  case TensorProto::INT16:
    return constantFrom(type, convert<int16_t, int32_t>(*bytes));
  case TensorProto::UINT16:
    return constantFrom(type, convert<uint16_t, int32_t>(*bytes));
  default: {
    // Attributes require aligned elements; the bytes of a file may not be.
    std::vector<uint64_t> aligned((bytes->size() + 7) / 8);
    llvm::copy(*bytes, reinterpret_cast<char *>(aligned.data()));
    return constantFrom(type, ArrayRef(reinterpret_cast<char *>(aligned.data()),
                                       bytes->size()));
  }
  }
}

FailureOr<DenseElementsAttr> Weights::packed(const TensorProto &tensor) {
  std::vector<char> owned;
  FailureOr<ArrayRef<char>> bytes = stored(tensor, owned);
  if (failed(bytes))
    return failure();
  auto type = RankedTensorType::get(
      {int64_t(bytes->size())},
      IntegerType::get(context, 8, IntegerType::Unsigned));
  return constantFrom(type, *bytes);
}

FailureOr<fsdp::SourceAttr> Weights::source(int index) {
  const TensorProto &tensor = model.proto.graph().initializer(index);
  FailureOr<uint64_t> size = storedBytes(tensor);
  if (failed(size))
    return failure();
  StringRef type = isStorageType(tensor.data_type())
                       ? StringRef("u8")
                       : sourceType(tensor.data_type());
  if (type.empty())
    return fsdp::SourceAttr();
  std::string path = model.path;
  ByteRange range = model.initializers[index];
  if (tensor.data_location() == TensorProto::EXTERNAL) {
    FailureOr<Place> place = externalPlace(tensor);
    if (failed(place))
      return failure();
    path = place->path;
    range = place->range;
  } else if (range.length != *size || *size == 0) {
    // A list of integers has one varint per element, so its bytes are not those
    // of the tensor.
    return fsdp::SourceAttr();
  }
  // The path is absolute, since the program may be started from another folder.
  llvm::SmallString<128> file(path);
  llvm::sys::fs::make_absolute(file);
  return fsdp::SourceAttr::get(context, file, range.offset, range.length, type,
                               /*hash=*/"");
}
