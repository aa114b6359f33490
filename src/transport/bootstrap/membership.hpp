// What the rendezvous collects and publishes: one record per member, and the table of an epoch.
//
// Plain values with a wire form (docs/wire.md). Decoding never trusts a length or a count.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/transport/bootstrap/bytes.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace chorale {

struct member_record {
  rank_t rank = 0;    ///< in the epoch that the record is given for
  rank_t origin = 0;  ///< in the job as launched
  rank_t size = 1;    ///< of the job as launched
  std::uint64_t capabilities = 0;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint16_t stripes = 1;
  std::uint16_t flags = 0;
  std::string host_id;
  std::string mate_name;               ///< abstract unix address of the listener for ranks of the same host
  std::vector<std::string> addresses;  ///< of the data listeners, most promising first

  /// In `flags`: data sockets between ranks of one host are wanted as well.
  static constexpr std::uint16_t wants_tcp = 1;
};

struct member_table {
  std::uint64_t epoch = 0;
  std::uint64_t nonce = 0;
  std::vector<member_record> members;  ///< by rank
};

void encode(const member_record& record, byte_writer& out);
[[nodiscard]] member_record decode_record(byte_reader& in);

void encode(const member_table& table, byte_writer& out);
[[nodiscard]] result<member_table> decode_table(std::span<const std::byte> bytes);

/// An error as it travels in a `refused` message.
void encode(const error& why, byte_writer& out);
[[nodiscard]] error decode_error(std::span<const std::byte> bytes);

/// "rank 2", "ranks 2 and 3", "ranks 0, 4 and 7", "ranks 1 to 9 and 12"
[[nodiscard]] std::string list_ranks(const std::vector<rank_t>& ascending);

}  // namespace chorale
