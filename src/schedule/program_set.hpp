// The programs of all ranks side by side, with every message paired: what the checker's passes look at.
//
// `load` refuses what is malformed step by step (ranks, blocks, dependencies) or message by message (a send
// without its receive, different sizes). Steps are numbered through all ranks: step i of rank r is
// first_step(r) + i; messages are numbered edge by edge, in order. Immutable once loaded.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/schedule/schedule.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace chorale::schedule {

using global_step = std::uint32_t;
using message_index = std::uint32_t;
inline constexpr message_index no_message = ~message_index{0};

struct message {
  global_step sender = 0;
  global_step receiver = 0;
  std::uint32_t number_on_edge = 0;  ///< counts from 0
  std::uint32_t left_on_edge = 0;    ///< messages after this one
};

class program_set {
 public:
  [[nodiscard]] static result<program_set> load(const algorithm& schedule, placement form);

  [[nodiscard]] share_lengths lengths() const noexcept { return lengths_; }
  [[nodiscard]] rank_t ranks() const noexcept { return static_cast<rank_t>(programs_.size()); }
  [[nodiscard]] const rank_program& program(rank_t rank) const { return programs_[index(rank)]; }
  [[nodiscard]] global_step step_count() const noexcept { return first_step_.back(); }
  [[nodiscard]] global_step first_step(rank_t rank) const { return first_step_[index(rank)]; }
  [[nodiscard]] rank_t rank_of(global_step s) const { return rank_of_[s]; }
  [[nodiscard]] step_index index_of(global_step s) const { return s - first_step(rank_of(s)); }
  [[nodiscard]] const step& at(global_step s) const { return program(rank_of(s)).steps()[index_of(s)]; }

  [[nodiscard]] std::span<const message> messages() const noexcept { return messages_; }
  [[nodiscard]] std::uint64_t edges() const noexcept { return edges_; }
  [[nodiscard]] message_index sent_by(global_step s) const { return sent_[s]; }
  [[nodiscard]] message_index received_by(global_step s) const { return received_[s]; }

  /// Blocks as positions in one array per rank: input, output (one buffer in place), then scratch.
  [[nodiscard]] std::uint32_t location(rank_t rank, const block_ref& ref) const;
  [[nodiscard]] std::uint32_t locations(rank_t rank) const;

  [[nodiscard]] std::string name_of_step(global_step s) const {
    return describe(rank_of(s), index_of(s), at(s));
  }
  /// errc::invalid_argument: "NAME: rank 3, step 17 (…) WHAT".
  [[nodiscard]] error fault(global_step s, const std::string& what) const;

 private:
  program_set(const algorithm& schedule, placement form)
      : name_{schedule.name()},
        what_{schedule.what()},
        form_{form},
        unit_{schedule.unit()},
        lengths_{schedule.lengths()} {}
  static std::size_t index(rank_t rank) { return static_cast<std::size_t>(rank); }
  result<> load_programs(const algorithm& schedule);
  result<> check_step(global_step s) const;
  result<> check_blocks(global_step s, const block_ref& ref) const;
  result<> pair_messages();

  std::string name_;
  definition what_;
  placement form_;
  step_unit unit_;
  share_lengths lengths_;
  std::vector<rank_program> programs_;
  std::vector<global_step> first_step_;
  std::vector<rank_t> rank_of_;
  std::vector<message> messages_;
  std::vector<message_index> sent_;
  std::vector<message_index> received_;
  std::uint64_t edges_ = 0;
};

}  // namespace chorale::schedule
