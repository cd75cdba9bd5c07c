// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Status and Result: what converts to what, and that FSDPC_TRY returns the
// error of the first failure and nothing else.
#include "runtime/support/status.h"
#include "runtime/support/system_error.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <memory>
#include <string>

using namespace fsdpc;

namespace {

struct Base {
  virtual ~Base() = default;
};
struct Derived : Base {};

Result<int> half(int number) {
  if (number % 2)
    return inputError(std::to_string(number) + " is odd");
  return number / 2;
}

Status quarter(int number, int &result) {
  Result<int> first = half(number);
  FSDPC_TRY(first);
  Result<int> second = half(*first);
  FSDPC_TRY(second);
  result = *second;
  return {};
}

// An error passes through a function that returns another type.
TEST(Status, ReturnsTheFirstError) {
  int result = 0;
  EXPECT_TRUE(quarter(12, result));
  EXPECT_EQ(result, 3);
  EXPECT_EQ(quarter(7, result).error().message, "7 is odd");
  EXPECT_EQ(quarter(6, result).error().message, "3 is odd");
  EXPECT_EQ(result, 3);
}

// A status is an error even if its message is empty.
TEST(Status, AnEmptyMessageIsAnError) {
  EXPECT_FALSE(Status(Error::toldElsewhere(ExitCode::runFailed)));
  EXPECT_TRUE(Status());
}

// The code is that of where the error was made, whatever is said about it on
// the way.
TEST(Status, KeepsTheCodeOfAnError) {
  EXPECT_EQ(inputError("a").code(), ExitCode::wrongInput);
  EXPECT_EQ(commandLineError("a").code(), ExitCode::wrongCommandLine);
  EXPECT_EQ(runError("a").code(), ExitCode::runFailed);
  int result = 0;
  Status failed = quarter(7, result);
  EXPECT_EQ(failed.error().code(), ExitCode::wrongInput);
  Error said = failed.error().reworded("cannot go on: 7 is odd");
  EXPECT_EQ(said.code(), ExitCode::wrongInput);
  EXPECT_EQ(said.message, "cannot go on: 7 is odd");
}

// Whoever named a file that is not there has to correct something; a disk that
// is full may have room later.
TEST(Status, SystemErrorsAreTheUsersOrTheMachines) {
  for (int code : {ENOENT, EACCES, EISDIR, EROFS, EADDRNOTAVAIL})
    EXPECT_EQ(systemError(code).code(), ExitCode::wrongInput) << code;
  for (int code : {ENOSPC, EIO, ENOMEM, EMFILE, ESTALE, EADDRINUSE, EPIPE})
    EXPECT_EQ(systemError(code).code(), ExitCode::runFailed) << code;
  EXPECT_EQ(systemError(ENOSPC, "cannot write 'x'").message,
            "cannot write 'x': No space left on device");
}

// A value that can only be moved, of a derived type.
TEST(Result, MovesItsValue) {
  auto make = []() -> Result<std::unique_ptr<Base>> {
    auto derived = std::make_unique<Derived>();
    return derived;
  };
  Result<std::unique_ptr<Base>> made = make();
  ASSERT_TRUE(made);
  std::unique_ptr<Base> owned = std::move(*made);
  EXPECT_NE(owned, nullptr);
}

} // namespace
