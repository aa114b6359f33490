#include <chorale/transport/guard/doorbell.hpp>
#include <chorale/transport/guard/dying.hpp>
#include <chorale/transport/guard/robust_words.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <mutex>

namespace chorale::guarding {

void announcer::announce(std::int32_t detail) noexcept {
  auto alive = static_cast<std::uint32_t>(member_state::alive);
  const auto dying = static_cast<std::uint32_t>(member_state::dying) | static_cast<std::uint32_t>(detail)
                                                                           << 8;
  if (!own->state.compare_exchange_strong(alive, dying)) return;
  for (const auto& w : watchers) {
    w.word->word.store(owner_died_word);
    futex_wake(w.word->word);
    ring(*w.bell, *w.line, w.bell_fd);
  }
  frame words = last_words;
  words.detail = detail;
  const frame_bytes bytes = encode(words);
  for (auto& l : links) {
    const int socket = l.socket.load();
    // Into the middle of a half-sent frame it would make nonsense of both.
    if (socket >= 0 && l.between_frames.load())
      ::send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

namespace {

/// Grows by blocks and never shrinks: a handler on any thread may be walking it at any time.
struct registry_block {
  std::array<std::atomic<announcer*>, 64> places{};
  std::atomic<registry_block*> next{nullptr};
};
constinit registry_block registry;

void announce_everywhere(std::int32_t detail) noexcept {
  const pid_t here = ::getpid();  // a fork child inherits the handlers, not the right to speak
  for (auto* block = &registry; block != nullptr; block = block->next.load())
    for (auto& place : block->places)
      if (auto* a = place.load(); a != nullptr && a->process == here) a->announce(detail);
}

constexpr std::array fatal{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS};
struct previous_action {
  int signal;
  struct sigaction action;
};
std::array<previous_action, fatal.size()> before{};
std::terminate_handler terminate_before = nullptr;
std::mutex installing;
int installations = 0;

/// A fault that happens again by itself when the handler returns; its core dump then shows the true cause.
bool repeats_by_itself(int signal, const siginfo_t* info) noexcept {
  return info->si_code > 0 && signal != SIGABRT && signal != SIGSYS;
}

void on_fatal_signal(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  const auto* previous = before.data();
  while (previous->signal != signal) ++previous;
  const auto& action = previous->action;
  const bool has_function = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
  if (!has_function && action.sa_handler == SIG_IGN && !repeats_by_itself(signal, info)) {
    errno = saved;
    return;  // sent by somebody, and ignored before we came: nobody dies of it
  }
  announce_everywhere(signal);
  errno = saved;
  if (has_function && (action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal, info, context);
  } else if (has_function) {
    action.sa_handler(signal);
  } else {
    struct sigaction standard{};
    standard.sa_handler = SIG_DFL;
    ::sigaction(signal, &standard, nullptr);
    if (!repeats_by_itself(signal, info)) ::raise(signal);  // comes when the handler has returned
  }
}

[[noreturn]] void on_terminate() {
  announce_everywhere(death_by_terminate);
  if (terminate_before != nullptr) terminate_before();
  std::abort();
}

bool is_ours(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_fatal_signal;
}

}  // namespace

announcement::announcement(announcer& a) : place_{nullptr} {
  for (auto* block = &registry;; block = block->next.load()) {
    for (auto& place : block->places) {
      announcer* empty = nullptr;
      if (place.compare_exchange_strong(empty, &a)) {
        place_ = &place;
        return;
      }
    }
    if (block->next.load() == nullptr) {
      auto* fresh = new registry_block;  // reachable for ever, on purpose
      registry_block* none = nullptr;
      if (!block->next.compare_exchange_strong(none, fresh)) delete fresh;
    }
  }
}

announcement::~announcement() { place_->store(nullptr); }

fatal_signal_handlers::fatal_signal_handlers() {
  const std::lock_guard lock{installing};
  if (installations++ != 0) return;
  for (std::size_t i = 0; i < fatal.size(); ++i) {
    struct sigaction current{};
    ::sigaction(fatal[i], nullptr, &current);
    if (is_ours(current)) continue;  // inherited over fork, with what was before it
    before[i] = {fatal[i], current};
    struct sigaction ours{};
    ours.sa_sigaction = on_fatal_signal;
    ours.sa_mask = current.sa_mask;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (current.sa_flags & SA_NODEFER);
    ::sigaction(fatal[i], &ours, nullptr);
  }
  if (std::get_terminate() != on_terminate) terminate_before = std::set_terminate(on_terminate);
}

fatal_signal_handlers::~fatal_signal_handlers() {
  const std::lock_guard lock{installing};
  if (--installations != 0) return;
  for (const auto& [signal, action] : before) {
    struct sigaction current{};
    ::sigaction(signal, nullptr, &current);
    if (is_ours(current)) ::sigaction(signal, &action, nullptr);
  }
  if (std::get_terminate() == on_terminate) std::set_terminate(terminate_before);
}

}  // namespace chorale::guarding
