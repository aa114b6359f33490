#include <chorale/api/endpoint_message.hpp>

#include <string>

namespace chorale {

error payload::fault() const {
  if (head_.size() > longest_head)
    return error{errc::invalid_argument, "a head of " + std::to_string(head_.size()) + " bytes; up to " +
                                             std::to_string(longest_head) + " fit, the rest is for values"};
  if (dimensions_ == 0) return {};
  if (type_ == dtype::none)
    return error{errc::invalid_argument, "plain bytes were given a shape; send values of an element type"};
  if (dimensions_ > most_dimensions)
    return error{errc::invalid_argument, "a shape of more than 8 dimensions; fold some into one"};
  std::uint64_t count = 1;
  bool overflow = false;
  for (const std::uint64_t extent : shape())
    overflow = __builtin_mul_overflow(count, extent, &count) || overflow;
  if (overflow || count != values_.size() / size_of(type_))
    return error{errc::invalid_argument, "the shape stands for " + std::to_string(count) +
                                             " values, given were " +
                                             std::to_string(values_.size() / size_of(type_))};
  return {};
}

void peer_message::require(dtype wanted) const {
  if (type_ == wanted) return;
  throw failure{
      error{errc::mismatch, "the message with tag " + std::to_string(tag_) + " holds " +
                                (type_ == dtype::none ? "plain bytes" : std::string{name_of(type_)}) +
                                ", asked for was " + std::string{name_of(wanted)}}};
}

void peer_message::require_head(std::size_t bytes) const {
  if (head_.size() == bytes) return;
  throw failure{error{errc::mismatch, "the message with tag " + std::to_string(tag_) + " has a head of " +
                                          std::to_string(head_.size()) + " bytes, asked for were " +
                                          std::to_string(bytes)}};
}

}  // namespace chorale
