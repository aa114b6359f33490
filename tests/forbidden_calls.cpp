#include "forbidden_calls.hpp"

#include <seccomp.h>

#include <cerrno>
#include <memory>
#include <stdexcept>
#include <type_traits>

namespace chorale::testing {

void forbid_calls(std::span<const std::string> names) {
  struct release {
    void operator()(scmp_filter_ctx filter) const { ::seccomp_release(filter); }
  };
  const std::unique_ptr<std::remove_pointer_t<scmp_filter_ctx>, release> filter{
      ::seccomp_init(SCMP_ACT_ALLOW)};
  if (!filter) throw std::runtime_error{"no seccomp filter can be made"};
  for (const std::string& name : names) {
    const int number = ::seccomp_syscall_resolve_name(name.c_str());
    if (number == __NR_SCMP_ERROR) throw std::runtime_error{"no system call is named " + name};
    if (::seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), number, 0) != 0)
      throw std::runtime_error{"the filter does not take " + name};
  }
  if (::seccomp_load(filter.get()) != 0) throw std::runtime_error{"the kernel does not take the filter"};
}

}  // namespace chorale::testing
