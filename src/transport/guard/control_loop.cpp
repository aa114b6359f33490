#include <chorale/transport/guard/control_loop.hpp>
#include <chorale/transport/guard/doorbell.hpp>
#include <chorale/transport/guard/priority.hpp>

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>

namespace chorale::guarding {
namespace {

constexpr std::uint64_t stop_number = 0;  // links count from 1

epoll_event interest(const control_link& link) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | (link.waits_to_write() ? EPOLLOUT : 0U);
  event.data.u64 = link.id();
  return event;
}

}  // namespace

control_loop::control_loop(std::function<void(std::uint64_t)> handler)
    : handler_{std::move(handler)},
      epoll_{::epoll_create1(EPOLL_CLOEXEC)},
      stop_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)} {
  if (!epoll_ || !stop_) throw failure{error::from_os(errno, "descriptors for the guard's control thread")};
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = stop_number;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stop_.get(), &event) != 0)
    throw failure{error::from_os(errno, "epoll_ctl for the guard's control thread")};
  thread_.start("chorale-control", [this] { run(); });
}

control_loop::~control_loop() {
  if (!thread_.running()) return;
  signal_event(stop_.get());
  thread_.join();
}

void control_loop::add(const control_link& link) {
  epoll_event event = interest(link);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, link.socket(), &event) != 0)
    throw failure{error::from_os(errno, "watching a control link", link.rank())};
}

void control_loop::update(const control_link& link) noexcept {
  epoll_event event = interest(link);
  if (link.socket() >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, link.socket(), &event);
}

void control_loop::remove(const control_link& link) noexcept {
  if (link.socket() >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link.socket(), nullptr);
}

void control_loop::run() {
  prefer_this_thread();
  std::array<epoll_event, 64> events;
  for (;;) {
    const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < ready; ++i) {
      const auto number = events[static_cast<std::size_t>(i)].data.u64;
      if (number == stop_number) return;
      handler_(number);
    }
  }
}

}  // namespace chorale::guarding
