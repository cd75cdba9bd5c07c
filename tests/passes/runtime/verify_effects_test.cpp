// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// verify-rt and verify-schedule on ops that they have never seen. A dialect of
// the test has ops that state their effects and ranges, and the same ops with
// an effect or range removed. The verifiers prove the former like any other op
// and refuse the latter, and every op of the project's dialects must be of the
// former kind.
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/rt/RTDialect.h"
#include "passes/runtime/Passes.h"
#include "passes/schedule/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace verify_effects_test {

using Effects = SmallVectorImpl<MemoryEffects::EffectInstance>;

template <typename ConcreteOp, template <typename> class... Traits>
class TestOp : public Op<ConcreteOp, OpTrait::ZeroRegions, OpTrait::ZeroResults,
                         OpTrait::VariadicOperands,
                         rt::CommandOpInterface::Trait, Traits...> {
public:
  using Op<ConcreteOp, OpTrait::ZeroRegions, OpTrait::ZeroResults,
           OpTrait::VariadicOperands, rt::CommandOpInterface::Trait,
           Traits...>::Op;
  static ArrayRef<StringRef> getAttributeNames() { return {}; }
  rt::Stream getStream() { return rt::Stream::compute; }
};

using Ranges = SmallVectorImpl<rt::AccessRange>;

// An op that accesses 64 bytes behind each of its pointers.
template <typename ConcreteOp, template <typename> class... Traits>
class RangedOp : public TestOp<ConcreteOp, MemoryEffectOpInterface::Trait,
                               rt::AccessRangesOpInterface::Trait, Traits...> {
public:
  using TestOp<ConcreteOp, MemoryEffectOpInterface::Trait,
               rt::AccessRangesOpInterface::Trait, Traits...>::TestOp;
  LogicalResult getAccessRanges(const SymbolTable &, Ranges &ranges) {
    for (OpOperand &operand : (*this)->getOpOperands())
      ranges.push_back({&operand, 64});
    return success();
  }
};

// Writes through all its pointers.
class WriteOp : public RangedOp<WriteOp> {
public:
  using RangedOp::RangedOp;
  static StringRef getOperationName() { return "test.write"; }
  void getEffects(Effects &effects) {
    for (OpOperand &operand : (*this)->getOpOperands())
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
  }
};

// The same with the effect on all pointers but the first removed.
class WriteFirstOp : public RangedOp<WriteFirstOp> {
public:
  using RangedOp::RangedOp;
  static StringRef getOperationName() { return "test.write_first"; }
  void getEffects(Effects &effects) {
    if ((*this)->getNumOperands() > 0)
      effects.emplace_back(MemoryEffects::Write::get(),
                           &(*this)->getOpOperand(0));
  }
};

// The same as WriteOp without ranges.
class UnrangedOp : public TestOp<UnrangedOp, MemoryEffectOpInterface::Trait> {
public:
  using TestOp::TestOp;
  static StringRef getOperationName() { return "test.unranged"; }
  void getEffects(Effects &effects) {
    for (OpOperand &operand : (*this)->getOpOperands())
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
  }
};

// The same as WriteOp with the range of all pointers but the first removed.
class RangeFirstOp : public TestOp<RangeFirstOp, MemoryEffectOpInterface::Trait,
                                   rt::AccessRangesOpInterface::Trait> {
public:
  using TestOp::TestOp;
  static StringRef getOperationName() { return "test.range_first"; }
  void getEffects(Effects &effects) {
    for (OpOperand &operand : (*this)->getOpOperands())
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
  }
  LogicalResult getAccessRanges(const SymbolTable &, Ranges &ranges) {
    ranges.push_back({&(*this)->getOpOperand(0), 64});
    return success();
  }
};

// The same as WriteOp with all effects removed.
class SilentOp : public TestOp<SilentOp> {
public:
  using TestOp::TestOp;
  static StringRef getOperationName() { return "test.silent"; }
};

// Writes the gradients of the layouts in its attribute `layouts`.
class LayoutOp : public RangedOp<LayoutOp, fsdp::LayoutUserOpInterface::Trait> {
public:
  using RangedOp::RangedOp;
  static StringRef getOperationName() { return "test.layout"; }
  ArrayAttr getLayoutsAttr() {
    return (*this)->getAttrOfType<ArrayAttr>("layouts");
  }
  void getEffects(Effects &effects) {
    effects.emplace_back(MemoryEffects::Write::get(),
                         fsdp::GradientMemory::get());
  }
};

// The same with the effect removed.
class SilentLayoutOp
    : public TestOp<SilentLayoutOp, MemoryEffectOpInterface::Trait,
                    fsdp::LayoutUserOpInterface::Trait> {
public:
  using TestOp::TestOp;
  static StringRef getOperationName() { return "test.silent_layout"; }
  ArrayAttr getLayoutsAttr() {
    return (*this)->getAttrOfType<ArrayAttr>("layouts");
  }
  void getEffects(Effects &) {}
};

