// Finding a kernel: the tables of all instruction sets, and why a combination has none.
#include <chorale/kernels/host_kernel_table.hpp>

#include <string>

namespace chorale {
namespace detail {
namespace {

const host_kernel_table& table_of(instruction_set set) noexcept {
#if defined(__x86_64__)
  if (set == instruction_set::avx512) return avx512_host_kernels;
  if (set == instruction_set::avx2) return avx2_host_kernels;
#endif
  static_cast<void>(set);
  return portable_host_kernels;
}

error no_kernel(dtype type, reduction op) {
  const std::string named =
      std::string{name_of(op)} + " of " + std::string{name_of(type)} + " on host memory: ";
  if (size_of(type) == 0)
    return error{errc::unsupported, named + "this is no element type; name one of dtype"};
  switch (op) {
    case reduction::bit_and:
    case reduction::bit_or:
    case reduction::bit_xor:
      return error{
          errc::unsupported,
          named + "bit operations take integers; use sum, prod, min or max, or integers of this size"};
    case reduction::user:
      return error{errc::unsupported, named + "only the caller knows this function; give it to the call"};
    default:
      return error{errc::unsupported, named + "this is no reduction; name one of reduction"};
  }
}

}  // namespace

const host_kernels_of_type* find_host_kernels(dtype type, instruction_set set) noexcept {
  const auto row = static_cast<std::size_t>(type);
  if (size_of(type) == 0 || row >= dtype_count) return nullptr;
  return &table_of(set).of[row];
}

}  // namespace detail

instruction_set best_instruction_set() noexcept {
#if defined(__x86_64__)
  static const instruction_set best = [] {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx2 ? (avx512 ? instruction_set::avx512 : instruction_set::avx2) : instruction_set::portable;
  }();
  return best;
#else
  return instruction_set::portable;
#endif
}

result<host_reduction> find_host_reduction(dtype type, reduction op, instruction_set set) {
  const auto* row = detail::find_host_kernels(type, set);
  const auto column = static_cast<std::size_t>(op);
  if (row && column < detail::reduction_count && row->combine[column]) return row->combine[column];
  return detail::no_kernel(type, op);
}

result<host_folding> find_host_folding(dtype type, reduction op, instruction_set set) {
  const auto* row = detail::find_host_kernels(type, set);
  const auto column = static_cast<std::size_t>(op);
  if (row && column < detail::reduction_count && row->folding[column].fold) return row->folding[column];
  return detail::no_kernel(type, op);
}

result<host_division> find_host_division(dtype type, instruction_set set) {
  if (const auto* row = detail::find_host_kernels(type, set)) return row->divide;
  return detail::no_kernel(type, reduction::avg);
}

result<host_scaling> find_host_scaling(dtype type, instruction_set set) {
  if (const auto* row = detail::find_host_kernels(type, set)) return row->scale;
  return detail::no_kernel(type, reduction::premul_sum);
}

}  // namespace chorale
