#include <chorale/kernels/kernel_table.hpp>

#include <array>

namespace chorale::cuda {
namespace {

using kernels::algorithm;

// In this order; kernel_for counts on it.
constexpr std::array<kernel_entry, kernel_count> entries{{
    {"sum_f32", "chorale_f32_sum_packets_2", false, 1024, true},
    {"sum_f32", "chorale_f32_sum_lines_2_1", false, 544, true},
    {"sum_f32", "chorale_f32_sum_lines_2_2", false, 544, true},
    {"sum_f32", "chorale_f32_sum_lines_2_4", false, 544, true},
    {"sum_f32", "chorale_f32_sum_ring_2", true, 576, true},
    {"sum_bf16", "chorale_bf16_sum_packets_2", false, 576, true},
    {"sum_bf16", "chorale_bf16_sum_lines_2_1", false, 544, true},
    {"sum_bf16", "chorale_bf16_sum_lines_2_2", false, 544, true},
    {"sum_bf16", "chorale_bf16_sum_lines_2_4", false, 544, true},
    {"sum_bf16", "chorale_bf16_sum_ring_2", true, 576, true},
    {"sum_f16", "chorale_f16_sum_packets_2", false, 576, true},
    {"sum_f16", "chorale_f16_sum_lines_2_1", false, 544, true},
    {"sum_f16", "chorale_f16_sum_lines_2_2", false, 544, true},
    {"sum_f16", "chorale_f16_sum_lines_2_4", false, 544, true},
    {"sum_f16", "chorale_f16_sum_ring_2", true, 576, true},
    {"copy", "chorale_copy_packets_2", false, 576, true},
    {"copy", "chorale_copy_packets_n", false},
    {"copy", "chorale_copy_lines_1", false},
    {"copy", "chorale_copy_lines_4", false},
    {"copy", "chorale_copy_ring", true},
    {"copy", "chorale_copy_mixed", true},
    // of each type: packets, ring, lines one ahead, lines two ahead unless its elements have 8 bits
    {"fold_i8", "chorale_i8_packets", false},
    {"fold_i8", "chorale_i8_ring", true, 512},
    {"fold_i8", "chorale_i8_lines_1", false},
    {"fold_i32", "chorale_i32_packets", false},
    {"fold_i32", "chorale_i32_ring", true, 512},
    {"fold_i32", "chorale_i32_lines_1", false},
    {"fold_i32", "chorale_i32_lines_2", false},
    {"fold_i64", "chorale_i64_packets", false},
    {"fold_i64", "chorale_i64_ring", true, 512},
    {"fold_i64", "chorale_i64_lines_1", false},
    {"fold_i64", "chorale_i64_lines_2", false},
    {"fold_f16", "chorale_f16_packets", false},
    {"fold_f16", "chorale_f16_ring", true, 512},
    {"fold_f16", "chorale_f16_lines_1", false},
    {"fold_f16", "chorale_f16_lines_2", false},
    {"fold_bf16", "chorale_bf16_packets", false},
    {"fold_bf16", "chorale_bf16_ring", true, 512},
    {"fold_bf16", "chorale_bf16_lines_1", false},
    {"fold_bf16", "chorale_bf16_lines_2", false},
    {"fold_f32", "chorale_f32_packets", false},
    {"fold_f32", "chorale_f32_ring", true, 512},
    {"fold_f32", "chorale_f32_lines_1", false},
    {"fold_f32", "chorale_f32_lines_2", false},
    {"fold_f64", "chorale_f64_packets", false},
    {"fold_f64", "chorale_f64_ring", true, 512},
    {"fold_f64", "chorale_f64_lines_1", false},
    {"fold_f64", "chorale_f64_lines_2", false},
    {"fold_f8e4m3", "chorale_f8e4m3_packets", false},
    {"fold_f8e4m3", "chorale_f8e4m3_ring", true, 512},
    {"fold_f8e4m3", "chorale_f8e4m3_lines_1", false},
    {"fold_f8e5m2", "chorale_f8e5m2_packets", false},
    {"fold_f8e5m2", "chorale_f8e5m2_ring", true, 512},
    {"fold_f8e5m2", "chorale_f8e5m2_lines_1", false},
}};

constexpr std::size_t number_of(std::string_view name) {
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (name == entries[i].name) return i;
  throw "no kernel of this name";  // at compile time
}

/// The type's first kernel.
constexpr std::size_t fold_kernels_of(dtype type) noexcept {
  switch (type) {
    case dtype::i8:
    case dtype::u8:
      return number_of("chorale_i8_packets");
    case dtype::i32:
    case dtype::u32:
      return number_of("chorale_i32_packets");
    case dtype::i64:
    case dtype::u64:
      return number_of("chorale_i64_packets");
    case dtype::f16:
      return number_of("chorale_f16_packets");
    case dtype::bf16:
      return number_of("chorale_bf16_packets");
    case dtype::f64:
      return number_of("chorale_f64_packets");
    case dtype::f8e4m3:
      return number_of("chorale_f8e4m3_packets");
    case dtype::f8e5m2:
      return number_of("chorale_f8e5m2_packets");
    case dtype::f32:
    case dtype::none:
      break;
  }
  return number_of("chorale_f32_packets");
}

/// The first of the kernels that only sum this type between two ranks; kernel_count if there are none.
constexpr std::size_t sum_kernels_of(dtype type) noexcept {
  switch (type) {
    case dtype::f32:
      return number_of("chorale_f32_sum_packets_2");
    case dtype::bf16:
      return number_of("chorale_bf16_sum_packets_2");
    case dtype::f16:
      return number_of("chorale_f16_sum_packets_2");
    default:
      return kernel_count;
  }
}

std::size_t sum_by(const kernels::exchange_plan& plan, std::size_t first) noexcept {
  switch (plan.way) {
    case algorithm::packets:
      return first;
    case algorithm::lines:
      return plan.lines_ahead == 4 ? first + 3 : plan.lines_ahead == 2 ? first + 2 : first + 1;
    case algorithm::ring:
      break;
  }
  return first + 4;
}

}  // namespace

std::span<const kernel_entry> all_kernels() noexcept { return entries; }

std::size_t kernel_for(const kernel_choice& c) noexcept {
  if (!c.folds) {
    switch (c.plan.way) {
      case algorithm::packets:
        return c.ranks == 2 ? number_of("chorale_copy_packets_2") : number_of("chorale_copy_packets_n");
      case algorithm::lines:
        return c.plan.lines_ahead > 1 ? number_of("chorale_copy_lines_4") : number_of("chorale_copy_lines_1");
      case algorithm::ring:
        break;
    }
    return number_of("chorale_copy_ring");
  }
  if (c.op == reduction::sum && c.ranks == 2)
    if (const std::size_t first = sum_kernels_of(c.type); first != kernel_count) return sum_by(c.plan, first);
  const std::size_t first = fold_kernels_of(c.type);
  if (c.plan.way == algorithm::packets) return first;
  if (c.plan.way == algorithm::ring) return first + 1;
  return c.plan.lines_ahead > 1 && size_of(c.type) > 1 ? first + 3 : first + 2;
}

std::size_t mixed_kernel() noexcept { return number_of("chorale_copy_mixed"); }

}  // namespace chorale::cuda
