#include <chorale/collective/core.hpp>
#include <chorale/collective/device_call.hpp>
#include <chorale/collective/gpu_launch.hpp>
#include <chorale/collective/gpu_side.hpp>

#include <new>

namespace chorale {
namespace {

cuda::completion completion_of(const gpu_launch& l) noexcept { return {l.sequence, l.flag, l.device_flag}; }

}  // namespace

struct gpu_awaiter::link : gpu_side::waiting {
  gpu_awaiter* self = nullptr;
};

gpu_launch launch(gpu_call what) {
  gpu_launch made;
  made.inside = what.inside;
  made.gpu = what.gpu;
  made.expires = what.what.expires;
  if (what.refused) {
    made.refused = std::move(what.refused);
    return made;
  }
  if (const error& cause = what.inside->cause()) {
    made.refused = cause == errc::revoked ? cause : error{errc::revoked, cause.summary(), cause.culprit()};
    return made;
  }
  cuda::device_group& group = what.gpu->group();
  const result<cuda::exchange_call> described = what.batch.empty()
                                                    ? device_exchange(what.what, group.place())
                                                    : device_messages(what.batch, group.place());
  auto launched = group.exchange(described, static_cast<cuda::stream>(what.stream),
                                 what.awaited ? cuda::notify::host : cuda::notify::nobody);
  if (!launched) {
    made.refused = std::move(launched).error();
    return made;
  }
  made.sequence = launched->sequence;
  made.flag = launched->flag;
  made.device_flag = launched->device_flag;
  return made;
}

bool gpu_awaiter::await_ready() const noexcept {
  return launched_.refused || launched_.sequence == 0 ||
         launched_.gpu->group().is_done(completion_of(launched_));
}

bool gpu_awaiter::wait(std::coroutine_handle<> waiting, const environment* env) {
  static_assert(sizeof(link) <= link_bytes);
  if (!suspend(waiting, env, &launched_.inside->loop())) {
    // Stopped before it was awaited: the kernel is told, and its end is awaited all the same, since until
    // then it may write to the caller's memory.
    launched_.inside->revoke_gpu(stop_reason());
    const environment unstoppable{&launched_.inside->loop(), nullptr, never};
    suspend(waiting, &unstoppable);
  }
  auto* node = ::new (static_cast<void*>(link_)) link;
  node->self = this;
  node->launch = completion_of(launched_);
  node->ended = [](gpu_side::waiting& w) noexcept { static_cast<link&>(w).self->finish(); };
  launched_.gpu->wait(*node);
  if (launched_.expires != never) launched_.inside->loop().arm(expiry_, launched_.expires);
  return true;
}

void gpu_awaiter::on_stop(suspension& base) noexcept {
  auto& self = static_cast<gpu_awaiter&>(base);
  self.launched_.inside->revoke_gpu(self.stop_reason());
}

void gpu_awaiter::expiry::fire(operation& op) noexcept {
  static_cast<expiry&>(op).self.launched_.inside->revoke_gpu(errc::timed_out);
}

void gpu_awaiter::await_resume() {
  if (launched_.inside) launched_.inside->loop().disarm(expiry_);
  if (launched_.refused) throw failure{std::move(launched_.refused)};
  if (launched_.sequence == 0)
    throw failure{
        error{errc::invalid_state,
              "a captured operation runs with its graph; await the stream that the graph is launched on"}};
  auto outcome = launched_.gpu->group().outcome(completion_of(launched_));
  if (!outcome) throw failure{std::move(outcome).error()};
}

}  // namespace chorale
