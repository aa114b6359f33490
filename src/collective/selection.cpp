#include <chorale/collective/selection.hpp>
#include <chorale/schedule/generators.hpp>
#include <chorale/schedule/lowering.hpp>
#include <chorale/transport/frame.hpp>

#include <cstdlib>
#include <cstring>

namespace chorale {
namespace {

constexpr std::string_view names[] = {"auto", "tiny", "recursive_doubling", "slice_owner", "ring"};

/// Up to here latency counts: as few rounds as possible.
constexpr std::uint64_t small_bytes = 16 * 1024;
/// From here on messages are cut, so that a piece is forwarded while the next arrives.
constexpr std::uint64_t piece_bytes = 256 * 1024;
/// With more ranks a slice owner has too many edges for its bandwidth.
constexpr rank_t most_slice_owners = 16;
constexpr rank_t most_tiny_ranks = 16;

result<schedule::algorithm> generate(algorithm_kind kind, rank_t ranks, std::uint64_t bytes) {
  switch (kind) {
    case algorithm_kind::recursive_doubling:
      return schedule::recursive_doubling_all_reduce(ranks);
    case algorithm_kind::ring:
      return schedule::ring_all_reduce(ranks);
    case algorithm_kind::slice_owner: {
      // Streaming needs no staging memory; staging lets peers finish out of turn, which pays while parts are
      // small.
      const bool staged = ranks > 2 && bytes <= std::uint64_t{1} << 20;
      return schedule::slice_owner_all_reduce(
          ranks, staged ? schedule::fold_style::staged : schedule::fold_style::streamed);
    }
    case algorithm_kind::automatic:
    case algorithm_kind::tiny:
      break;
  }
  return error{errc::invalid_state, "no schedule for algorithm " + std::string{name_of(kind)}};
}

}  // namespace

std::string_view name_of(algorithm_kind kind) noexcept { return names[static_cast<std::size_t>(kind)]; }

result<algorithm_kind> parse_algorithm(std::string_view name) {
  for (std::size_t i = 0; i < std::size(names); ++i)
    if (names[i] == name) return static_cast<algorithm_kind>(i);
  return error{errc::invalid_argument,
               "algorithm \"" + std::string{name} +
                   "\" is unknown; choose auto, tiny, recursive_doubling, slice_owner or ring"};
}

std::uint64_t selection_settings::encoded() const noexcept {
  return std::uint64_t{static_cast<std::uint8_t>(forced)} |
         std::uint64_t{static_cast<std::uint8_t>(mode)} << 8 | std::uint64_t{all_lines} << 16;
}

selection_settings selection_settings::decoded(std::uint64_t bits) noexcept {
  selection_settings s;
  const auto forced = static_cast<std::uint8_t>(bits);
  s.forced = forced < std::size(names) ? static_cast<algorithm_kind>(forced) : algorithm_kind::automatic;
  s.mode = ((bits >> 8) & 0xff) == 1 ? reproducibility::deterministic : reproducibility::same_on_all_ranks;
  s.all_lines = ((bits >> 16) & 1) != 0;
  return s;
}

result<selection_settings> selection_settings::from_environment() {
  selection_settings s;
  if (const char* name = std::getenv("CHORALE_ALGO")) {
    auto parsed = parse_algorithm(name);
    if (!parsed) return error{errc::invalid_argument, "CHORALE_ALGO: " + parsed.error().detail()};
    s.forced = *parsed;
  }
  if (const char* on = std::getenv("CHORALE_DETERMINISTIC")) {
    if (std::strcmp(on, "0") != 0 && std::strcmp(on, "1") != 0)
      return error{errc::invalid_argument, std::string{"CHORALE_DETERMINISTIC="} + on + ": write 0 or 1"};
    if (*on == '1') s.mode = reproducibility::deterministic;
  }
  if (s.mode == reproducibility::deterministic && s.forced != algorithm_kind::automatic &&
      s.forced != algorithm_kind::slice_owner && s.forced != algorithm_kind::tiny)
    return error{errc::invalid_argument, "CHORALE_DETERMINISTIC=1 folds in rank order, which " +
                                             std::string{name_of(s.forced)} +
                                             " does not; unset CHORALE_ALGO"};
  return s;
}

algorithm_kind choose_all_reduce(const selection_settings& settings, rank_t ranks,
                                 std::uint64_t bytes) noexcept {
  const bool fits_line = settings.all_lines && bytes <= tiny_line::capacity && ranks <= most_tiny_ranks;
  if (settings.forced != algorithm_kind::automatic && (settings.forced != algorithm_kind::tiny || fits_line))
    return settings.forced;
  if (fits_line) return algorithm_kind::tiny;
  if (settings.mode == reproducibility::deterministic) return algorithm_kind::slice_owner;
  if (bytes <= small_bytes) return algorithm_kind::recursive_doubling;
  return ranks <= most_slice_owners ? algorithm_kind::slice_owner : algorithm_kind::ring;
}

result<std::shared_ptr<const schedule::plan>> plan_cache::all_reduce(const plan_key& key) {
  if (const auto known = index_.find(key); known != index_.end()) {
    recent_.splice(recent_.begin(), recent_, known->second);
    return recent_.front().second;
  }
  auto made = generate(key.algorithm, ranks_, key.count * key.element_bytes);
  if (!made) return std::move(made).error();
  // Blocks begin at cache lines, so that two ranks never write one.
  const std::uint64_t grain = std::max<std::uint64_t>(1, 64 / key.element_bytes);
  const auto blocks = schedule::block_map::even(made->what(), key.count, key.count >= 64 * grain ? grain : 1);
  schedule::lowering_options options;
  options.element_bytes = key.element_bytes;
  options.form = key.in_place ? schedule::placement::in_place : schedule::placement::out_of_place;
  options.pieces = schedule::pieces_within(blocks, key.element_bytes, piece_bytes);
  auto lowered = schedule::lower(*made, rank_, blocks, options);
  if (!lowered) return std::move(lowered).error();
  recent_.emplace_front(key, std::make_shared<const schedule::plan>(std::move(*lowered)));
  index_[key] = recent_.begin();
  if (recent_.size() > capacity) {
    index_.erase(recent_.back().first);
    recent_.pop_back();
  }
  return recent_.front().second;
}

}  // namespace chorale