// Writes a communication window, which no rt op does on stream compute.
class WindowOp : public RangedOp<WindowOp> {
public:
  using RangedOp::RangedOp;
  static StringRef getOperationName() { return "test.window"; }
  void getEffects(Effects &effects) {
    effects.emplace_back(MemoryEffects::Write::get(), rt::GatherWindow::get());
  }
};

// Reads or writes memory that it does not name.
class AnywhereOp : public RangedOp<AnywhereOp> {
public:
  using RangedOp::RangedOp;
  static StringRef getOperationName() { return "test.anywhere"; }
  void getEffects(Effects &effects) {
    effects.emplace_back(MemoryEffects::Write::get());
  }
};

class TestDialect : public Dialect {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(TestDialect)
  explicit TestDialect(MLIRContext *context)
      : Dialect(getDialectNamespace(), context, TypeID::get<TestDialect>()) {
    addOperations<WriteOp, WriteFirstOp, UnrangedOp, RangeFirstOp, SilentOp,
                  LayoutOp, SilentLayoutOp, WindowOp, AnywhereOp>();
  }
  static StringRef getDialectNamespace() { return "test"; }
};

class VerifyEffectsTest : public testing::Test {
protected:
  VerifyEffectsTest() {
    context.loadDialect<func::FuncDialect, nn::NNDialect, fsdp::FSDPDialect,
                        rt::RTDialect, TestDialect>();
  }

  // Runs the pass on @microbatch with this body. Returns the first error, or an
  // empty string.
  std::string run(std::unique_ptr<Pass> pass, const std::string &body) {
    std::string error;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      if (error.empty())
        error = diagnostic.str();
    });
    auto module = parseSourceString<ModuleOp>(R"(
module attributes {fsdp.arena = {bytes = 512 : i64},
                   fsdp.options = {"max-ranks" = 1 : i64}} {
  fsdp.unit @u
  fsdp.parameter @w : tensor<16xf32> trainable unit @u
  fsdp.layout @l of @u trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%g: tensor<16xf32> {fsdp.input = "g"}) {
)" + body + R"(
    return
  }
  func.func @update() { return }
})",
                                              &context);
    EXPECT_TRUE(module) << error;
    PassManager manager(&context);
    manager.addPass(std::move(pass));
    bool accepted = succeeded(manager.run(*module));
    EXPECT_EQ(accepted, error.empty()) << error;
    return error;
  }
  std::string verifyRT(const std::string &body) {
    return run(createVerifyRT(), body);
  }
  std::string verifySchedule(const std::string &body) {
    return run(createVerifySchedule(), body);
  }

  MLIRContext context;
};

#define EXPECT_ERROR(error, text)                                              \
  EXPECT_NE((error).find(text), std::string::npos) << "'" << (error) << "'"

constexpr const char *pointers = R"(
    %0 = rt.pointer arena + 0 bytes 64
    %1 = rt.pointer arena + 64 bytes 64
)";

