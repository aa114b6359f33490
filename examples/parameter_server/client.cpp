#include "client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace parameter_server {
namespace {

using namespace std::chrono_literals;

/// An answer that takes longer than this may have been lost with its connection's host: ask again.
constexpr auto patience = 5s;
constexpr int attempts = 3;

chorale::task<> join_one(server_view& server, std::uint32_t worker) {
  const joining head{worker};
  chorale::task<chorale::peer_message> asking =
      server.peer.call(tag::join, chorale::payload{}.with_head(head));
  const chorale::peer_message answer = co_await std::move(asking);
  const auto told = answer.head_as<joined>();
  server.session = told.session;
  server.number = told.last_number;
}

chorale::task<> pull_one(server_view& server, std::span<float> parameters, std::uint64_t newer_than) {
  const pulling head{newer_than};
  chorale::task<chorale::peer_message> asking =
      server.peer.call(tag::pull, chorale::payload{}.with_head(head));
  const chorale::peer_message answer = co_await std::move(asking);
  const auto told = answer.head_as<pulled>();
  const auto values = answer.values<float>();
  if (told.total != parameters.size() || told.first > parameters.size() - values.size())
    throw chorale::failure{chorale::error{
        chorale::errc::invalid_argument,
        fmt::format("{} keeps parameters of a network of {}, this one has {}; give servers and workers the "
                    "same --hidden",
                    server.peer.whom(), told.total, parameters.size())}};
  std::ranges::copy(values, parameters.begin() + static_cast<std::ptrdiff_t>(told.first));
  server.first = told.first;
  server.count = values.size();
  server.version = told.version;
  server.versions = told.versions;
}

/// The same number each time: the server applies it once, however often it hears it.
chorale::task<> push_one(server_view& server, std::uint32_t worker, std::span<const float> gradient,
                         int times, pushed& outcome) {
  const pushing head{worker, 0, server.session, ++server.number, server.version};
  const chorale::payload what =
      chorale::payload{gradient.subspan(server.first, server.count)}.with_head(head);
  for (int attempt = 1;; ++attempt) {
    chorale::task<chorale::peer_message> asking =
        chorale::with_timeout(patience, server.peer.call(tag::push, what));
    chorale::task<chorale::result<chorale::peer_message>> guarded = chorale::as_result(std::move(asking));
    const auto answer = co_await std::move(guarded);
    const bool unanswered = !answer && answer.error() == chorale::errc::timed_out;
    if (unanswered && attempt < attempts) continue;
    if (!answer) throw chorale::failure{answer.error()};
    const auto told = answer->head_as<pushed>();
    if (attempt == 1 || told.outcome != verdict::again) outcome = told;
    if (told.outcome == verdict::again) outcome.version = told.version;
    if (attempt >= times) break;
  }
}

}  // namespace

chorale::task<servers> servers::find(std::vector<std::string> addresses, std::string secret,
                                     std::string name) {
  servers found;
  chorale::endpoint_options how;
  how.service = "parameters";
  how.secret = std::move(secret);
  how.name = std::move(name);
  how.patience = 10s;
  for (const std::string& address : addresses) {
    server_view view;
    chorale::task<chorale::peer_handle> connecting = chorale::connect(address, how);
    view.peer = co_await std::move(connecting);
    found.all_.push_back(std::move(view));
  }
  co_return found;
}

chorale::task<> servers::join(std::uint32_t worker) {
  const chorale::environment& here = co_await chorale::this_environment{};
  chorale::scope asking{here};
  for (server_view& server : all_) asking.spawn(join_one(server, worker));
  co_await asking.join();
}

chorale::task<> servers::pull(std::span<float> parameters, which wanted) {
  const chorale::environment& here = co_await chorale::this_environment{};
  chorale::scope asking{here};
  for (server_view& server : all_)
    asking.spawn(pull_one(server, parameters, wanted == which::newer ? server.version : any_version));
  co_await asking.join();
  std::size_t next = 0;
  for (const server_view& server : all_) {
    if (server.first != next)
      throw chorale::failure{chorale::error{
          chorale::errc::invalid_argument,
          fmt::format("{} keeps the parameters from {} on, expected was {}; name the servers in their order",
                      server.peer.whom(), server.first, next)}};
    next += server.count;
  }
  if (next != parameters.size())
    throw chorale::failure{chorale::error{
        chorale::errc::invalid_argument,
        fmt::format("these servers keep {} of {} parameters; name all of them", next, parameters.size())}};
}

chorale::task<std::vector<pushed>> servers::push(std::uint32_t worker, std::span<const float> gradient,
                                                 int times) {
  const chorale::environment& here = co_await chorale::this_environment{};
  std::vector<pushed> outcomes(all_.size());
  chorale::scope asking{here};
  for (std::size_t i = 0; i < all_.size(); ++i)
    asking.spawn(push_one(all_[i], worker, gradient, times, outcomes[i]));
  co_await asking.join();
  co_return outcomes;
}

chorale::task<std::vector<worker_record>> servers::statistics(std::size_t server) {
  chorale::task<chorale::peer_message> asking = all_[server].peer.call(tag::statistics, chorale::payload{});
  const chorale::peer_message answer = co_await std::move(asking);
  std::vector<worker_record> records(answer.bytes().size() / sizeof(worker_record));
  std::ranges::copy(answer.bytes().first(records.size() * sizeof(worker_record)),
                    std::as_writable_bytes(std::span{records}).begin());
  co_return records;
}

chorale::task<> servers::stop() {
  for (server_view& server : all_) {
    chorale::task<chorale::peer_message> asking = server.peer.call(tag::stop, chorale::payload{});
    const chorale::peer_message heard = co_await std::move(asking);
    static_cast<void>(heard);
  }
}

chorale::task<> servers::leave() {
  for (server_view& server : all_) {
    chorale::task<> closing = server.peer.close();
    co_await std::move(closing);
  }
}

bool servers::over() const noexcept {
  return std::ranges::all_of(all_,
                             [](const server_view& s) { return s.versions != 0 && s.version >= s.versions; });
}

}  // namespace parameter_server
