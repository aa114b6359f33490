#include <chorale/collective/gpu_side.hpp>
#include <chorale/collective/mate_exchange.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cassert>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

namespace chorale {
namespace {

constexpr std::chrono::seconds creation_timeout{60};
constexpr unsigned non_blocking_stream = 1;
constexpr unsigned wait_until_at_least = 0;  // CU_STREAM_WAIT_VALUE_GEQ
constexpr int relaxed_capture = 2;           // CU_STREAM_CAPTURE_MODE_RELAXED

/// CHORALE_MAX_CTAS; 0, which all ranks then learn of, for what is no number.
std::uint32_t ctas_from_environment(std::uint32_t otherwise) {
  const char* text = std::getenv("CHORALE_MAX_CTAS");
  if (!text) return otherwise;
  std::uint32_t ctas = 0;
  const std::string_view whole{text};
  const auto [end, fault] = std::from_chars(whole.data(), whole.data() + whole.size(), ctas);
  return fault == std::errc{} && end == whole.data() + whole.size() ? ctas : 0;
}

/// Blocking work on a thread of its own, awaited: the engine goes on meanwhile.
class group_maker : public suspension, private operation {
 public:
  group_maker(const world& members, int ordinal)
      : suspension{on_stop}, operation{ended}, members_{members}, ordinal_{ordinal} {}
  ~group_maker() {
    if (thread_.joinable()) thread_.join();
  }

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  template <environment_promise Promise>
  bool await_suspend(std::coroutine_handle<Promise> waiting) {
    if (!suspend(waiting, waiting.promise().env())) return false;
    engine& home = loop();
    thread_ = std::thread{[this, &home] {
      make();
      home.post(*this);
    }};
    return true;
  }
  [[nodiscard]] result<std::unique_ptr<cuda::device_group>> await_resume() {
    if (!made_) return error{stop_reason(), "a device group"};
    return std::move(*made_);
  }

 private:
  void make() {
    cuda::device_group_config config;
    config.rank = members_.rank;
    config.size = members_.size;
    config.device = ordinal_;
    config.max_ctas = ctas_from_environment(config.max_ctas);
    config.generation = static_cast<std::uint32_t>(members_.epoch % 0xffffffffu) + 1;
    mate_exchange among{members_, std::chrono::steady_clock::now() + creation_timeout};
    made_.emplace(cuda::device_group::create(config, among));
  }
  static void ended(operation& op) noexcept { static_cast<group_maker&>(op).finish(); }
  static void on_stop(suspension&) noexcept {}  // collective: it ends by its own deadline, on every rank

  const world& members_;
  int ordinal_;
  std::thread thread_;
  std::optional<result<std::unique_ptr<cuda::device_group>>> made_;
};

}  // namespace

task<result<std::unique_ptr<gpu_side>>> gpu_side::create(const world& members, int ordinal) {
  const environment& here = co_await this_environment{};
  for (const peer& p : members.peers)
    if (!p.host_mate)
      co_return error{errc::unsupported,
                      "GPUs of ranks on different hosts are not joined in this version; use ranks of "
                      "one host, or host memory",
                      p.rank};
  auto made = co_await group_maker{members, ordinal};
  if (!made) co_return std::move(made).error();
  co_return std::make_unique<gpu_side>(*here.loop, *std::move(made));
}

gpu_side::gpu_side(engine& loop, std::unique_ptr<cuda::device_group> group)
    : loop_{loop}, group_{std::move(group)} {
  bell_->doorbell.reset(::fcntl(loop_.io().doorbell(), F_DUPFD_CLOEXEC, 0));
  const cuda::cuda_driver& d = group_->driver();
  cuda::context before = nullptr;
  d.context_push(group_->device_context());
  d.stream_create(&alarm_, non_blocking_stream);
  d.context_pop(&before);
  loop_.add(*this);
}

gpu_side::~gpu_side() {
  assert(!first_ && "a device group goes while coroutines wait for it");
  loop_.remove(*this);
  const cuda::cuda_driver& d = group_->driver();
  cuda::context before = nullptr;
  d.context_push(group_->device_context());
  if (alarm_) d.stream_destroy(alarm_);  // returns at once; a set alarm rings a bell that outlives us
  d.context_pop(&before);
}

void gpu_side::wait(waiting& w) noexcept {
  w.next = nullptr;
  (last_ ? last_->next : first_) = &w;
  last_ = &w;
}

std::size_t gpu_side::poll(std::size_t budget) noexcept {
  std::size_t moved = 0;
  for (; first_ && moved < budget && group_->is_done(first_->launch); ++moved) {
    waiting& done = *first_;
    first_ = done.next;
    if (!first_) last_ = nullptr;
    done.ended(done);
  }
  return moved;
}

void gpu_side::ring(void* argument) {
  const std::unique_ptr<std::shared_ptr<bell>> held{static_cast<std::shared_ptr<bell>*>(argument)};
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write((*held)->doorbell.get(), &one, sizeof one);
}

poller::arming gpu_side::arm() noexcept {
  if (!first_) return arming::armed;
  const cuda::completion& next = first_->launch;
  if (group_->is_done(next)) return arming::busy;
  if (armed_for_ >= next.sequence) return arming::armed;
  const cuda::cuda_driver& d = group_->driver();
  auto held = std::make_unique<std::shared_ptr<bell>>(bell_);
  cuda::context before = nullptr;
  int mode = relaxed_capture;
  d.context_push(group_->device_context());
  d.thread_exchange_capture_mode(&mode);
  const bool set =
      alarm_ &&
      d.stream_wait_value64(alarm_, next.device_flag, next.sequence, wait_until_at_least) == cuda::success &&
      d.launch_host_function(alarm_, ring, held.get()) == cuda::success;
  d.thread_exchange_capture_mode(&mode);
  d.context_pop(&before);
  if (!set) return arming::busy;  // no alarm to be had: keep polling rather than sleep through the end
  static_cast<void>(held.release());
  armed_for_ = next.sequence;
  return arming::armed;
}

}  // namespace chorale
