// Takes the io_uring backend's place in builds without liburing.
#include <chorale/async/backend.hpp>

namespace chorale {

result<std::unique_ptr<backend>> make_io_uring_backend(unsigned) {
  return error{errc::unsupported,
               "this build has no io_uring backend; install liburing and build again, or use epoll"};
}

}  // namespace chorale
