// Reductions of host memory with what every processor has: registers of 16 bytes, or what stands in for them.
#include <chorale/kernels/host_loops.hpp>

namespace chorale::detail {
namespace {
struct portable_registers : vector_registers<16> {};
}  // namespace

constinit const host_kernel_table portable_host_kernels = make_host_kernels<portable_registers>();

}  // namespace chorale::detail
