// The GPU side of a communicator: one per communicator and process, one GPU per process, all on one host.
//
// Owns everything that kernels touch besides user buffers: the region that peers write into, the mappings of
// theirs, the device block, the pinned mailbox, the loaded kernels. All of it is allocated, mapped and proved
// with data by `create`, which is collective and blocks; a launch allocates nothing and takes no lock.
//
// Threads: launches come from one thread at a time. `abort`, `outcome`, `is_done` and `status` may be called
// from any thread at any time; they touch pinned host memory only and make no CUDA call.
//
// Order: operations of a group run one after the other on the GPU, in the order of the calls, which must be
// the same on every rank. On a change of stream an event chains them. Captured operations must all be
// captured from one stream, and the caller orders the graph's launches among themselves and against plain
// launches (one stream does), in the same order on every rank.
//
// Failure: the first verdict (mismatch, or the cause given to `abort`) ends the running operation and every
// later one: output filled with NaN, sticky status. The group stays revoked; make a new one. Destroying a
// group whose operations were captured is safe while the graph lives on: the block, the mailbox and the code,
// some 200 KiB, then stay until the process ends, and a late replay fills its output with NaN and ends at
// once.
#pragma once

#include <chorale/driver/cuda.hpp>
#include <chorale/kernels/exchange_call.hpp>
#include <chorale/kernels/launch_arguments.hpp>
#include <chorale/kernels/peer_memory.hpp>
#include <chorale/kernels/plan.hpp>
#include <chorale/kernels/rank_exchange.hpp>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

namespace chorale::cuda {

struct device_group_config {
  rank_t rank = 0;
  int size = 1;
  int device = 0;                ///< ordinal, as this process sees it
  std::uint32_t generation = 1;  ///< the communicator's epoch; never 0, the same on all ranks
  std::uint32_t max_ctas = 64;   ///< most CTAs of one launch, at most 64
  std::size_t scratch_bytes = std::size_t{64} << 20;
  std::chrono::milliseconds proof_timeout{10'000};
  std::uint64_t first_counter = 0;  ///< where the operation counter starts; tests begin just below 2^32
  /// Largest messages sent as packets and as lines; absent: as measured on sm_90 over NVLink.
  std::optional<std::uint32_t> packet_bytes;
  std::optional<std::uint32_t> line_bytes;
  bool ranks_share_gpu = false;  ///< for tests: ranks spin on one GPU, in turns of the driver's time slices
  const cuda_driver* driver = nullptr;  ///< a table of the caller's, for tests; null: the machine's
};

/// A plain launch, to be awaited: it has ended when `*flag >= sequence`. Captured launches have sequence 0
/// and cannot be awaited; await the stream that runs the graph.
struct completion {
  std::uint64_t sequence = 0;
  const std::uint64_t* flag = nullptr;  ///< pinned host memory
  device_pointer device_flag = 0;       ///< the same word as streams see it
};

/// Whether a plain launch writes its completion flag: about a microsecond of the kernel's time. Without, wait
/// for the stream; failures show in `status` all the same.
enum class notify { host, nobody };

class device_group {
 public:
  /// Collective over `ranks`; every rank returns success or every rank an error that names the rank and the
  /// reason. errc::unsupported: no driver, no kernels in this build, no peer access, two ranks on one GPU.
  static result<std::unique_ptr<device_group>> create(const device_group_config& config,
                                                      rank_exchange& ranks);

  device_group(const device_group&) = delete;
  device_group& operator=(const device_group&) = delete;
  /// Local. Stops what may still run and frees what no kernel can reach any more.
  ~device_group();

  /// Enqueues `call` (exchange_call.hpp) on `on`; no allocation, no wait. errc::invalid_argument: null or
  /// misaligned buffers, overlap other than the collective's in-place form (a rank's own part where it lies
  /// in the whole; all_reduce in one buffer). errc::unsupported: the type has no such operation.
  /// errc::revoked after a failure. An operation uses the edges to its `peers` only: ranks that are not among
  /// them need not call, and the calls of two ranks must match in order as far as they concern both.
  result<completion> exchange(const exchange_call& call, stream on, notify whom = notify::host);
  /// The same for the outcome of describing one.
  result<completion> exchange(const result<exchange_call>& call, stream on, notify whom = notify::host);

  /// The f32 sum of `count` elements.
  result<completion> all_reduce(const float* in, float* out, std::uint64_t count, stream on,
                                notify whom = notify::host);
  /// Sends and receives, all under way together: at most one per peer and direction.
  result<completion> exchange_messages(std::span<const message> messages, stream on,
                                       notify whom = notify::host);
  /// Ends on the device when it has begun on every rank's.
  result<completion> barrier(stream on, notify whom = notify::host);

  /// Who calls, for describing calls.
  [[nodiscard]] place_in_group place() const noexcept { return {config_.rank, config_.size}; }

  /// Ends running and future operations within about 100 µs of their next wait. The first cause wins.
  void abort(errc cause, rank_t culprit) noexcept;

  [[nodiscard]] bool is_done(const completion& c) const noexcept;
  /// How a finished launch ended.
  [[nodiscard]] result<void> outcome(const completion& c) const;
  /// The sticky status: an error once any operation, captured ones included, ended badly.
  [[nodiscard]] result<void> status() const;

  [[nodiscard]] const kernels::group_limits& limits() const noexcept { return limits_; }
  [[nodiscard]] const device_group_config& config() const noexcept { return config_; }
  [[nodiscard]] const cuda_driver& driver() const noexcept { return *driver_; }
  [[nodiscard]] context device_context() const noexcept { return context_; }
  /// For tests and benchmarks: launches `plan` instead of the one that the limits give. The same on all
  /// ranks; not for messages and all_to_all_v.
  result<completion> exchange_as(const kernels::exchange_plan& plan, const exchange_call& call, stream on,
                                 notify whom = notify::host);

 private:
  friend class group_setup;

  device_group() = default;
  result<void> check_usable() const;
  result<completion> launch(const exchange_call& call, const kernels::exchange_plan* planned, stream on,
                            notify whom);
  result<bool> follow_stream(stream on);  // whether the stream is being captured
  [[nodiscard]] error to_error(std::uint64_t word) const;
  enum class activity { none, queued_or_captured, running };
  [[nodiscard]] activity settle() noexcept;

  device_group_config config_;
  const cuda_driver* driver_ = nullptr;
  device_id device_ = -1;
  context context_ = nullptr;
  bool has_context_ = false;
  std::vector<module> modules_;
  std::array<function, kernel_count> kernels_{};
  kernels::group_limits limits_;
  bool bulk_stores_land_ = false;  ///< see push_bulk.cuh
  group_memory memory_;
  stream private_stream_ = nullptr;
  std::vector<mapped_memory> regions_;  // by rank, the own one included
  device_pointer block_ = 0;
  kernels::host_mailbox* mailbox_ = nullptr;
  device_pointer mailbox_on_device_ = 0;

  // the launching thread's
  std::uint64_t launches_ = 0;
  std::uint32_t ctas_launched_ = 0;  ///< by plain launches, modulo 2^32
  event order_ = nullptr;
  stream last_stream_ = nullptr;
  bool launched_ = false;
  bool several_streams_ = false;
  bool captured_ = false;
};

}  // namespace chorale::cuda
