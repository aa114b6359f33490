// System calls refused to this process for good, as sandboxes and container runtimes refuse them.
#pragma once

#include <initializer_list>
#include <span>
#include <string>

namespace chorale::testing {

/// From here on these calls fail with EPERM, here and in what this process starts. Names as in the kernel's
/// table. Throws std::runtime_error, naming the call, where the kernel or the name is unknown.
void forbid_calls(std::span<const std::string> names);
inline void forbid_calls(std::initializer_list<std::string> names) {
  forbid_calls(std::span{names.begin(), names.size()});
}

}  // namespace chorale::testing
