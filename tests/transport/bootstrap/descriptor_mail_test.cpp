// Descriptors between host-mates, found by name whatever came before them.
#include <chorale/async/engine.hpp>
#include <chorale/transport/bootstrap/descriptor_mail.hpp>

#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

namespace chorale {
namespace {

struct two_mates {
  two_mates() {
    int ends[2];
    BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    sender.mate.reset(ends[0]);
    receiver.mate.reset(ends[1]);
    sender.rank = receiver.rank = 3;
  }
  void send(std::uint64_t name, int fd) {
    const result<void> sent = loop.run(descriptor_mail::send(sender, name, fd));
    BOOST_TEST(sent.has_value());
  }
  engine loop;
  peer sender;  // what the receiver is to the sender, and the other way round
  peer receiver;
  descriptor_mail mail;
};

bool same_file(int a, int b) {
  struct stat first{}, second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_ino == second.st_ino;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(descriptor_mails, two_mates)

BOOST_AUTO_TEST_CASE(letters_are_found_by_name_in_any_order) {
  int pipes[2];
  BOOST_REQUIRE(::pipe2(pipes, O_CLOEXEC) == 0);
  const unique_fd first{pipes[0]}, second{::eventfd(0, EFD_CLOEXEC)};
  const unique_fd rest{pipes[1]};
  send(11, first.get());
  send(22, second.get());
  send(11, second.get());
  const auto late = mail.take(receiver, 22);
  BOOST_REQUIRE(late.has_value());
  const std::uint64_t one = 1;
  std::uint64_t read = 0;
  BOOST_TEST(::write(late->get(), &one, sizeof one) == 8);
  BOOST_TEST(::read(second.get(), &read, sizeof read) == 8);
  const auto early = mail.take(receiver, 11);
  BOOST_REQUIRE(early.has_value());
  BOOST_TEST(same_file(early->get(), first.get()));
  BOOST_TEST(mail.take(receiver, 11).has_value());
}

BOOST_AUTO_TEST_CASE(what_is_not_there_is_an_error_and_never_waited_for) {
  const auto missing = mail.take(receiver, 5);
  BOOST_REQUIRE(!missing.has_value());
  BOOST_TEST((missing.error() == errc::protocol_error));
  BOOST_TEST(missing.error().culprit() == 3);
  sender.mate.reset();
  const auto gone = mail.take(receiver, 5);
  BOOST_REQUIRE(!gone.has_value());
  BOOST_TEST((gone.error() == errc::link_lost));
}

BOOST_AUTO_TEST_CASE(bytes_without_a_descriptor_are_refused) {
  const std::uint64_t name = 9;
  BOOST_TEST(::write(sender.mate.get(), &name, sizeof name) == 8);
  const auto empty = mail.take(receiver, 9);
  BOOST_REQUIRE(!empty.has_value());
  BOOST_TEST((empty.error() == errc::system_error));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace chorale
