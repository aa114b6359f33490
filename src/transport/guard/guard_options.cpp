#include <chorale/transport/guard/guard_options.hpp>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace chorale {
namespace {

/// Seconds as written in the environment; a day is the longest that makes sense.
std::optional<std::chrono::nanoseconds> parse_seconds(std::string_view text) {
  double seconds = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (failed != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (!(seconds >= 0 && seconds <= 86400)) return std::nullopt;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>{seconds});
}

error refuse(const char* variable, const char* value, const char* wanted) {
  return error{errc::invalid_argument, std::string{variable} + "=\"" + value + "\": set it to " + wanted};
}

}  // namespace

result<guard_options> guard_options::from_environment() {
  guard_options options;
  if (const char* text = std::getenv("CHORALE_PEER_TIMEOUT")) {
    const auto seconds = parse_seconds(text);
    if (!seconds) return refuse("CHORALE_PEER_TIMEOUT", text, "seconds (0 = never, at most 86400)");
    options.peer_timeout = *seconds;
  }
  if (const char* text = std::getenv("CHORALE_LINK_TIMEOUT")) {
    const auto seconds = parse_seconds(text);
    if (!seconds || seconds->count() == 0)
      return refuse("CHORALE_LINK_TIMEOUT", text, "seconds (above 0, at most 86400)");
    options.link_timeout = *seconds;
  }
  if (const char* text = std::getenv("CHORALE_FATAL_SIGNALS")) {
    if (std::strcmp(text, "leave_alone") == 0)
      options.signals = fatal_signals::leave_alone;
    else if (std::strcmp(text, "announce") != 0)
      return refuse("CHORALE_FATAL_SIGNALS", text, "announce or leave_alone");
  }
  return options;
}

}  // namespace chorale
