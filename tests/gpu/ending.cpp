// Two ranks, a GPU each, through the communicator: one is killed while kernels run. The other's await must
// end with errc::peer_lost within 20 ms, its context must stay usable, and after reset() and use_gpu() a
// thousand operations must be right. Started as
//   chorale run -n 2 --on-loss continue -- gpu_ending
// Exits with 77 and a reason where there are fewer than two GPUs.
#include "two_gpus.hpp"
#include <chorale/chorale.hpp>

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

namespace ch = chorale;
using ch::gpu_test::device;
using ch::gpu_test::device_floats;
using ch::gpu_test::driver;
using ch::gpu_test::work_stream;

namespace {

constexpr std::size_t count = (16u << 20) / sizeof(float);
constexpr auto limit = std::chrono::milliseconds{20};

/// Ends another process at a random moment soon, and says when.
class killer {
 public:
  explicit killer(pid_t victim)
      : thread_{[this, victim] {
          std::mt19937 random{std::random_device{}()};
          std::this_thread::sleep_for(std::chrono::milliseconds{30 + random() % 40});
          at_ = ch::steady_now();
          ::kill(victim, SIGKILL);
        }} {}
  ~killer() { thread_.join(); }
  [[nodiscard]] ch::time_point at() const { return at_; }

 private:
  std::atomic<ch::time_point> at_{ch::time_point{}};
  std::thread thread_;
};

ch::task<ch::error> reduce_until_it_fails(ch::communicator& comm, const device_floats& data,
                                          const work_stream& on) {
  ch::error why;
  while (!why) {
    try {
      co_await comm.all_reduce(ch::device_span{data.data(), count}, ch::sum, ch::on{on.get()});
    } catch (const ch::failure& f) {
      why = f.why();
    }
  }
  co_return why;
}

ch::task<bool> thousand_right(ch::communicator& comm, const device_floats& data, const work_stream& on) {
  std::vector<float> host(1000);
  for (int i = 0; i < 1000; ++i) {
    for (std::size_t k = 0; k < host.size(); ++k)
      host[k] = static_cast<float>((k + static_cast<std::size_t>(i)) % 97);
    data.write(0, host.data(), host.size(), on);
    co_await comm.all_reduce(ch::device_span{data.data(), host.size()}, ch::sum, ch::on{on.get()});
    std::vector<float> back(host.size());
    data.read(0, back.data(), back.size(), on);
    for (std::size_t k = 0; k < host.size(); ++k)
      if (back[k] != host[k] * static_cast<float>(comm.size())) co_return false;
  }
  co_return true;
}

ch::task<int> work() {
  auto comm = co_await ch::communicator::join();
  const int ordinal = comm.launched_as();
  co_await comm.use_gpu(ordinal);
  const device here{ordinal};
  const work_stream on;
  const device_floats data{count};
  data.fill_bytes(0, on);
  ch::task<bool> before = thousand_right(comm, data, on);
  const bool good = co_await std::move(before);
  std::int32_t pid = ::getpid();
  if (comm.rank() == 1) {
    co_await comm.send(std::span{&pid, 1}, 0);
    ch::task<ch::error> until_killed = reduce_until_it_fails(comm, data, on);
    const ch::error why = co_await std::move(until_killed);
    std::fprintf(stderr, "the victim outlived itself: %s\n", why.message().c_str());
    co_return 1;
  }
  co_await comm.recv(std::span{&pid, 1}, 1);
  ch::error why;
  double ms = 0;
  {
    const killer hand{pid};
    ch::task<ch::error> failing = reduce_until_it_fails(comm, data, on);
    why = co_await std::move(failing);
    ms = std::chrono::duration<double, std::milli>(ch::steady_now() - hand.at()).count();
  }
  std::printf("after %.2f ms: %s\n", ms, why.message().c_str());
  // An operation may have ended well just before: then it is the next call that is refused, naming the same
  // rank.
  const ch::error& cause = comm.cause();
  const bool named = cause == ch::errc::peer_lost && cause.culprit() == 1 && why.culprit() == 1 &&
                     (why == ch::errc::peer_lost || why == ch::errc::revoked);
  co_await comm.reset();
  co_await comm.use_gpu(ordinal);
  ch::task<bool> after = thousand_right(comm, data, on);
  const bool well = co_await std::move(after);
  std::printf("before: %s; named: %s; in time: %s; a thousand after reset on %d rank(s): %s\n",
              good ? "right" : "WRONG", named ? "yes" : "NO", ms <= 20 ? "yes" : "NO", comm.size(),
              well ? "right" : "WRONG");
  co_return good&& named&& well&& std::chrono::duration<double, std::milli>{ms} <= limit ? 0 : 1;
}

}  // namespace

int main() { return ch::gpu_test::run_with_two_gpus("gpu_ending", work); }
