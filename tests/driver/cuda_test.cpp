// Loading the table, errors made of statuses, the current-context guard.
#include <chorale/driver/cuda.hpp>

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

using namespace chorale::cuda;

namespace {

// A driver in which only the context calls exist; the context stack is the test's.
std::vector<context> stack;
cuda_driver context_driver() {
  cuda_driver d{};
  d.get_error_name = [](status, const char** name) {
    *name = "CUDA_ERROR_OUT_OF_MEMORY";
    return success;
  };
  d.context_get_current = [](context* out) {
    *out = stack.empty() ? nullptr : stack.back();
    return success;
  };
  d.context_push = [](context c) {
    stack.push_back(c);
    return success;
  };
  d.context_pop = [](context* out) {
    *out = stack.back();
    stack.pop_back();
    return success;
  };
  return d;
}
context numbered(std::uintptr_t n) { return reinterpret_cast<context>(n); }

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_table)

BOOST_AUTO_TEST_CASE(loading_gives_a_table_or_says_why_not) {
  auto loaded = cuda_driver::load();
  if (loaded) {
    BOOST_TEST((*loaded)->launch_kernel != nullptr);
    BOOST_TEST((*loaded)->event_record != nullptr);
  } else {
    BOOST_TEST_MESSAGE(loaded.error().message());
    const bool expected =
        loaded.error() == chorale::errc::unsupported || loaded.error() == chorale::errc::gpu_error;
    BOOST_TEST(expected);
    BOOST_TEST(loaded.error().detail().find(':') != std::string::npos);  // what happened: what to do
  }
}

BOOST_AUTO_TEST_CASE(errors_name_the_call_the_cause_and_the_device) {
  const cuda_driver d = context_driver();
  const auto full = make_error(d, error_out_of_memory, "cuMemAlloc", 3);
  BOOST_TEST((full == chorale::errc::out_of_memory));
  for (const char* part : {"cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", "GPU 3", "free device memory"})
    BOOST_TEST(full.detail().find(part) != std::string::npos, part);
  BOOST_TEST((make_error(d, 700, "cuStreamSynchronize", 0) == chorale::errc::gpu_error));
  BOOST_TEST(check(d, success, "cuInit", 0).has_value());
  const cuda_driver empty{};
  BOOST_TEST(make_error(empty, 999, "cuInit", -1).detail().find("unknown") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_context_guard_puts_back_what_was_current) {
  const cuda_driver d = context_driver();
  stack = {numbered(1)};
  {
    const current_context same{d, numbered(1)};
    BOOST_TEST(stack.size() == 1u);
    const current_context other{d, numbered(2)};
    BOOST_TEST((stack.back() == numbered(2)));
    BOOST_TEST(other.code() == success);
  }
  BOOST_TEST(stack.size() == 1u);
  BOOST_TEST((stack.back() == numbered(1)));
}

BOOST_AUTO_TEST_SUITE_END()
