#include <chorale/async/inbox.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <deque>
#include <thread>
#include <vector>

namespace {

using namespace chorale;

struct numbered : operation {
  numbered(int by, int at) noexcept : operation{nothing}, sender{by}, number{at} {}
  int sender;
  int number;
  static void nothing(operation&) noexcept {}
};

BOOST_AUTO_TEST_SUITE(inbox_of_an_engine)

BOOST_AUTO_TEST_CASE(take_restores_the_order_of_arrival) {
  inbox box;
  std::deque<numbered> sent;
  for (int i = 0; i < 5; ++i) {
    sent.emplace_back(0, i);
    BOOST_TEST(box.push(sent.back()) == (i == 0));  // only the first push may have to wake the owner
  }
  operation_queue got;
  box.take(got);
  BOOST_TEST(box.empty());
  BOOST_TEST(got.size() == 5U);
  for (int i = 0; i < 5; ++i) BOOST_TEST(static_cast<numbered&>(got.pop()).number == i);
}

BOOST_AUTO_TEST_CASE(taking_from_an_empty_inbox_is_nothing) {
  inbox box;
  operation_queue got;
  box.take(got);
  BOOST_TEST(got.empty());
}

BOOST_AUTO_TEST_CASE(threads_lose_nothing_and_each_keeps_its_order) {
  inbox box;
  constexpr int senders = 4;
  constexpr int each = 20'000;
  std::array<std::deque<numbered>, senders> sent;
  for (int s = 0; s < senders; ++s)
    for (int i = 0; i < each; ++i) sent[static_cast<std::size_t>(s)].emplace_back(s, i);
  std::vector<std::thread> threads;
  for (auto& mine : sent)
    threads.emplace_back([&box, &mine] {
      for (auto& op : mine) box.push(op);
    });
  std::array<int, senders> next{};
  int taken = 0;
  bool in_order = true;
  while (taken < senders * each) {
    operation_queue got;
    box.take(got);
    while (!got.empty()) {
      const auto& op = static_cast<numbered&>(got.pop());
      in_order = in_order && next[static_cast<std::size_t>(op.sender)]++ == op.number;
      ++taken;
    }
    std::this_thread::yield();
  }
  for (auto& t : threads) t.join();
  BOOST_TEST(in_order);
  BOOST_TEST(box.empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
