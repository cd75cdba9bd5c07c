// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the model's bytes again, with the values of some tensors replaced. A
// Plan cuts the file into pieces; values are read from the weights when they
// are written.
#include "tools/export/Export.h"

#include "runtime/abi/memory_plan.h"
#include "runtime/cli/output_paths.h"
#include "runtime/support/diagnostics.h"
#include "runtime/support/new_file.h"
#include "tools/ckpt/commands.h"
#include "tools/export/Plan.h"
#include "tools/fsdpc/Diagnostics.h"

#include <algorithm>

using namespace fsdpc::frontend;

namespace fsdpc::exporting {
namespace {

// Converts one tensor into a file, piece by piece.
Status writeValue(const ckpt::TensorSource &source, const Value &value,
                  uint64_t at, runtime::NewFile &file) {
  const std::string &from = source.tensors()[value.tensor].dtype;
  std::string to = dtypeOf(value.onnxType);
  uint64_t wide = uint64_t(dtypeBytes(from)), narrow = uint64_t(dtypeBytes(to));
  std::vector<char> converted;
  return ckpt::forEachPiece(
      source, value.tensor,
      [&](const char *piece, uint64_t offset, uint64_t bytes) {
        size_t count = size_t(bytes / wide);
        converted.resize(count * narrow);
        convertTo(piece, from, converted.data(), to, count);
        return file.write(at + offset / wide * narrow, converted.data(),
                          converted.size());
      });
}

// Writes all pieces in order. `at` counts bytes of the output.
Status writeModel(const ModelFile &model, const Plan &plan,
                  const ckpt::TensorSource &source, runtime::NewFile &file) {
  uint64_t at = 0;
  for (const Piece &piece : plan.pieces().pieces()) {
    if (piece.value)
      FSDPC_TRY(writeValue(source, *piece.value, at, file));
    else if (!piece.text.empty())
      FSDPC_TRY(file.write(at, piece.text.data(), piece.text.size()));
    else
      FSDPC_TRY(file.write(at, model.bytes.data() + piece.range.offset,
                           piece.range.length));
    at += piece.bytes;
  }
  return {};
}

// Writes the new file of external data; gaps of alignment stay zero.
Status writeData(const Plan &plan, const ckpt::TensorSource &source,
                 runtime::NewFile &file) {
  std::vector<char> piece(ckpt::pieceBytes);
  for (const External &entry : plan.external()) {
    if (entry.value) {
      FSDPC_TRY(writeValue(source, *entry.value, entry.offset, file));
      continue;
    }
    Result<InputFile> from = InputFile::open(entry.file);
    FSDPC_TRY(from);
    for (uint64_t done = 0; done < entry.bytes; done += piece.size()) {
      uint64_t now = std::min<uint64_t>(piece.size(), entry.bytes - done);
      FSDPC_TRY(from->read(entry.from + done, piece.data(), now));
      FSDPC_TRY(file.write(entry.offset + done, piece.data(), now));
    }
  }
  return {};
}

// The data get their name first: a model never names data that are not there.
Status writeOutput(const ModelFile &model, const Plan &plan,
                   const ckpt::TensorSource &source,
                   const Arguments &arguments) {
  std::vector<runtime::RunFile> inputs = {{"the model", model.path}},
                                outputs = {{"-o", arguments.output}};
  for (const std::string &path : source.files())
    inputs.push_back({"--weights", path});
  for (const External &entry : plan.external())
    if (!entry.file.empty())
      inputs.push_back({"the model's data", entry.file});
  bool hasData = !plan.external().empty();
  if (hasData)
    outputs.push_back({"the external data of -o", plan.dataPath()});
  FSDPC_TRY(runtime::checkDistinct(outputs, inputs));
  runtime::NewFile file, data;
  FSDPC_TRY(file.open(arguments.output));
  FSDPC_TRY(writeModel(model, plan, source, file));
  if (hasData) {
    FSDPC_TRY(data.open(plan.dataPath()));
    FSDPC_TRY(writeData(plan, source, data));
    FSDPC_TRY(data.commit());
  }
  return file.commit();
}

} // namespace

int run(const Arguments &arguments) {
  runtime::outliveReaders();
  mlir::MLIRContext context;
  driver::DiagnosticPrinter diagnostics(&context, /*quiet=*/false);
  context.loadDialect<fsdp::FSDPDialect>();
  Budgets budgets;
  std::unique_ptr<ModelFile> model =
      ModelFile::read(arguments.model, budgets, &context);
  if (!model)
    return int(ExitCode::wrongInput);
  fsdp::CompileOptions options;
  auto training = Training::take(*model, /*withUpdate=*/false, &context);
  if (failed(training))
    return int(ExitCode::wrongInput);
  if (training->isOfRuntime)
    return ckpt::report(inputError(
        "'" + arguments.model +
        "' is a training model of onnxruntime-training, which has no "
        "values; name the model from which it was generated"));
  Weights weights(*model, budgets, &context);
  Refusals refusals(model->path, &context);
  // The importer's own table names the tensors, as in a compile.
  ParameterTable parameters(*model, *training, weights, options, refusals,
                            &context);
  if (failed(weights.check()) || failed(parameters.build()) ||
      failed(refusals.report()))
    return int(ExitCode::wrongInput);
  auto source = ckpt::openTensors(arguments.weights, ckpt::Content::values);
  if (!source)
    return ckpt::report(source.error());
  auto names = runtime::Renaming::parse("--rename", arguments.rename);
  if (!names)
    return ckpt::report(names.error());
  if (Status different = names->check(ckpt::namesOf(**source)); !different)
    return ckpt::report(different.error());
  auto values = matchValues(*model, parameters, **source, *names, arguments);
  if (!values)
    return ckpt::report(values.error());
  Plan plan(*model, weights, *values, arguments);
  if (Status made = plan.make(); !made)
    return ckpt::report(made.error());
  Status written = writeOutput(*model, plan, **source, arguments);
  return written ? int(ExitCode::success) : ckpt::report(written.error());
}

} // namespace fsdpc::exporting
