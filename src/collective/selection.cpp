#include <chorale/collective/selection.hpp>
#include <chorale/transport/frame.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace chorale {
namespace {

using algorithm = algorithm_kind;
using collective = collective_kind;

constexpr std::string_view names[algorithm_kinds] = {"auto",        "tiny",        "recursive_doubling",
                                                     "slice_owner", "ring",        "chain",
                                                     "binomial",    "double_tree", "direct",
                                                     "bruck",       "halving"};

/// Up to here latency counts: as few rounds as possible.
constexpr std::uint64_t small_bytes = 16 * 1024;
/// From here on a chain's pieces flow long enough to pay for its length, per rank.
constexpr std::uint64_t chain_bytes_a_rank = 512 * 1024;
/// With more ranks a rank that talks to all others has too many edges.
constexpr rank_t few_ranks = 16;

using mask = std::uint32_t;

constexpr mask bit(algorithm kind) noexcept { return mask{1} << static_cast<unsigned>(kind); }
constexpr mask bits(std::initializer_list<algorithm> kinds) noexcept {
  mask all = 0;
  for (const algorithm k : kinds) all |= bit(k);
  return all;
}

mask offered(collective kind) noexcept {
  switch (kind) {
    case collective::none:
    case collective::message:
      return 0;
    case collective::all_reduce:
    case collective::barrier:
      return bits({algorithm::tiny, algorithm::recursive_doubling, algorithm::slice_owner, algorithm::ring,
                   algorithm::chain});
    case collective::reduce:
      return bits({algorithm::binomial, algorithm::slice_owner});
    case collective::broadcast:
      return bits({algorithm::binomial, algorithm::chain});
    case collective::all_gather:
    case collective::all_gather_v:
      return bits({algorithm::ring, algorithm::direct});
    case collective::reduce_scatter:
    case collective::reduce_scatter_v:
      return bits({algorithm::ring, algorithm::slice_owner});
    case collective::all_to_all:
    case collective::all_to_all_v:
    case collective::gather:
    case collective::gather_v:
    case collective::scatter:
    case collective::scatter_v:
      return bits({algorithm::direct});
    case collective::scan:
    case collective::exscan:
      return bits({algorithm::chain});
  }
  return 0;
}

/// The operands of these keep the order of ranks.
constexpr mask ordered =
    bits({algorithm::tiny, algorithm::recursive_doubling, algorithm::slice_owner, algorithm::chain});
/// Left folds in rank order, in whatever type folds_wider says.
constexpr mask left_folds = bits({algorithm::tiny, algorithm::slice_owner});

/// In this order they lie in the encoded settings.
constexpr collective in_settings[] = {
    collective::all_reduce,   collective::reduce,         collective::broadcast,
    collective::all_gather,   collective::reduce_scatter, collective::all_to_all,
    collective::gather,       collective::scatter,        collective::scan,
    collective::exscan,       collective::all_gather_v,   collective::reduce_scatter_v,
    collective::all_to_all_v, collective::gather_v,       collective::scatter_v};

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool is_scan(collective kind) noexcept { return kind == collective::scan || kind == collective::exscan; }

algorithm choose_all_reduce(std::uint64_t bytes, rank_t ranks, bool wide) noexcept {
  if (wide) return ranks <= few_ranks ? algorithm::slice_owner : algorithm::ring;
  if (bytes <= small_bytes) return algorithm::recursive_doubling;
  return ranks <= few_ranks ? algorithm::slice_owner : algorithm::ring;
}

bool flows(std::uint64_t bytes, rank_t ranks) noexcept {
  return bytes >= chain_bytes_a_rank * static_cast<std::uint64_t>(ranks);
}

algorithm choose_freely(const call& what, rank_t ranks) noexcept {
  const std::uint64_t bytes = what.bytes();
  switch (what.kind) {
    case collective::none:
    case collective::message:
      break;
    case collective::barrier:
    case collective::all_reduce:
      return choose_all_reduce(bytes, ranks, folds_wider(what));
    case collective::reduce:
      return (bytes <= small_bytes && !folds_wider(what)) || ranks > few_ranks ? algorithm::binomial
                                                                               : algorithm::slice_owner;
    case collective::broadcast:
      return ranks > 2 && flows(bytes, ranks) ? algorithm::chain : algorithm::binomial;
    case collective::all_gather:
    case collective::all_gather_v:
      return ranks <= few_ranks ? algorithm::direct : algorithm::ring;
    case collective::reduce_scatter:
    case collective::reduce_scatter_v:
      return ranks <= few_ranks ? algorithm::slice_owner : algorithm::ring;
    case collective::all_to_all:
    case collective::all_to_all_v:
    case collective::gather:
    case collective::gather_v:
    case collective::scatter:
    case collective::scatter_v:
      return algorithm::direct;
    case collective::scan:
    case collective::exscan:
      return algorithm::chain;
  }
  return algorithm::automatic;
}

}  // namespace

std::string_view name_of(algorithm_kind kind) noexcept { return names[static_cast<std::size_t>(kind)]; }

result<algorithm_kind> parse_algorithm(std::string_view name) {
  std::string all;
  for (std::size_t i = 0; i < algorithm_kinds; ++i) {
    if (names[i] == name) return static_cast<algorithm_kind>(i);
    all += (i == 0 ? "" : ", ") + std::string{names[i]};
  }
  return error{errc::invalid_argument,
               "algorithm \"" + std::string{name} + "\" is unknown; choose one of " + all};
}

bool serves(algorithm_kind kind, collective_kind what) noexcept {
  return kind == algorithm::automatic || (offered(what) & bit(kind)) != 0;
}

