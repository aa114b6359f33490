// The hello: how two ends of a fresh connection learn who the other is and that it knows the job's secret.
//
//   connector → acceptor   hello      who I am, whom I want, for what, and a challenge        64 bytes
//   acceptor  → connector  question   version, status, the acceptor's challenge               24 bytes
//   connector → acceptor   proof      HMAC(secret, "connect" hello question)                  32 bytes
//   acceptor  → connector  verdict    version, status, HMAC(secret, "accept" hello question status)  40 bytes
//
// The connector proves itself first, so that a stranger who only knocks learns nothing to guess the secret
// from. Neither side trusts a byte of the other before its proof. Runs on the caller's engine; the caller
// bounds it in time
// (`with_deadline`) and owns the descriptor. docs/wire.md has every byte.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/async/task.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace chorale {

inline constexpr std::uint16_t protocol_version = 1;

enum class hello_purpose : std::uint8_t {
  member = 1,    ///< a rank joins at the rendezvous
  launcher = 2,  ///< a launcher watches the rendezvous
  mate = 3,      ///< unix socket between ranks of one host: descriptors and their bytes
  data = 4,      ///< tcp socket for collectives' data; `index` is the stripe
  control = 5,   ///< tcp socket for the guard
  endpoint = 6,  ///< outside any job; `nonce` is the fingerprint of the service's name
};

enum class hello_status : std::uint16_t {
  ok = 0,
  version = 1,     ///< another protocol version
  secret = 2,      ///< no proof of the secret
  stale = 3,       ///< another epoch, or another job
  unexpected = 4,  ///< not for this rank, or there is one already
  service = 5,     ///< an endpoint of another service
  full = 6,        ///< the service has as many peers as it takes
};

struct hello {
  hello_purpose purpose{};
  std::uint8_t flags = 0;
  std::uint16_t index = 0;
  rank_t from = no_rank;
  rank_t to = no_rank;
  std::uint64_t epoch = 0;
  std::uint64_t nonce = 0;
  std::uint64_t capabilities = 0;

  /// In `flags`: the pair has proved that it shares a host.
  static constexpr std::uint8_t between_mates = 1;
};

/// The connecting side. errc::secret_refused, errc::protocol_error (another version, not chorale at all),
/// errc::excluded (stale: another epoch), errc::invalid_argument (another service), errc::invalid_state
/// (full), errc::link_lost.
[[nodiscard]] task<result<void>> greet(int fd, std::string_view secret, const hello& mine);

/// Judges a hello whose sender has proved itself.
using hello_judge = std::function<hello_status(const hello&)>;

/// The accepting side: returns the hello once it is proved, judged `ok` and answered.
[[nodiscard]] task<result<hello>> answer_hello(int fd, std::string_view secret, const hello_judge& judge);

}  // namespace chorale
