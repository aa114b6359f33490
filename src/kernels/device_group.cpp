#include <chorale/kernels/device_group.hpp>

#include <atomic>
#include <cassert>
#include <cstddef>
#include <string>
#include <thread>

namespace chorale::cuda {
namespace {

std::uint64_t read(const std::uint64_t& pinned) noexcept {
  return std::atomic_ref{const_cast<std::uint64_t&>(pinned)}.load(std::memory_order_acquire);
}

}  // namespace

result<void> device_group::check_usable() const {
  if (read(mailbox_->abort) == 0 && read(mailbox_->status) == 0) return {};
  const std::uint64_t word = read(mailbox_->status) != 0 ? read(mailbox_->status) : read(mailbox_->abort);
  const error first = to_error(word);
  return error{
      errc::revoked,
      "this device group ended with " + std::string{name_of(first.code())} + ": make a new one (reset)",
      first.culprit()};
}

result<bool> device_group::follow_stream(stream on) {
  const cuda_driver& d = *driver_;
  int state = capture_none;
  if (auto r = check(d, d.stream_capture_info(on, &state, nullptr, nullptr, nullptr, nullptr),
                     "cuStreamGetCaptureInfo", config_.device);
      !r)
    return std::move(r).error();
  if (state == capture_active) return true;
  if (state != capture_none)
    return error{errc::invalid_state, "the stream's capture was invalidated: end it and capture again"};
  if (launched_ && on != last_stream_) {
    if (!several_streams_) {
      several_streams_ = true;
      if (auto r = check(d, d.event_record(order_, last_stream_), "cuEventRecord on the stream used before",
                         config_.device);
          !r)
        return std::move(r).error();
    }
    if (auto r = check(d, d.stream_wait_event(on, order_, 0), "cuStreamWaitEvent", config_.device); !r)
      return std::move(r).error();
  }
  return false;
}

result<completion> device_group::exchange(const exchange_call& call, stream on, notify whom) {
  return launch(call, nullptr, on, whom);
}
result<completion> device_group::exchange(const result<exchange_call>& call, stream on, notify whom) {
  if (!call) return call.error();
  return launch(*call, nullptr, on, whom);
}
result<completion> device_group::exchange_as(const kernels::exchange_plan& plan, const exchange_call& call,
                                             stream on, notify whom) {
  return launch(call, &plan, on, whom);
}
result<completion> device_group::all_reduce(const float* in, float* out, std::uint64_t count, stream on,
                                            notify whom) {
  return launch(all_reduce_call(place(), in, out, count, {}), nullptr, on, whom);
}
result<completion> device_group::exchange_messages(std::span<const message> messages, stream on,
                                                   notify whom) {
  return exchange(messages_call(place(), messages), on, whom);
}
result<completion> device_group::barrier(stream on, notify whom) {
  return launch(barrier_call(place()), nullptr, on, whom);
}

result<completion> device_group::launch(const exchange_call& call, const kernels::exchange_plan* planned,
                                        stream on, notify whom) {
  if (auto usable = check_usable(); !usable) return std::move(usable).error();
  if (auto right = check_exchange(call, place()); !right) return std::move(right).error();
  const cuda_driver& d = *driver_;
  const current_context current{d, context_};
  if (auto r = check(d, current.code(), "cuCtxPushCurrent", config_.device); !r) return std::move(r).error();
  auto capturing = follow_stream(on);
  if (!capturing) return std::move(capturing).error();

  launch_arguments made = arguments_of(call, planned, memory_, limits_);
  kernels::exchange_args& args = made.args;
  args.launch = *capturing ? 0 : launches_ + 1;
  args.tells_host = whom == notify::host && !*capturing;
  args.bulk_stores_land = bulk_stores_land_;

  launch_config config{};
  config.grid_x = made.ctas;
  config.grid_y = config.grid_z = config.block_y = config.block_z = 1;
  config.block_x = made.threads;
  config.shared_bytes = all_kernels()[made.kernel].has_ring ? kernels::ring_shared_bytes : 0;
  config.on = on;
  void* parameters[] = {&args};
  if (auto r = check(d, d.launch_kernel(&config, kernels_[made.kernel], parameters, nullptr),
                     "cuLaunchKernelEx", config_.device);
      !r)
    return std::move(r).error();
  if (*capturing) {
    captured_ = true;
    return completion{};
  }
  ++launches_;
  ctas_launched_ += made.ctas;
  launched_ = true;
  last_stream_ = on;
  if (several_streams_)
    if (auto r = check(d, d.event_record(order_, on), "cuEventRecord", config_.device); !r)
      return std::move(r).error();
  if (whom == notify::nobody) return completion{};
  return completion{launches_, &mailbox_->done, mailbox_on_device_ + offsetof(kernels::host_mailbox, done)};
}

void device_group::abort(errc cause, rank_t culprit) noexcept {
  const std::uint64_t word = kernels::pack(
      {config_.generation, static_cast<std::uint16_t>(cause), static_cast<std::int16_t>(culprit)});
  std::uint64_t none = 0;
  std::atomic_ref{mailbox_->abort}.compare_exchange_strong(none, word, std::memory_order_release);
}

bool device_group::is_done(const completion& c) const noexcept { return read(mailbox_->done) >= c.sequence; }

error device_group::to_error(std::uint64_t word) const {
  const kernels::verdict v = kernels::unpack(word);
  return error{static_cast<errc>(v.cause),
               "GPU " + std::to_string(config_.device) + " collective of rank " +
                   std::to_string(config_.rank) + " of " + std::to_string(config_.size),
               v.culprit};
}

result<void> device_group::outcome(const completion& c) const {
  if (!is_done(c))
    return error{errc::invalid_state, "asked how a GPU operation ended before it had: wait for its flag"};
  const std::uint64_t from = read(mailbox_->failed_from);
  if (from == 0 || c.sequence < from) return {};
  error why = to_error(read(mailbox_->status));
  why.with_ticket(c.sequence);
  return why;
}

result<void> device_group::status() const {
  const std::uint64_t word = read(mailbox_->status);
  if (word == 0) return {};
  return to_error(word);
}

/// What may still run. Unless all launches are known to have ended, sets the device's stop word and waits
/// until no CTA is between its start and its end: kernels that start later see it first and touch only the
/// block, the mailbox and their own output.
device_group::activity device_group::settle() noexcept {
  if (mailbox_ == nullptr || block_ == 0) return activity::none;
  if (!captured_ && read(mailbox_->done) == launches_) return activity::none;
  const cuda_driver& d = *driver_;
  constexpr auto entered_at = offsetof(kernels::device_block, entered);
  static_assert(offsetof(kernels::device_block, arrived) == entered_at + 4);
  abort(errc::peer_left, config_.rank);
  // both copies are between pinned memory and the device, on a stream of our own: no kernel holds them up
  if (d.copy_to_device_async(block_ + offsetof(kernels::device_block, stop), &mailbox_->abort, 8,
                             private_stream_) != success)
    return activity::running;
  auto* counts = reinterpret_cast<std::uint32_t*>(&mailbox_->staging);
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds{2};
  for (int quiet = 0; quiet < 3;) {
    if (d.copy_to_host_async(counts, block_ + entered_at, 8, private_stream_) != success ||
        d.stream_synchronize(private_stream_) != success || std::chrono::steady_clock::now() > give_up)
      return activity::running;
    quiet = counts[0] == counts[1] ? quiet + 1 : 0;
    std::this_thread::yield();
  }
  return captured_ || counts[1] != ctas_launched_ ? activity::queued_or_captured : activity::none;
}

device_group::~device_group() {
  if (!has_context_) return;
  const cuda_driver& d = *driver_;
  {
    const current_context current{d, context_};
    const relaxed_capture relaxed{d};
    const activity left = settle();
    if (left == activity::running) {
      // A kernel that cannot be stopped still uses them: they stay until the process ends.
      for (mapped_memory& kept : regions_) static_cast<void>(new mapped_memory{std::move(kept)});
    }
    regions_.clear();
    if (order_ != nullptr) d.event_destroy(order_);
    if (private_stream_ != nullptr) d.stream_destroy(private_stream_);
    if (left != activity::none)
      return;  // block, mailbox, code and the context's reference stay for late replays
    if (block_ != 0) d.memory_free(block_);
    if (mailbox_ != nullptr) d.host_free(mailbox_);
    for (module m : modules_) d.module_unload(m);
  }
  d.primary_context_release(device_);
}

}  // namespace chorale::cuda