// An op that no verifier knows passes if its effects do.
TEST_F(VerifyEffectsTest, AcceptsAForeignOpThatStatesItsEffects) {
  EXPECT_EQ(verifyRT(pointers + std::string(R"(
    "test.write"(%0, %1) : (!rt.ptr, !rt.ptr) -> ()
    "test.layout"() {layouts = [@l]} : () -> ())")),
            "");
  EXPECT_EQ(verifySchedule(R"("test.layout"() {layouts = [@l]} : () -> ())"),
            "");
}

TEST_F(VerifyEffectsTest, RefusesAnOpWithoutEffects) {
  constexpr const char *message =
      "does not declare its memory effects; declare them in ODS";
  EXPECT_ERROR(verifyRT(R"("test.silent"() : () -> ())"), message);
  EXPECT_ERROR(verifySchedule(R"("test.silent"() : () -> ())"), message);
}

TEST_F(VerifyEffectsTest, RefusesAPointerWithoutEffect) {
  EXPECT_ERROR(
      verifyRT(pointers + std::string(R"(
    "test.write_first"(%0, %1) : (!rt.ptr, !rt.ptr) -> ())")),
      "does not declare whether it reads or writes the memory of operand 1");
}

// Without operands too: an effect is on memory, whichever that is.
TEST_F(VerifyEffectsTest, RefusesAnOpWithoutRanges) {
  constexpr const char *message = "does not say which bytes it accesses; "
                                  "implement rt.AccessRangesOpInterface";
  EXPECT_ERROR(verifyRT(pointers + std::string(R"(
    "test.unranged"(%0) : (!rt.ptr) -> ())")),
               message);
  EXPECT_ERROR(verifyRT(R"(fsdp.enter @u)"), message);
}

TEST_F(VerifyEffectsTest, RefusesAPointerWithoutRange) {
  EXPECT_ERROR(verifyRT(pointers + std::string(R"(
    "test.range_first"(%0, %1) : (!rt.ptr, !rt.ptr) -> ())")),
               "does not say how many bytes it accesses of operand 1");
}

// Ranges are compared with pointers, whichever op states them.
TEST_F(VerifyEffectsTest, RefusesAPointerThatDeclaresTooLittle) {
  EXPECT_ERROR(verifyRT(R"(
    %0 = rt.pointer arena + 0 bytes 63
    "test.write"(%0) : (!rt.ptr) -> ())"),
               "touches 64 bytes of operand 0, but its pointer reaches 63");
}

TEST_F(VerifyEffectsTest, RefusesALayoutWithoutEffect) {
  constexpr const char *op =
      R"("test.silent_layout"() {layouts = [@l]} : () -> ())";
  constexpr const char *message =
      "references layout 'l', but declares no effect on the memory of layouts";
  EXPECT_ERROR(verifyRT(op), message);
  EXPECT_ERROR(verifySchedule(op), message);
}

// The memory that an op touches counts, not which op it is.
TEST_F(VerifyEffectsTest, OrdersForeignOpsLikeTheRuntimes) {
  EXPECT_ERROR(
      verifyRT(pointers + std::string(R"(
    rt.reduce_scatter [@l], %0
    "test.write"(%0) : (!rt.ptr) -> ())")),
      "accesses arena bytes [0, 64) without waiting for stream 'reduce'");
  EXPECT_ERROR(verifyRT(pointers + std::string(R"(
    rt.reduce_scatter [@l], %0
    "test.layout"() {layouts = [@l]} : () -> ())")),
               "accesses gradients of 'l' without waiting for stream 'reduce'");
  EXPECT_EQ(verifyRT(pointers + std::string(R"(
    rt.reduce_scatter [@l], %0
    rt.event_record reduce 0
    rt.event_wait compute 0
    "test.write"(%0) : (!rt.ptr) -> ()
    "test.layout"() {layouts = [@l]} : () -> ())")),
            "");
  EXPECT_ERROR(verifyRT(pointers + std::string(R"(
    rt.reduce_scatter [@l], %0
    "test.anywhere"() : () -> ())")),
               "accesses unspecified memory without waiting");
}

// Two commands that use one channel's window must be ordered like any others.
TEST_F(VerifyEffectsTest, OrdersCommunicationWindows) {
  EXPECT_ERROR(verifyRT(pointers + std::string(R"(
    %own = rt.pointer gathered @l + 0 bytes 64 at 0
    rt.all_gather [@l] -> %own
    "test.window"() : () -> ())")),
               "accesses window of channel 'gather' without waiting for stream "
               "'gather'");
  EXPECT_EQ(verifyRT(pointers + std::string(R"(
    %own = rt.pointer gathered @l + 0 bytes 64 at 0
    rt.all_gather [@l] -> %own
    rt.event_record gather 0
    rt.event_wait compute 0
    "test.window"() : () -> ())")),
            "");
}

TEST_F(VerifyEffectsTest, KeepsForeignOpsFromCollectivesUnderWay) {
  for (const char *op : {R"("test.layout"() {layouts = [@l]} : () -> ())",
                         R"("test.anywhere"() : () -> ())"})
    EXPECT_ERROR(verifySchedule(
                     R"(%t = fsdp.reduce_scatter_start [@l], %g : tensor<16xf32>
)" + std::string(op) +
                     "\nfsdp.reduce_scatter_wait %t"),
                 "accesses memory of layout 'l' while a collective on that "
                 "layout is in flight");
}

// Symbols stand at the module's top level, where nothing runs.
TEST_F(VerifyEffectsTest, EveryOpStatesItsEffects) {
  int count = 0;
  for (RegisteredOperationName name : context.getRegisteredOperations()) {
    if (!llvm::is_contained({"nn", "fsdp", "rt"}, name.getDialectNamespace()) ||
        name.hasInterface<SymbolOpInterface>())
      continue;
    ++count;
    EXPECT_TRUE(name.hasInterface<MemoryEffectOpInterface>())
        << name.getStringRef().str();
  }
  EXPECT_GT(count, 100);
}

// All ops of rt that have addresses or put commands on streams.
TEST_F(VerifyEffectsTest, EveryCommandStatesItsRanges) {
  int count = 0;
  for (RegisteredOperationName name : context.getRegisteredOperations()) {
    if (name.getDialectNamespace() != "rt" ||
        !name.hasInterface<rt::CommandOpInterface>())
      continue;
    ++count;
    EXPECT_TRUE(name.hasInterface<rt::AccessRangesOpInterface>())
        << name.getStringRef().str();
  }
  EXPECT_GT(count, 25);
}

} // namespace verify_effects_test
