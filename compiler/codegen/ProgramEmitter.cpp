// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Emits the rt program as LLVM IR: one call of the C ABI
// (runtime/include/fsdpc.h) for each op, which names its function and passes
// its arguments itself. There is no control flow, since the schedule is static;
// a step is two calls of these functions by the runtime's loop. Pointers into
// the arena are constant offsets from a base that the function asks for once.
#include "compiler/codegen/ProgramEmitter.h"

#include "compiler/analysis/kernels/GridPlan.h"
#include "compiler/dialects/fsdp/Buckets.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/rt/CallArguments.h"
#include "runtime/include/fsdpc.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

namespace {

// Emits one module. It is a CallArguments: an op passes its operands to it one
// by one, and each becomes an argument of the call.
class ProgramEmitter : public rt::CallArguments {
public:
  ProgramEmitter(ModuleOp module, ProgramTables &tables,
                 llvm::LLVMContext &context)
      : module(module), tables(tables),
        result(std::make_unique<llvm::Module>("program", context)),
        builder(context) {}

  std::unique_ptr<llvm::Module> emit(StringRef manifest, StringRef deviceCode);

private:
  // Emits the function `void name(rank)`.
  llvm::Function *emitEntry(StringRef name);
  // Emits the entry functions of every bucket, and their table.
  llvm::GlobalVariable *emitBuckets();
  void emitOp(Operation *op);
  // Embeds `data` as a constant aligned to 64 bytes, or returns null if it is
  // empty.
  llvm::Constant *bytes(StringRef name, StringRef data);

  llvm::Value *integer(int32_t value) { return builder.getInt32(value); }
  llvm::Value *wide(int64_t value) { return builder.getInt64(value); }
  llvm::Value *null() {
    return llvm::ConstantPointerNull::get(builder.getPtrTy());
  }
  llvm::Value *addressOf(Value pointer) {
    return pointer ? pointerAddresses.lookup(pointer) : null();
  }

  // Each appends to `arguments`.
  void plan(rt::PlanAttrInterface plan) override {
    arguments.push_back(integer(tables.index(plan)));
  }
  void kernel(FlatSymbolRefAttr name) override;
  void layout(FlatSymbolRefAttr name) override {
    arguments.push_back(integer(tables.layouts.index(name.getAttr())));
  }
  void layouts(ArrayAttr names) override;
  void buffer(FlatSymbolRefAttr name) override {
    arguments.push_back(integer(tables.buffers.index(name.getAttr())));
  }
  void address(Value pointer) override {
    arguments.push_back(addressOf(pointer));
  }
  void addresses(ValueRange pointers) override;
  void countedAddresses(ValueRange pointers) override {
    addresses(pointers);
    arguments.push_back(integer(pointers.size()));
  }
  void constant(IntegerAttr value) override {
    arguments.push_back(builder.getInt(value.getValue()));
  }
  void constant(FloatAttr value) override {
    arguments.push_back(
        llvm::ConstantFP::get(builder.getContext(), value.getValue()));
  }

  llvm::StructType *kernelType();
  llvm::Constant *describeKernel(func::FuncOp kernel, bool onHost);
  void emitKernels(bool onHost);
  // Returns the address that an rt.pointer stands for.
  llvm::Value *emitPointer(rt::PointerOp op);
  // Calls an ABI function. Its first argument is always the rank's context; its
  // declaration is inferred from the arguments.
  llvm::Value *call(StringRef name, ArrayRef<llvm::Value *> arguments,
                    llvm::Type *type = nullptr);

