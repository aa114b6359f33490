// Reductions of host memory with AVX-512: registers of 64 bytes.
#include <chorale/kernels/host_loops.hpp>

namespace chorale::detail {
namespace {
struct avx512_registers : vector_registers<64> {};
}  // namespace

constinit const host_kernel_table avx512_host_kernels = make_host_kernels<avx512_registers>();

}  // namespace chorale::detail
