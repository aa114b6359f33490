#include <chorale/transport/guard/revoke.hpp>

#include <cstring>
#include <string>

namespace chorale {
namespace {

std::string detail_of(const revoke& notice) {
  std::string text;
  if (notice.cause == errc::peer_lost && notice.detail == death_by_terminate)
    text = "it is dying: std::terminate";
  else if (notice.cause == errc::peer_lost && notice.detail > 0)
    text = "it is dying: signal " + std::to_string(notice.detail) + " (" + ::strsignal(notice.detail) + ")";
  else if (notice.cause == errc::link_lost && notice.detail > 0)
    text = std::string{"control link: "} + std::strerror(notice.detail);
  if (notice.scope == revoke_scope::lane) {
    if (!text.empty()) text += ", ";
    text += "lane " + std::to_string(notice.lane);
  }
  if (notice.cause == errc::revoked && notice.origin != no_rank)
    return "rank " + std::to_string(notice.origin) + " called reset()";
  if (notice.origin != no_rank) {
    if (!text.empty()) text += ", ";
    text += "noticed by rank " + std::to_string(notice.origin);
  }
  return text;
}

}  // namespace

error to_error(const revoke& notice) {
  error e{notice.cause, detail_of(notice), notice.culprit};
  e.with_ticket(notice.ticket);
  return e;
}

}  // namespace chorale
