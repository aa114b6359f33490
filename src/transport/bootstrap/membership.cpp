#include <chorale/transport/bootstrap/membership.hpp>

#include <algorithm>

namespace chorale {
namespace {

constexpr std::size_t most_addresses = 64;
constexpr std::size_t smallest_record = 38;

}  // namespace

void encode(const member_record& record, byte_writer& out) {
  out.put(record.rank);
  out.put(record.origin);
  out.put(record.size);
  out.put(record.capabilities);
  out.put(record.pid);
  out.put(record.uid);
  out.put(record.stripes);
  out.put(record.flags);
  out.put_text(record.host_id);
  out.put_text(record.mate_name);
  const std::size_t count = std::min(record.addresses.size(), most_addresses);
  out.put(static_cast<std::uint16_t>(count));
  for (std::size_t i = 0; i < count; ++i) out.put_text(record.addresses[i]);
}

member_record decode_record(byte_reader& in) {
  member_record record;
  record.rank = in.take<rank_t>();
  record.origin = in.take<rank_t>();
  record.size = in.take<rank_t>();
  record.capabilities = in.take<std::uint64_t>();
  record.pid = in.take<std::int32_t>();
  record.uid = in.take<std::uint32_t>();
  record.stripes = in.take<std::uint16_t>();
  record.flags = in.take<std::uint16_t>();
  record.host_id = in.take_text();
  record.mate_name = in.take_text();
  const std::size_t count = std::min<std::size_t>(in.take<std::uint16_t>(), most_addresses);
  for (std::size_t i = 0; i < count && !in.overrun(); ++i) record.addresses.push_back(in.take_text());
  return record;
}

void encode(const member_table& table, byte_writer& out) {
  out.put(table.epoch);
  out.put(table.nonce);
  out.put(static_cast<std::uint32_t>(table.members.size()));
  for (const member_record& record : table.members) encode(record, out);
}

result<member_table> decode_table(std::span<const std::byte> bytes) {
  byte_reader in{bytes};
  member_table table;
  table.epoch = in.take<std::uint64_t>();
  table.nonce = in.take<std::uint64_t>();
  const std::size_t count = in.take<std::uint32_t>();
  if (count > in.left() / smallest_record)
    return error{errc::protocol_error, "a table of members is cut short"};
  table.members.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    table.members.push_back(decode_record(in));
    if (table.members.back().rank != static_cast<rank_t>(i))
      return error{errc::protocol_error, "a table of members is out of order"};
  }
  if (!in.complete() || count == 0) return error{errc::protocol_error, "a table of members is malformed"};
  return table;
}

void encode(const error& why, byte_writer& out) {
  out.put(static_cast<std::int32_t>(why.code()));
  out.put(why.culprit());
  out.put_text(why.detail());
}

error decode_error(std::span<const std::byte> bytes) {
  byte_reader in{bytes};
  const auto code = static_cast<errc>(in.take<std::int32_t>());
  const auto culprit = in.take<rank_t>();
  std::string detail = in.take_text();
  if (!in.complete() || code == errc::ok)
    return error{errc::protocol_error, "the rendezvous sent a malformed refusal"};
  return error{code, std::move(detail), culprit};
}

std::string list_ranks(const std::vector<rank_t>& ascending) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ascending.size();) {
    std::size_t last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    if (last - i >= 2) {
      parts.push_back(std::to_string(ascending[i]) + " to " + std::to_string(ascending[last]));
    } else {
      for (std::size_t k = i; k <= last; ++k) parts.push_back(std::to_string(ascending[k]));
    }
    i = last + 1;
  }
  std::string text = ascending.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i != 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

}  // namespace chorale
