#include <chorale/async/backend.hpp>

#include <cstdlib>
#include <string>
#include <string_view>

namespace chorale {
namespace {

result<backend_kind> kind_from_environment() {
  const char* text = std::getenv("CHORALE_BACKEND");
  const std::string_view wanted = text ? text : "auto";
  if (wanted == "auto" || wanted.empty()) return backend_kind::automatic;
  if (wanted == "io_uring") return backend_kind::io_uring;
  if (wanted == "epoll") return backend_kind::epoll;
  return error{errc::invalid_argument,
               "CHORALE_BACKEND=" + std::string{wanted} + " names no backend; write io_uring, epoll or auto"};
}

}  // namespace

result<std::unique_ptr<backend>> make_backend(backend_kind kind) {
  if (kind == backend_kind::automatic) {
    auto wanted = kind_from_environment();
    if (!wanted) return std::move(wanted).error();
    kind = *wanted;
  }
  if (kind == backend_kind::epoll) return make_epoll_backend();
  auto made = make_io_uring_backend();
  if (made || kind == backend_kind::io_uring) return made;
  return make_epoll_backend();
}

}  // namespace chorale
