#include "support.hpp"

#include <chorale/transport/bootstrap/secret.hpp>

#include <sys/socket.h>

#include <exception>
#include <mutex>
#include <thread>

namespace chorale::testing {

address fresh_unix_root() { return address::unix_abstract("chorale-test-" + random_hex(8)); }

address fresh_tcp_root() {
  const auto probe = listen_on(address::loopback(0));
  return local_address(probe.value().get());
}

bootstrap_config config_for(rank_t rank, rank_t size, const address& root) {
  bootstrap_config config;
  config.rank = rank;
  config.size = size;
  config.root = root;
  config.hosts_rendezvous = rank == 0;
  config.secret = "a secret of the tests";
  config.host_id = "this host";
  config.timeout = std::chrono::seconds{10};
  config.reset_grace = std::chrono::milliseconds{300};
  return config;
}

void run_ranks(rank_t size, const std::function<void(rank_t)>& body) {
  std::vector<std::thread> threads;
  std::mutex guard;
  std::exception_ptr failed;
  for (rank_t rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        const std::lock_guard lock{guard};
        if (!failed) failed = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  if (failed) std::rethrow_exception(failed);
}

void bootstrap_all(rank_t size, const address& root, const std::function<void(bootstrap_config&)>& adjust,
                   const std::function<void(engine&, rank_t, result<world>)>& use) {
  run_ranks(size, [&](rank_t rank) {
    engine loop;
    bootstrap_config config = config_for(rank, size, root);
    if (adjust) adjust(config);
    result<world> outcome = loop.run(bootstrap(std::move(config)));
    use(loop, rank, std::move(outcome));
  });
}

unique_fd knock(const address& where) {
  unique_fd fd{::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (::connect(fd.get(), where.data(), where.size()) != 0) return {};
  return fd;
}

}  // namespace chorale::testing
