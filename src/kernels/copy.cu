// Entry points of the copying kernels, which know no element type: one per way, and one for messages to
// several peers that are served in different ways.
#include <chorale/kernels/exchange_lines.cuh>
#include <chorale/kernels/push_bulk.cuh>

namespace ck = chorale::kernels;

extern "C" {

__global__ void __launch_bounds__(576, 1) chorale_copy_packets_2(const __grid_constant__ ck::pair_args args) {
  __shared__ ck::cta_shared shared;
  ck::pair_machine m{shared};
  ck::exchange_packets<ck::no_fold>(m, ck::of_pair(args));
}
__global__ void __launch_bounds__(576, 1)
    chorale_copy_packets_n(const __grid_constant__ ck::exchange_args args) {
  __shared__ ck::cta_shared shared;
  ck::gpu_machine m{shared};
  ck::exchange_packets<ck::no_fold>(m, args);
}
__global__ void __launch_bounds__(544, 1)
    chorale_copy_lines_1(const __grid_constant__ ck::exchange_args args) {
  __shared__ ck::cta_shared shared;
  ck::gpu_machine m{shared};
  ck::exchange_lines<1, ck::no_fold>(m, args);
}
__global__ void __launch_bounds__(544, 1)
    chorale_copy_lines_4(const __grid_constant__ ck::exchange_args args) {
  __shared__ ck::cta_shared shared;
  ck::gpu_machine m{shared};
  ck::exchange_lines<4, ck::no_fold>(m, args);
}
__global__ void __launch_bounds__(576, 1) chorale_copy_ring(const __grid_constant__ ck::exchange_args args) {
  __shared__ ck::cta_shared shared;
  ck::gpu_machine m{shared};
  ck::exchange_ring<ck::no_fold>(m, args);
}
/// First what goes by packets, then by lines, then by the ring: in this order on every rank. What peers wait
/// for in one of them is on its way before this rank waits for anything in it.
__global__ void __launch_bounds__(576, 1) chorale_copy_mixed(const __grid_constant__ ck::exchange_args args) {
  __shared__ ck::cta_shared shared;
  ck::gpu_machine m{shared};
  ck::operation<ck::gpu_machine> op{m, args};
  ck::ring_exchange<ck::no_fold, ck::gpu_machine> ring{m, op, args};
  ring.prepare();
  bool ok = op.begin();
  if (ok) {
    op.send_signature();
    ck::packet_exchange<ck::gpu_machine, ck::no_fold> packets{m, op, args};
    packets.load_first();
    packets.push();
    ok = !m.sync_or(!packets.take());
    if (ok) ok = !m.sync_or(!ck::line_exchange<2, ck::no_fold, ck::gpu_machine>{m, op, args}.run());
    if (ok) ok = ring.run();  // the own part as well
  }
  ring.keep();
  op.end(ok);
}

}  // extern "C"
