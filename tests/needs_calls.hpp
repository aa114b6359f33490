// Tests that can not hold where a sandbox around the test program refuses certain system calls.
#pragma once

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>

namespace chorale::testing {

/// For boost::unit_test::precondition: skips, naming the call, what needs one that is forbidden
/// (without.cpp).
class needs_calls {
 public:
  needs_calls(std::initializer_list<std::string_view> calls) {
    const char* forbidden = std::getenv("CHORALE_TEST_FORBIDDEN");
    if (!forbidden) return;
    for (const std::string_view call : calls)
      if ((" " + std::string{forbidden}).find(" " + std::string{call} + " ") != std::string::npos)
        missing_ = call;
  }
  boost::test_tools::assertion_result operator()(boost::unit_test::test_unit_id) const {
    boost::test_tools::assertion_result allowed{missing_.empty()};
    if (!missing_.empty()) allowed.message() << "a sandbox forbids the system call " << missing_;
    return allowed;
  }

 private:
  std::string missing_;
};

}  // namespace chorale::testing
