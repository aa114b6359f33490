#include <chorale/async/result.hpp>

#include <boost/test/unit_test.hpp>

#include <cerrno>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace chorale;

BOOST_AUTO_TEST_SUITE(error_and_result)

const std::vector<errc> every_code{
    errc::timed_out,        errc::cancelled,      errc::dropped,     errc::mismatch,
    errc::deadlock,         errc::peer_lost,      errc::peer_left,   errc::peer_unresponsive,
    errc::link_lost,        errc::protocol_error, errc::revoked,     errc::invalid_argument,
    errc::invalid_state,    errc::too_many_lanes, errc::unsupported, errc::forked,
    errc::bootstrap_failed, errc::secret_refused, errc::excluded,    errc::no_decider,
    errc::system_error,     errc::out_of_memory,  errc::gpu_error};

BOOST_AUTO_TEST_CASE(every_code_has_its_own_name_and_meaning) {
  std::set<std::string> names;
  std::set<std::string> meanings;
  for (const errc code : every_code) {
    names.emplace(name_of(code));
    meanings.insert(make_error_code(code).message());
  }
  BOOST_TEST(names.size() == every_code.size());
  BOOST_TEST(meanings.size() == every_code.size());
  BOOST_TEST(names.count("unknown") == 0U);
}

BOOST_AUTO_TEST_CASE(a_message_says_what_to_whom_and_what_to_do) {
  error why{errc::peer_lost, "pidfd fired", 3};
  why.with_ticket(17);
  const std::string text = why.message();
  for (const char* part : {"peer_lost", "rank 3", "operation 17", "pidfd fired", "reset()"})
    BOOST_TEST(text.find(part) != std::string::npos, part << " is missing in: " << text);
}

BOOST_AUTO_TEST_CASE(a_summary_fits_into_another_message) {
  error lost{errc::peer_lost, "it is dying: signal 9", 2};
  lost.with_ticket(17);
  BOOST_TEST(lost.summary() == "peer_lost (rank 2): it is dying: signal 9");
  BOOST_TEST(error{errc::timed_out}.summary() == "timed_out: the deadline passed before the operation ended");
  const std::string text = error{errc::revoked, lost.summary(), 2}.message();
  BOOST_TEST(text.find("reset()") == text.rfind("reset()"), text);
}

BOOST_AUTO_TEST_CASE(an_os_error_keeps_its_code_and_its_text) {
  const error why = error::from_os(ECONNREFUSED, "connect 127.0.0.1:1");
  BOOST_TEST((why == errc::system_error));
  BOOST_TEST(why.os_code() == ECONNREFUSED);
  BOOST_TEST(why.message().find("connect 127.0.0.1:1") != std::string::npos);
  BOOST_TEST(why.message().find("refused") != std::string::npos);
  BOOST_TEST((error::from_os(ENOMEM, "mmap") == errc::out_of_memory));
}

BOOST_AUTO_TEST_CASE(a_failure_shows_the_message_once) {
  const failure thrown{error{errc::timed_out, "all_reduce"}};
  const std::string text = thrown.what();
  BOOST_TEST(text == thrown.why().message());
  const std::string meaning = make_error_code(errc::timed_out).message();
  BOOST_TEST(text.find(meaning) == text.rfind(meaning));
  BOOST_TEST((thrown.code() == std::errc::timed_out));
  BOOST_TEST((thrown.code() == errc::timed_out));
}

BOOST_AUTO_TEST_CASE(generic_conditions_need_no_names_of_ours) {
  BOOST_TEST((make_error_code(errc::cancelled) == std::errc::operation_canceled));
  BOOST_TEST((make_error_code(errc::peer_lost) != std::errc::timed_out));
}

BOOST_AUTO_TEST_CASE(a_result_holds_a_value_or_an_error) {
  result<std::unique_ptr<int>> good{std::make_unique<int>(7)};
  BOOST_TEST(good.has_value());
  BOOST_TEST(**good == 7);
  const std::unique_ptr<int> taken = std::move(good).value();
  BOOST_TEST(*taken == 7);
  const result<int> bad{error{errc::revoked, "why"}};
  BOOST_TEST(!bad);
  BOOST_TEST((bad.error() == errc::revoked));
  BOOST_CHECK_EXCEPTION(static_cast<void>(bad.value()), failure, [](const failure& f) {
    return f.why() == errc::revoked && f.why().detail() == "why";
  });
}

BOOST_AUTO_TEST_CASE(a_void_result_is_good_until_told_otherwise) {
  const result<> good;
  BOOST_TEST(good.has_value());
  BOOST_CHECK_NO_THROW(good.value());
  const result<> bad{errc::link_lost};
  BOOST_TEST(!bad.has_value());
  BOOST_CHECK_THROW(bad.value(), failure);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