std::string algorithms_for(collective_kind kind) {
  std::string list;
  for (std::size_t i = 1; i < algorithm_kinds; ++i)
    if ((offered(kind) & (mask{1} << i)) != 0) list += (list.empty() ? "" : ", ") + std::string{names[i]};
  return list;
}

void selection_settings::force(algorithm_kind kind) noexcept {
  for (const collective what : in_settings)
    if (serves(kind, what)) forced[static_cast<std::size_t>(what)] = kind;
}

result<void> selection_settings::force(std::string_view list) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    const std::string_view entry = trimmed(list.substr(0, comma));
    list = comma == std::string_view::npos ? std::string_view{} : list.substr(comma + 1);
    const std::size_t equals = entry.find('=');
    const bool bare = equals == std::string_view::npos;
    auto kind = parse_algorithm(trimmed(bare ? entry : entry.substr(equals + 1)));
    if (!kind) return std::move(kind).error();
    if (bare) {
      force(*kind);
      continue;
    }
    const std::string_view name = trimmed(entry.substr(0, equals));
    const auto* const found = std::find_if(std::begin(in_settings), std::end(in_settings),
                                           [&](collective what) { return name_of(what) == name; });
    if (found == std::end(in_settings))
      return error{errc::invalid_argument, "\"" + std::string{name} +
                                               "\" is no collective that has algorithms; write "
                                               "all_reduce=ring, broadcast=chain, …"};
    if (!serves(*kind, *found))
      return error{errc::invalid_argument, std::string{name} + " has no algorithm " +
                                               std::string{name_of(*kind)} + "; it has " +
                                               algorithms_for(*found)};
    forced[static_cast<std::size_t>(*found)] = *kind;
  }
  return {};
}

result<void> selection_settings::check() const {
  if (mode != reproducibility::deterministic) return {};
  for (const collective what : in_settings) {
    const algorithm kind = forced_for(what);
    if (!reduces(what) || kind == algorithm::automatic || is_scan(what) || (left_folds & bit(kind)) != 0)
      continue;
    return error{errc::invalid_argument, "deterministic results are folded in rank order, which " +
                                             std::string{name_of(kind)} + " does not do for " +
                                             std::string{name_of(what)} +
                                             "; force no algorithm, or slice_owner"};
  }
  return {};
}

std::uint64_t selection_settings::encoded() const noexcept {
  std::uint64_t code = std::uint64_t{mode == reproducibility::deterministic} | std::uint64_t{all_lines} << 1;
  unsigned at = 4;
  for (const collective what : in_settings) {
    code |= std::uint64_t{static_cast<std::uint8_t>(forced_for(what))} << at;
    at += 4;
  }
  return code;
}

selection_settings selection_settings::decoded(std::uint64_t code) noexcept {
  static_assert(4 + 4 * std::size(in_settings) <= 64 && algorithm_kinds <= 16);
  selection_settings s;
  s.mode = (code & 1) != 0 ? reproducibility::deterministic : reproducibility::same_on_all_ranks;
  s.all_lines = (code & 2) != 0;
  unsigned at = 4;
  for (const collective what : in_settings) {
    const auto kind = static_cast<algorithm>((code >> at) & 15);
    if (static_cast<std::size_t>(kind) < algorithm_kinds && serves(kind, what))
      s.forced[static_cast<std::size_t>(what)] = kind;
    at += 4;
  }
  return s;
}

result<selection_settings> selection_settings::from_environment() {
  selection_settings s;
  if (const char* list = std::getenv("CHORALE_ALGO")) {
    auto done = s.force(std::string_view{list});
    if (!done) return error{errc::invalid_argument, "CHORALE_ALGO: " + done.error().detail()};
  }
  if (const char* on = std::getenv("CHORALE_DETERMINISTIC")) {
    if (std::strcmp(on, "0") != 0 && std::strcmp(on, "1") != 0)
      return error{errc::invalid_argument, std::string{"CHORALE_DETERMINISTIC="} + on + ": write 0 or 1"};
    if (*on == '1') s.mode = reproducibility::deterministic;
  }
  return s;
}

bool folds_wider(const call& what) noexcept {
  if (!reduces(what.kind)) return false;
  switch (what.op) {
    case reduction::sum:
    case reduction::prod:
    case reduction::avg:
    case reduction::premul_sum:
      break;
    default:
      return false;
  }
  switch (what.type) {
    case dtype::f16:
    case dtype::bf16:
    case dtype::f8e4m3:
    case dtype::f8e5m2:
      return true;
    default:
      return false;
  }
}

algorithm_kind choose(const selection_settings& settings, const call& what, rank_t ranks) noexcept {
  const bool as_all_reduce = what.kind == collective::barrier || what.carries_nothing();
  const collective kind = as_all_reduce ? collective::all_reduce : what.kind;
  const bool fits_line = settings.all_lines && kind == collective::all_reduce && ranks <= few_ranks &&
                         what.bytes() <= tiny_line::capacity && pack(signature_of(what));
  mask allowed = offered(kind) & ~bit(algorithm::tiny);
  if (fits_line) allowed |= bit(algorithm::tiny);
  if (reduces(kind)) {
    if (what.op == reduction::user && what.user.order == commutativity::unknown) allowed &= ordered;
    if (settings.mode == reproducibility::deterministic && !is_scan(kind)) allowed &= left_folds;
  }
  const algorithm forced = settings.forced_for(kind);
  if (forced != algorithm::automatic && (allowed & bit(forced)) != 0) return forced;
  if (fits_line) return algorithm::tiny;
  const algorithm free = choose_freely(what.carries_nothing() ? call{.kind = kind} : what, ranks);
  // What keeps the order of ranks or folds from the left exists for every reduction.
  return (allowed & bit(free)) != 0 ? free : algorithm::slice_owner;
}

}  // namespace chorale
