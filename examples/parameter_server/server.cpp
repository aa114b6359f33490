#include "server.hpp"

#include <fmt/format.h>

#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

namespace parameter_server {
namespace {

/// A worker that waits for a newer version.
struct waiting_pull {
  chorale::peer_request request;
  std::uint64_t newer_than;
};

class service {
 public:
  service(server_options options, std::span<const float> all, const chorale::environment& here)
      : options_{std::move(options)},
        part_{part_of(all.size(), options_.number, options_.servers)},
        total_{all.size()},
        shard_{all.subspan(part_.first, part_.count), options_.by},
        answers_{here} {}

  chorale::task<> run();

 private:
  void handle(chorale::peer_request request);
  void on_join(chorale::peer_request& request);
  void on_pull(chorale::peer_request& request);
  void on_push(chorale::peer_request& request);
  void answer_waiting();
  void give_parameters(chorale::peer_request& request);
  void say(std::string_view what) const;
  void write_ledger() const;

  server_options options_;
  part part_;
  std::size_t total_;
  shard shard_;
  chorale::scope answers_;
  std::vector<waiting_pull> waiting_;
  std::optional<chorale::peer_request> stop_asked_;
};

/// An answer on its way. Whoever asked may be gone: nobody else minds.
template <class Head>
chorale::task<> answer(chorale::peer_request request, Head head, shard::snapshot values) {
  chorale::payload what;
  if (values) what = chorale::payload{*values};
  chorale::task<> sending = request.reply(what.with_head(head));
  chorale::task<chorale::result<>> guarded = chorale::as_result(std::move(sending));
  const auto sent = co_await std::move(guarded);
  static_cast<void>(sent);
}

chorale::task<> answer_bytes(chorale::peer_request request, std::vector<worker_record> records) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span{records});
  chorale::task<> sending = request.reply(bytes);
  chorale::task<chorale::result<>> guarded = chorale::as_result(std::move(sending));
  const auto sent = co_await std::move(guarded);
  static_cast<void>(sent);
}

chorale::error refuse(std::string why) {
  return chorale::error{chorale::errc::invalid_argument, std::move(why)};
}

chorale::task<> service::run() {
  chorale::endpoint_options open;
  open.service = "parameters";
  open.name = fmt::format("server {}", options_.number);
  open.secret = options_.secret;
  chorale::task<chorale::listener> opening = chorale::listen(options_.address, open);
  chorale::listener door = co_await std::move(opening);
  say(fmt::format("keeps parameters {} to {} of {} at {}", part_.first, part_.first + part_.count, total_,
                  door.where()));
  while (!stop_asked_) {
    chorale::task<chorale::peer_request> next = door.next_request();
    chorale::peer_request request = co_await std::move(next);
    handle(std::move(request));
  }
  write_ledger();
  chorale::task<> last = answer(*std::move(stop_asked_), joining{}, nullptr);
  co_await std::move(last);
  waiting_.clear();
  answers_.request_stop();
  co_await answers_.join();
}

void service::handle(chorale::peer_request request) {
  chorale::error wrong;
  try {
    switch (request.tag()) {
      case tag::join:
        return on_join(request);
      case tag::pull:
        return on_pull(request);
      case tag::push:
        return on_push(request);
      case tag::statistics:
        return answers_.spawn(answer_bytes(std::move(request), shard_.records()));
      case tag::stop:
        stop_asked_.emplace(std::move(request));
        return;
      default:
        wrong = refuse(fmt::format("{} is no request of a parameter server", request.tag()));
    }
  } catch (const chorale::failure& f) {  // a head or tensor of another kind
    wrong = f.why();
  }
  request.refuse(wrong);
}

void service::on_join(chorale::peer_request& request) {
  const auto who = request.message().head_as<joining>();
  const joined answered = shard_.join(who.worker);
  say(fmt::format("worker {} {}, version {}", who.worker, answered.session == 1 ? "joined" : "is back",
                  shard_.version()));
  // Pulls of workers that are gone will not be asked for again.
  std::erase_if(waiting_, [](const waiting_pull& w) { return static_cast<bool>(w.request.from().cause()); });
  answers_.spawn(answer(std::move(request), answered, nullptr));
}

// guide: pull
void service::on_pull(chorale::peer_request& request) {
  const auto wanted = request.message().head_as<pulling>();
  if (shard_.version() > wanted.newer_than || wanted.newer_than == any_version || shard_.over())
    return give_parameters(request);
  waiting_.push_back({std::move(request), wanted.newer_than});
}
// end of guide

void service::on_push(chorale::peer_request& request) {
  const auto what = request.message().head_as<pushing>();
  const auto gradient = request.message().values<float>();
  if (gradient.size() != part_.count)
    return request.refuse(refuse(
        fmt::format("a gradient of {} values for {} parameters; use the same --hidden on servers and workers",
                    gradient.size(), part_.count)));
  const std::uint64_t before = shard_.version();
  const pushed outcome = shard_.push(what, gradient);
  answers_.spawn(answer(std::move(request), outcome, nullptr));
  if (shard_.version() != before) answer_waiting();
}

void service::answer_waiting() {
  for (waiting_pull& w : std::exchange(waiting_, {})) {
    if (shard_.version() > w.newer_than || shard_.over())
      give_parameters(w.request);
    else
      waiting_.push_back(std::move(w));
  }
}

void service::give_parameters(chorale::peer_request& request) {
  const pulled head{shard_.version(), shard_.by().versions, part_.first, total_};
  answers_.spawn(answer(std::move(request), head, shard_.parameters()));
}

void service::say(std::string_view what) const {
  if (options_.speaks) fmt::print("server {}: {}\n", options_.number, what);
  std::fflush(stdout);
}

void service::write_ledger() const {
  if (options_.ledger.empty()) return;
  std::ofstream out{options_.ledger};
  for (const shard::entry& e : shard_.ledger())
    out << e.worker << ' ' << e.number << ' ' << e.version << '\n';
  out.close();
  if (!out)
    throw chorale::failure{refuse(options_.ledger.string() + " can not be written; give another --ledger")};
}

}  // namespace

part part_of(std::size_t total, std::size_t number, std::size_t servers) {
  const std::size_t from = total * number / servers;
  return {from, total * (number + 1) / servers - from};
}

chorale::task<> serve(server_options options, std::vector<float> initial) {
  const chorale::environment& here = co_await chorale::this_environment{};
  service running{std::move(options), initial, here};
  chorale::task<> work = running.run();
  co_await std::move(work);
}

}  // namespace parameter_server
