#include <chorale/async/error.hpp>
#include <chorale/transport/guard/plain_thread.hpp>

#include <cassert>
#include <csignal>
#include <memory>
#include <string>

namespace chorale::guarding {
namespace {

void* run(void* argument) {
  const std::unique_ptr<std::function<void()>> body{static_cast<std::function<void()>*>(argument)};
  (*body)();
  return nullptr;
}

sigset_t all_but_faults() {
  sigset_t set;
  sigfillset(&set);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP}) sigdelset(&set, fault);
  return set;
}

}  // namespace

plain_thread::~plain_thread() { assert(!running_ && "a guard thread was not joined"); }

void plain_thread::start(const char* name, std::function<void()> body) {
  auto argument = std::make_unique<std::function<void()>>(std::move(body));
  const sigset_t blocked = all_but_faults();
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  const int failed = pthread_create(&thread_, nullptr, run, argument.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failed != 0) throw failure{error::from_os(failed, std::string{"starting the thread "} + name)};
  static_cast<void>(argument.release());  // the thread owns it now
  pthread_setname_np(thread_, name);
  running_ = true;
}

void plain_thread::join() noexcept {
  if (running_) pthread_join(thread_, nullptr);
  running_ = false;
}

}  // namespace chorale::guarding
