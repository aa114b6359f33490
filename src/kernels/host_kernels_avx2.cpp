// Reductions of host memory with AVX2 and F16C: registers of 32 bytes.
#include <chorale/kernels/host_loops.hpp>

namespace chorale::detail {
namespace {
struct avx2_registers : vector_registers<32> {};
}  // namespace

constinit const host_kernel_table avx2_host_kernels = make_host_kernels<avx2_registers>();

}  // namespace chorale::detail