  ModuleOp module;
  ProgramTables &tables;
  std::unique_ptr<llvm::Module> result;
  llvm::IRBuilder<> builder;
  llvm::Value *rank = nullptr;
  llvm::Value *arena = nullptr;   // base address, asked for once per function
  llvm::Value *scratch = nullptr; // array of operands, reused by every call
  llvm::DenseMap<Value, llvm::Value *> pointerAddresses;
  SmallVector<llvm::Value *> arguments;    // of the call that is being emitted
  llvm::GlobalVariable *kernels = nullptr; // the array of kernel descriptors
  llvm::DenseMap<StringAttr, int64_t> kernelIndices;
};

// Declares the function from its arguments. The C side is generated from the
// same ops (tools/gen-abi.py).
llvm::Value *ProgramEmitter::call(StringRef name,
                                  ArrayRef<llvm::Value *> arguments,
                                  llvm::Type *type) {
  SmallVector<llvm::Value *> all{rank};
  llvm::append_range(all, arguments);
  SmallVector<llvm::Type *> types;
  for (llvm::Value *argument : all)
    types.push_back(argument->getType());
  auto callee = result->getOrInsertFunction(
      name, llvm::FunctionType::get(type ? type : builder.getVoidTy(), types,
                                    /*isVarArg=*/false));
  return builder.CreateCall(callee, all);
}

// Passes the number of layouts, and their indices as a constant array.
void ProgramEmitter::layouts(ArrayAttr names) {
  SmallVector<uint32_t> indices;
  for (auto name : names.getAsRange<FlatSymbolRefAttr>())
    indices.push_back(tables.layouts.index(name.getAttr()));
  auto *data = llvm::ConstantDataArray::get(builder.getContext(), indices);
  arguments.push_back(integer(indices.size()));
  arguments.push_back(
      new llvm::GlobalVariable(*result, data->getType(), /*isConstant=*/true,
                               llvm::GlobalValue::PrivateLinkage, data));
}

// Stores the addresses into the function's scratch array. Calls copy the array
// before they return, so one array serves them all.
void ProgramEmitter::addresses(ValueRange pointers) {
  for (auto [i, pointer] : llvm::enumerate(pointers))
    builder.CreateStore(
        addressOf(pointer),
        builder.CreateConstGEP1_64(builder.getPtrTy(), scratch, i));
  arguments.push_back(scratch);
}

// Passes the address of a kernel's descriptor, or null if the op has no kernel.
void ProgramEmitter::kernel(FlatSymbolRefAttr name) {
  arguments.push_back(
      name ? builder.CreateConstGEP1_64(kernelType(), kernels,
                                        kernelIndices.lookup(name.getAttr()))
           : null());
}

// Mirrors struct fsdpc_kernel of runtime/include/fsdpc.h.
llvm::StructType *ProgramEmitter::kernelType() {
  llvm::Type *pointer = builder.getPtrTy(), *i64 = builder.getInt64Ty(),
             *i32 = builder.getInt32Ty();
  return llvm::StructType::get(builder.getContext(),
                               {pointer, pointer, i64, i64, i32, i32});
}

// On a GPU, `body` is null and the runtime finds the kernel by its name in the
// device code.
llvm::Constant *ProgramEmitter::describeKernel(func::FuncOp kernel,
                                               bool onHost) {
  auto type = llvm::FunctionType::get(
      builder.getVoidTy(),
      {builder.getInt64Ty(), builder.getInt64Ty(), builder.getPtrTy()}, false);
  llvm::Constant *body = llvm::ConstantPointerNull::get(builder.getPtrTy());
  if (onHost)
    body = cast<llvm::Constant>(
        result->getOrInsertFunction(kernel.getSymName(), type).getCallee());
  // The range is the host's; a GPU gets the whole grid at once.
  nn::KernelPlanAttr plan;
  if (onHost)
    plan = analysis::planOf(kernel);
  nn::GridAttr grid = analysis::gridOf(kernel);
  std::string name = kernel.getSymName().str();
  name.push_back('\0');
  return llvm::ConstantStruct::get(
      kernelType(),
      {bytes("name", name), body, builder.getInt64(plan ? plan.getExtent() : 0),
       builder.getInt64(plan ? plan.getGrain() : 0),
       builder.getInt32(grid ? grid.getBlocks() : 0),
       builder.getInt32(grid ? grid.getThreads() : 0)});
}

// Emits the array of descriptors and remembers the place of each kernel.
void ProgramEmitter::emitKernels(bool onHost) {
  SmallVector<llvm::Constant *> all;
  for (auto kernel : module.getOps<func::FuncOp>()) {
    if (!kernel->hasAttr(nn::NNDialect::kKernelAttr))
      continue;
    kernelIndices[kernel.getSymNameAttr()] = all.size();
    all.push_back(describeKernel(kernel, onHost));
  }
  auto *type = llvm::ArrayType::get(kernelType(), all.size());
  // Internal, since the runtime finds the array through the program's
  // description and not by name.
  kernels = new llvm::GlobalVariable(
      *result, type, /*isConstant=*/true, llvm::GlobalValue::InternalLinkage,
      llvm::ConstantArray::get(type, all), "fsdpc_kernels");
}

// Only the arena's base is known to the function; others are asked for by
// number when they are needed.
llvm::Value *ProgramEmitter::emitPointer(rt::PointerOp op) {
  int64_t offset = op.getOffset();
  if (op.getSpace() == rt::Space::arena)
    return builder.CreateConstGEP1_64(builder.getInt8Ty(), arena, offset);
  int32_t index = 0;
  if (FlatSymbolRefAttr symbol = op.getSymbolAttr()) {
    StringAttr name = symbol.getAttr();
    switch (op.getSpace()) {
    case rt::Space::input:
      index = tables.inputs.index(name);
      break;
    case rt::Space::buffer:
      index = tables.buffers.index(name);
      break;
    case rt::Space::whole:
    case rt::Space::gradient:
    case rt::Space::gathered:
      index = tables.layouts.index(name);
      break;
    case rt::Space::constant:
      offset += tables.constantOffsets.lookup(name);
      break;
    default:
      // The random state is one per rank and needs no index.
      break;
    }
  }
  auto ask = [&](int64_t byte) {
    return call("fsdpc_pointer",
                {integer(static_cast<int32_t>(op.getSpace())), integer(index),
                 wide(byte)},
                builder.getPtrTy());
  };
  // The runtime chooses where gathered parameters begin.
  if (op.getSpace() == rt::Space::gathered)
    return builder.CreateConstGEP1_64(builder.getInt8Ty(), ask(*op.getAt()),
                                      offset);
  return ask(offset);
}

// verify-rt lets only pointers, calls and the return through.
void ProgramEmitter::emitOp(Operation *op) {
  if (auto pointer = dyn_cast<rt::PointerOp>(op)) {
    pointerAddresses[pointer] = emitPointer(pointer);
  } else if (auto abiCall = dyn_cast<rt::AbiCallOpInterface>(op)) {
    arguments.clear();
    abiCall.passArguments(*this);
    call(abiCall.getFunction(), arguments);
  } else {
    assert(isa<func::ReturnOp>(op));
    builder.CreateRetVoid();
  }
}

// Spaces and streams are passed as the numbers of the dialect's enums.
static_assert(static_cast<int>(rt::Space::arena) == FSDPC_SPACE_ARENA &&
              static_cast<int>(rt::Space::input) == FSDPC_SPACE_INPUT &&
              static_cast<int>(rt::Space::constant) == FSDPC_SPACE_CONSTANT &&
              static_cast<int>(rt::Space::buffer) == FSDPC_SPACE_BUFFER &&
              static_cast<int>(rt::Space::whole) == FSDPC_SPACE_WHOLE &&
              static_cast<int>(rt::Space::random) == FSDPC_SPACE_RANDOM &&
              static_cast<int>(rt::Space::gradient) == FSDPC_SPACE_GRADIENT &&
              static_cast<int>(rt::Space::gathered) == FSDPC_SPACE_GATHERED);
static_assert(static_cast<int>(rt::Stream::compute) == FSDPC_STREAM_COMPUTE &&
              static_cast<int>(rt::Stream::gather) == FSDPC_STREAM_GATHER &&
              static_cast<int>(rt::Stream::reduce) == FSDPC_STREAM_REDUCE);

// The scratch array has as many slots as the op with the most operands needs.
llvm::Function *ProgramEmitter::emitEntry(StringRef name) {
  auto source = module.lookupSymbol<func::FuncOp>(name);
  auto type =
      llvm::FunctionType::get(builder.getVoidTy(), {builder.getPtrTy()}, false);
  auto *function = llvm::Function::Create(
      type, llvm::GlobalValue::InternalLinkage, name, *result);
  builder.SetInsertPoint(
      llvm::BasicBlock::Create(builder.getContext(), "entry", function));
  rank = function->getArg(0);
  size_t operands = 1;
  for (Operation &op : source.getBody().front())
    operands = std::max<size_t>(operands, op.getNumOperands());
  // One alloca in the entry block, so that the stack does not grow with the
  // number of calls.
  scratch = builder.CreateAlloca(builder.getPtrTy(), wide(operands));
  arena = call("fsdpc_pointer", {integer(0), integer(0), wide(0)},
               builder.getPtrTy());
  for (Operation &op : source.getBody().front())
    emitOp(&op);
  return function;
}

// Mirrors struct fsdpc_bucket of runtime/include/fsdpc.h. An edited dump may
// have been written before there was @evaluate.
llvm::GlobalVariable *ProgramEmitter::emitBuckets() {
  llvm::Type *pointer = builder.getPtrTy();
  auto *entries =
      llvm::StructType::get(builder.getContext(), {pointer, pointer});
  SmallVector<llvm::Constant *> all;
  size_t count = fsdp::bucketCount(module);
  for (size_t bucket = 0; bucket < count; ++bucket) {
    auto entry = [&](StringRef name) -> llvm::Constant * {
      std::string full = fsdp::nameInBucket(name, bucket);
      if (!module.lookupSymbol(full))
        return llvm::ConstantPointerNull::get(builder.getPtrTy());
      return emitEntry(full);
    };
    llvm::Constant *microbatch = entry(fsdp::FSDPDialect::kMicrobatch);
    all.push_back(llvm::ConstantStruct::get(
        entries, {microbatch, entry(fsdp::kEvaluate)}));
  }
  auto *type = llvm::ArrayType::get(entries, all.size());
  return new llvm::GlobalVariable(
      *result, type, /*isConstant=*/true, llvm::GlobalValue::InternalLinkage,
      llvm::ConstantArray::get(type, all), "fsdpc_buckets");
}

llvm::Constant *ProgramEmitter::bytes(StringRef name, StringRef data) {
  if (data.empty())
    return llvm::ConstantPointerNull::get(builder.getPtrTy());
  auto *value = llvm::ConstantDataArray::getString(builder.getContext(), data,
                                                   /*AddNull=*/false);
  auto *global =
      new llvm::GlobalVariable(*result, value->getType(), /*isConstant=*/true,
                               llvm::GlobalValue::InternalLinkage, value, name);
  // Suits any vector load of constants and weights.
  global->setAlignment(llvm::Align(64));
  return global;
}

// Emits the entry functions, then the program's description, then `main`, which
// passes the description to the runtime (fsdpc_main).
std::unique_ptr<llvm::Module> ProgramEmitter::emit(StringRef manifest,
                                                   StringRef deviceCode) {
  // Kernels come first: the entry functions refer to their descriptors.
  emitKernels(/*onHost=*/deviceCode.empty());
  llvm::GlobalVariable *buckets = emitBuckets();
  llvm::Function *update = emitEntry(fsdp::FSDPDialect::kUpdate);

  // Mirrors struct fsdpc_program of runtime/include/fsdpc.h.
  auto *fields = llvm::ConstantStruct::getAnon(
      {bytes("manifest", manifest), builder.getInt64(manifest.size()),
       bytes("constants", tables.constants),
       builder.getInt64(tables.constants.size()),
       bytes("weights", tables.weights),
       builder.getInt64(tables.weights.size()), update, buckets,
       builder.getInt64(buckets->getValueType()->getArrayNumElements()),
       kernels, builder.getInt64(kernelIndices.size()),
       bytes("device_code", deviceCode), builder.getInt64(deviceCode.size())});
  auto *program = new llvm::GlobalVariable(
      *result, fields->getType(), /*isConstant=*/true,
      llvm::GlobalValue::InternalLinkage, fields, "fsdpc_program");

  SmallVector<llvm::Type *> types{builder.getInt32Ty(), builder.getPtrTy()};
  auto *mainFunction = llvm::Function::Create(
      llvm::FunctionType::get(builder.getInt32Ty(), types, false),
      llvm::GlobalValue::ExternalLinkage, "main", *result);
  builder.SetInsertPoint(
      llvm::BasicBlock::Create(builder.getContext(), "entry", mainFunction));
  types.push_back(builder.getPtrTy());
  auto run = result->getOrInsertFunction(
      "fsdpc_main",
      llvm::FunctionType::get(builder.getInt32Ty(), types, false));
  builder.CreateRet(builder.CreateCall(
      run, {mainFunction->getArg(0), mainFunction->getArg(1), program}));
  return std::move(result);
}

} // namespace

std::unique_ptr<llvm::Module>
fsdpc::codegen::emitProgram(ModuleOp module, ProgramTables &tables,
                            StringRef manifest, StringRef deviceCode,
                            llvm::LLVMContext &context) {
  return ProgramEmitter(module, tables, context).emit(manifest, deviceCode);
}
