// Ranks that find each other, and the ways in which they do not.
#include "support.hpp"
#include <chorale/async/io.hpp>
#include <chorale/async/scope.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/with_environment.hpp>

#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <latch>
#include <random>
#include <thread>

namespace chorale::testing {
namespace {

using std::chrono::milliseconds;

struct links {
  std::size_t mates = 0, data = 0, control = 0;
};

links count_links(const world& w) {
  links n;
  for (const peer& p : w.peers) {
    n.mates += p.mate ? 1U : 0U;
    n.data += p.data.size();
    n.control += p.control ? 1U : 0U;
  }
  return n;
}

// Every socket of every pair has the same two ends: each rank says who it is on all of them.
task<bool> ends_match(const world& w) {
  for (const peer& p : w.peers) {
    std::vector<int> fds;
    if (p.mate) fds.push_back(p.mate.get());
    for (const unique_fd& fd : p.data) fds.push_back(fd.get());
    if (p.control) fds.push_back(p.control.get());
    for (std::size_t i = 0; i < fds.size(); ++i) {
      const std::array<rank_t, 2> said{w.rank, static_cast<rank_t>(i)};
      task<result<void>> sending = send_all(fds[i], said.data(), sizeof said);
      (void)co_await std::move(sending);
    }
  }
  for (const peer& p : w.peers) {
    std::vector<int> fds;
    if (p.mate) fds.push_back(p.mate.get());
    for (const unique_fd& fd : p.data) fds.push_back(fd.get());
    if (p.control) fds.push_back(p.control.get());
    for (std::size_t i = 0; i < fds.size(); ++i) {
      std::array<rank_t, 2> heard{};
      task<result<void>> receiving = recv_all(fds[i], heard.data(), sizeof heard);
      const auto received = co_await std::move(receiving);
      if (!received || heard[0] != p.rank || heard[1] != static_cast<rank_t>(i)) co_return false;
    }
  }
  co_return true;
}

struct layout {
  rank_t size;
  bool by_tcp;   // the root, and data between mates
  rank_t hosts;  // pretended
  int stripes;
};

void check_layout(const layout& l) {
  std::atomic<int> good{0};
  std::atomic<std::uint64_t> nonce{0};
  bootstrap_all(
      l.size, l.by_tcp ? fresh_tcp_root() : fresh_unix_root(),
      [&](bootstrap_config& c) {
        c.host_id = "host " + std::to_string(c.rank % l.hosts);
        c.tcp_between_mates = l.by_tcp;
        c.stripes = l.stripes;
      },
      [&](engine& loop, rank_t rank, result<world> outcome) {
        world w = std::move(outcome).value();
        std::uint64_t first = 0;
        const bool same_nonce = nonce.compare_exchange_strong(first, w.nonce) || first == w.nonce;
        std::size_t mates = 0;
        for (rank_t r = 0; r < l.size; ++r) mates += r != rank && r % l.hosts == rank % l.hosts ? 1U : 0U;
        const std::size_t remote = static_cast<std::size_t>(l.size) - 1 - mates;
        const links n = count_links(w);
        const bool counted =
            n.mates == mates && n.control == remote &&
            n.data == (remote + (l.by_tcp ? mates : 0)) * static_cast<std::size_t>(l.stripes);
        const bool matched = loop.run(ends_match(w));
        if (same_nonce && counted && matched && w.rank == rank && w.size == l.size && w.epoch == 1 &&
            w.host_mates().size() == mates + 1)
          ++good;
      });
  BOOST_TEST(good == l.size);
}

BOOST_AUTO_TEST_SUITE(joining)

BOOST_AUTO_TEST_CASE(one_to_nine_ranks_on_one_host) {
  for (rank_t size = 1; size <= 9; ++size) check_layout({size, false, 1, 1});
}

BOOST_AUTO_TEST_CASE(one_to_nine_ranks_by_tcp) {
  for (rank_t size = 1; size <= 9; ++size) check_layout({size, true, 1, 2});
}

BOOST_AUTO_TEST_CASE(two_and_three_hosts) {
  for (rank_t size = 2; size <= 9; ++size) check_layout({size, size % 2 == 0, 2 + size % 2, 1 + size % 3});
}

BOOST_AUTO_TEST_CASE(the_smallest_number_of_stripes_counts_for_all) {
  bootstrap_all(
      3, fresh_tcp_root(),
      [](bootstrap_config& c) {
        c.host_id = std::to_string(c.rank);
        c.stripes = 4 - c.rank;
      },
      [](engine&, rank_t, result<world> outcome) {
        for (const peer& p : outcome.value().peers)
          if (p.rank != outcome->rank && p.data.size() != 2) throw std::logic_error{"stripes differ"};
      });
}

BOOST_AUTO_TEST_CASE(ranks_that_come_in_any_order) {
  std::mt19937 random{std::random_device{}()};
  const auto seed = random();
  BOOST_TEST_MESSAGE("seed " << seed);
  random.seed(seed);
  for (int round = 0; round < 6; ++round) {
    const auto size = static_cast<rank_t>(2 + random() % 6);
    std::vector<milliseconds> late;
    for (rank_t r = 0; r < size; ++r) late.emplace_back(random() % 60);
    const address root = random() % 2 ? fresh_unix_root() : fresh_tcp_root();
    std::atomic<int> good{0};
    run_ranks(size, [&](rank_t rank) {
      std::this_thread::sleep_for(late[static_cast<std::size_t>(rank)]);  // the order is what is tested
      engine loop;
      const auto w = loop.run(bootstrap(config_for(rank, size, root)));
      if (w && count_links(*w).mates == static_cast<std::size_t>(size - 1)) ++good;
    });
    BOOST_TEST(good == size);
  }
}

BOOST_AUTO_TEST_CASE(strangers_change_nothing) {
  const address root = fresh_tcp_root();
  std::atomic<bool> over{false};
  std::thread strangers{[&] {
    std::vector<unique_fd> silent;
    std::mt19937 random{7};
    while (!over) {
      unique_fd fd = knock(root);
      if (!fd) continue;
      std::array<std::byte, 100> noise{};
      for (std::byte& b : noise) b = static_cast<std::byte>(random());
      const auto count = random() % 3 == 0 ? 0 : random() % noise.size();
      if (count != 0) (void)!::send(fd.get(), noise.data(), count, MSG_NOSIGNAL);
      if (silent.size() < 50) silent.push_back(std::move(fd));
    }
  }};
  std::atomic<int> good{0};
  bootstrap_all(
      4, root, [](bootstrap_config& c) { c.host_id = std::to_string(c.rank); },
      [&](engine&, rank_t, result<world> outcome) { good += outcome.has_value() ? 1 : 0; });
  over = true;
  strangers.join();
  BOOST_TEST(good == 4);
}

task<std::uint64_t> count_strangers(rendezvous& place, std::uint64_t expected) {
  const environment& here = co_await this_environment{};
  scope serving{here};
  serving.spawn(place.serve());
  const time_point until = here.loop->now() + std::chrono::seconds{5};
  while (place.statistics().strangers < expected && here.loop->now() < until) {
    task<void> pause = sleep_for(milliseconds{1});
    co_await std::move(pause);
  }
  serving.request_stop();
  co_await serving.join();
  co_return place.statistics().strangers;
}

BOOST_AUTO_TEST_CASE(every_stranger_is_counted) {
  rendezvous_options options;
  options.where = address::loopback(0);
  options.hello_timeout = milliseconds{50};
  const auto place = std::move(rendezvous::listen(std::move(options))).value();
  std::vector<unique_fd> strangers;
  for (const std::string_view said : {"", "C", "CHRL", "GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n"}) {
    strangers.push_back(knock(place->where()));
    BOOST_TEST_REQUIRE(bool(strangers.back()));
    (void)!::send(strangers.back().get(), said.data(), said.size(), MSG_NOSIGNAL);
  }
  knock(place->where()).reset();  // comes and goes
  engine loop;
  BOOST_TEST(loop.run(count_strangers(*place, 5)) == 5U);
  BOOST_TEST(!place->complete());
}

BOOST_AUTO_TEST_CASE(a_crowd_of_silent_strangers_delays_and_no_more) {
  // More than may be half open at once: they are dropped after the hello's deadline, then it is the ranks'
  // turn.
  const address root = fresh_tcp_root();
  std::atomic<int> good{0};
  std::atomic<int> ended{0};
  run_ranks(3, [&](rank_t thread) {
    if (thread == 2) {
      std::vector<unique_fd> crowd;
      while (crowd.size() < 300 && ended == 0) {
        unique_fd fd = knock(root);
        if (fd) crowd.push_back(std::move(fd));
      }
      for (int n = ended; n != 2; n = ended) ended.wait(n);
      return;
    }
    engine loop;
    bootstrap_config config = config_for(thread, 2, root);
    config.hello_timeout = milliseconds{200};
    const auto outcome = loop.run(bootstrap(std::move(config)));
    if (outcome) ++good;
    ++ended;
    ended.notify_all();
    if (!outcome) throw failure{outcome.error()};
  });
  BOOST_TEST(good == 2);
}

boost::test_tools::assertion_result may_change_users(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result yes{::geteuid() == 0};
  yes.message() << "acting as another user needs root";
  return yes;
}

BOOST_AUTO_TEST_CASE(another_user_on_this_host_is_no_mate,
                     *boost::unit_test::precondition(may_change_users)) {
  std::atomic<int> good{0};
  const address root = fresh_tcp_root();
  run_ranks(3, [&](rank_t rank) {
    // The bare system call changes this thread alone.
    if (rank == 1 && ::syscall(SYS_setresuid, 65534, 65534, 65534) != 0) throw std::logic_error{"setresuid"};
    engine loop;
    const auto w = loop.run(bootstrap(config_for(rank, 3, root)));
    if (!w) throw failure{w.error()};
    const links n = count_links(*w);
    if (rank == 1 ? n.mates == 0 && n.data == 2 && n.control == 2
                  : n.mates == 1 && n.data == 1 && n.control == 1)
      ++good;
  });
  BOOST_TEST(good == 3);
}

BOOST_AUTO_TEST_CASE(another_secret_is_refused_and_the_job_names_who_is_missing) {
  std::array<error, 3> why;
  bootstrap_all(
      3, fresh_unix_root(),
      [](bootstrap_config& c) {
        c.timeout = std::chrono::seconds{1};
        if (c.rank == 2) c.secret = "another one";
      },
      [&](engine&, rank_t rank, result<world> outcome) {
        if (!outcome) why[static_cast<std::size_t>(rank)] = outcome.error();
      });
  BOOST_TEST((why[2].code() == errc::secret_refused));
  for (const int r : {0, 1}) {
    BOOST_TEST((why[static_cast<std::size_t>(r)].code() == errc::bootstrap_failed));
    BOOST_TEST((why[static_cast<std::size_t>(r)].message().find("rank 2 of 3 has not connected") !=
                std::string::npos));
  }
}

BOOST_AUTO_TEST_CASE(a_missing_rank_is_named_within_the_deadline) {
  const address root = fresh_tcp_root();
  const time_point started = steady_now();
  std::array<std::string, 2> said;
  run_ranks(2, [&](rank_t rank) {
    engine loop;
    bootstrap_config config = config_for(rank, 5, root);
    config.timeout = std::chrono::seconds{1};
    const auto outcome = loop.run(bootstrap(std::move(config)));
    if (!outcome) said[static_cast<std::size_t>(rank)] = outcome.error().message();
  });
  const duration took = steady_now() - started;
  BOOST_TEST((took < std::chrono::seconds{3}));
  for (const std::string& text : said) {
    BOOST_TEST_CONTEXT(text)
    BOOST_TEST((text.find("ranks 2 to 4 of 5 have not connected to " + root.text() + " after 1 s") !=
                std::string::npos));
  }
}

BOOST_AUTO_TEST_CASE(a_rendezvous_that_is_not_there_is_named) {
  const address root = fresh_tcp_root();
  engine loop;
  bootstrap_config config = config_for(1, 2, root);
  config.timeout = milliseconds{300};
  const auto outcome = loop.run(bootstrap(std::move(config)));
  BOOST_TEST_REQUIRE(!outcome.has_value());
  BOOST_TEST((outcome.error().code() == errc::bootstrap_failed));
  BOOST_TEST((outcome.error().message().find(root.text()) != std::string::npos));
}

BOOST_AUTO_TEST_CASE(a_rank_that_comes_twice_is_told_and_the_others_go_on) {
  const decider place{2};
  std::atomic<int> good{0};
  std::atomic<int> told{0};
  std::latch answered{3};  // nobody leaves before all three know
  run_ranks(3, [&](rank_t thread) {
    engine loop;
    const auto outcome = loop.run(bootstrap(place.config(std::min(thread, 1), 2)));
    answered.arrive_and_wait();
    if (outcome) ++good;
    if (!outcome && outcome.error().message().find("rank 1 has connected already") != std::string::npos)
      ++told;
  });
  BOOST_TEST(good == 2);
  BOOST_TEST(told == 1);
}

BOOST_AUTO_TEST_CASE(ranks_that_disagree_on_the_size_are_told) {
  const address root = fresh_unix_root();
  std::array<std::string, 2> said;
  run_ranks(2, [&](rank_t rank) {
    engine loop;
    const auto outcome = loop.run(bootstrap(config_for(rank, rank == 0 ? 2 : 3, root)));
    if (!outcome) said[static_cast<std::size_t>(rank)] = outcome.error().message();
  });
  for (const std::string& text : said)
    BOOST_TEST(
        (text.find("rank 1 says that the job has 3 ranks, the rendezvous expects 2") != std::string::npos));
}

BOOST_AUTO_TEST_CASE(a_rank_lost_while_joining_ends_the_others_at_once) {
  // Rank 1 hands in its record and ends; rank 2 never comes.
  const address root = fresh_unix_root();
  const time_point started = steady_now();
  std::string said;
  run_ranks(2, [&](rank_t rank) {
    engine loop;
    const bootstrap_config config = config_for(rank, 3, root);
    if (rank == 0) {
      const auto outcome = loop.run(bootstrap(config));
      if (!outcome) said = outcome.error().message();
      return;
    }
    auto link = loop.run(rendezvous_link::connect(config, never));
    member_record mine;
    mine.rank = rank;
    mine.size = 3;
    (void)loop.run(with_timeout(milliseconds{50}, link.value().join(mine, never)));
    ::shutdown(link->fd(), SHUT_RDWR);
  });
  BOOST_TEST((said.find("rank 1 ended before the job was complete") != std::string::npos));
  BOOST_TEST((steady_now() - started < std::chrono::seconds{5}));
}

BOOST_AUTO_TEST_CASE(nothing_is_left_open) {
  const auto open_files = [] {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
  };
  const int before = open_files();
  check_layout({4, true, 2, 2});
  BOOST_TEST(open_files() == before);
}

BOOST_AUTO_TEST_CASE(two_hundred_and_fifty_six_ranks_in_five_seconds) {
  const time_point started = steady_now();
  std::atomic<int> good{0};
  bootstrap_all(
      256, fresh_unix_root(),
      [](bootstrap_config& c) {
        c.timeout = std::chrono::seconds{30};
        // A full mesh of 256 in one process would need 65,280 descriptors.
        c.mesh_pairs = [](rank_t low, rank_t high, rank_t size) {
          return high - low == 1 || high - low == 16 || high - low == size - 1;
        };
      },
      [&](engine&, rank_t, result<world> outcome) { good += outcome.has_value() ? 1 : 0; });
  const auto took = std::chrono::duration_cast<milliseconds>(steady_now() - started);
  BOOST_TEST_MESSAGE("256 ranks: " << took.count() << " ms");
  BOOST_TEST(good == 256);
  BOOST_TEST((took < std::chrono::seconds{5}));
}

BOOST_AUTO_TEST_CASE(members_that_talk_nonsense_change_nothing) {
  const decider place{2};
  std::random_device device;
  const unsigned seed = device();
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937 random{seed};
  engine loop;
  for (int i = 0; i < 50; ++i) {
    // They know the secret, and that is all.
    const auto link =
        loop.run(rendezvous_link::connect(place.config(static_cast<rank_t>(random() % 3), 2), never));
    std::vector<std::byte> body(random() % 120);
    for (std::byte& b : body) b = static_cast<std::byte>(random());
    const auto message = encode_message(static_cast<message_kind>(random() % 10), body);
    (void)!::send(link.value().fd(), message.data(), message.size() - random() % 4, MSG_NOSIGNAL);
  }
  std::atomic<int> good{0};
  run_ranks(2, [&](rank_t rank) {
    engine own;
    good += own.run(bootstrap(place.config(rank, 2))).has_value() ? 1 : 0;
  });
  BOOST_TEST(good == 2);
}

BOOST_AUTO_TEST_CASE(every_kind_of_root) {
  const std::string file = "/tmp/chorale-test-" + std::to_string(::getpid());
  for (const address& root : {address::parse("unix:" + file).value(), address::parse("[::1]:7399").value()}) {
    if (!listen_on(root)) {
      BOOST_TEST_MESSAGE("skipped: " << root.text() << " can not be listened on here");
      continue;
    }
    ::unlink(file.c_str());  // of the probe
    std::atomic<int> good{0};
    bootstrap_all(2, root, nullptr, [&](engine&, rank_t, result<world> w) { good += w.has_value() ? 1 : 0; });
    BOOST_TEST(good == 2);
  }
  BOOST_TEST(::access(file.c_str(), F_OK) != 0);
}

BOOST_AUTO_TEST_CASE(a_root_in_use_is_named) {
  const address root = fresh_tcp_root();
  const auto taken = listen_on(root);
  engine loop;
  const auto w = loop.run(bootstrap(config_for(0, 2, root)));
  BOOST_TEST_REQUIRE(!w.has_value());
  BOOST_TEST((w.error().message().find(root.text() + ": already in use") != std::string::npos));
}

task<void> join_only(bootstrap_config config, std::vector<rendezvous_link>& links, int& good) {
  task<result<rendezvous_link>> connecting = rendezvous_link::connect(config, never);
  auto link = co_await std::move(connecting);
  if (!link) co_return;
  member_record mine;
  mine.rank = mine.origin = config.rank;
  mine.size = config.size;
  mine.host_id = "c7ceaba1-3e44-4de4-8543-14d6cf400024";
  mine.mate_name = "chorale-0123456789abcdef0123456789abcdef";
  mine.addresses = {"10.0.0.1:40000", "10.1.0.1:40000"};
  task<result<member_table>> joining = link->join(mine, never);
  const auto table = co_await std::move(joining);
  if (table && table->members.size() == static_cast<std::size_t>(config.size)) ++good;
  links.push_back(*std::move(link));  // stays until all have their table
}

task<int> join_a_thousand(const decider& place) {
  const environment& here = co_await this_environment{};
  scope all{here};
  std::vector<rendezvous_link> links;
  int good = 0;
  for (rank_t rank = 0; rank < 1000; ++rank) all.spawn(join_only(place.config(rank, 1000), links, good));
  co_await all.join();
  co_return good;
}

BOOST_AUTO_TEST_CASE(a_thousand_ranks_meet) {
  const decider place{1000};
  engine loop;
  const time_point started = steady_now();
  BOOST_TEST(loop.run(join_a_thousand(place)) == 1000);
  const auto took = std::chrono::duration_cast<milliseconds>(steady_now() - started);
  BOOST_TEST_MESSAGE("1,000 ranks at the rendezvous: " << took.count() << " ms");
  BOOST_TEST((took < std::chrono::seconds{20}));
}

struct losses {
  rank_t by_the_member = no_rank;
  rank_t by_the_launcher = no_rank;
};

/// Two members meet and one of them is lost; a launcher comes when the other has heard of it.
task<losses> lose_one_before_the_launcher_comes(const decider& place) {
  const environment& here = co_await this_environment{};
  scope both{here};
  std::vector<rendezvous_link> links;
  int good = 0;
  for (rank_t rank = 0; rank < 2; ++rank) both.spawn(join_only(place.config(rank, 2), links, good));
  co_await both.join();
  ::shutdown(links.front().fd(), SHUT_RDWR);
  losses told;
  task<error> waiting = links.back().first_loss(1);
  const error loss = co_await std::move(waiting);
  told.by_the_member = loss.culprit();
  const bootstrap_config config = place.config(0, 2);
  task<result<rendezvous_link>> coming = rendezvous_link::connect(config, never, hello_purpose::launcher);
  auto launcher = co_await std::move(coming);
  task<result<rank_t>> hearing = launcher.value().next_lost_origin();
  const auto heard = co_await std::move(hearing);
  told.by_the_launcher = heard.value();
  co_return told;
}

BOOST_AUTO_TEST_CASE(a_launcher_that_comes_late_hears_of_losses_before) {
  const decider place{2};
  engine loop;
  const losses told =
      loop.run(with_timeout(std::chrono::seconds{20}, lose_one_before_the_launcher_comes(place)));
  BOOST_TEST(told.by_the_member != no_rank);
  BOOST_TEST(told.by_the_launcher == told.by_the_member);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace chorale::testing
