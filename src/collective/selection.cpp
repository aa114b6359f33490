#include <chorale/collective/selection.hpp>
#include <chorale/collective/tiny_exchange.hpp>
#include <chorale/transport/frame.hpp>

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
                                                     "bruck",       "halving",     "hierarchical"};

/// Up to here latency counts: as few rounds as possible.
constexpr std::uint64_t small_bytes = 16 * 1024;
/// Up to here every rank may as well be written to at once.
constexpr std::uint64_t direct_bytes = 8 * 1024;
/// From here on a chain's pieces flow long enough to pay for its length, per rank.
constexpr std::uint64_t chain_bytes_a_rank = 512 * 1024;
/// From here on two trees share the work that one leaves to few.
constexpr std::uint64_t double_tree_bytes = 256 * 1024;
/// Up to here messages that cannot be cut into pieces do no harm.
constexpr std::uint64_t whole_bytes = std::uint64_t{4} << 20;
/// Shares up to here travel together, several times over, rather than alone.
constexpr std::uint64_t packed_bytes = 256;
/// With more ranks a rank that talks to all others has too many edges.
constexpr rank_t few_ranks = 16;
constexpr rank_t very_few_ranks = 8;

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
                   algorithm::chain, algorithm::double_tree, algorithm::halving, algorithm::hierarchical});
    case collective::reduce:
      return bits({algorithm::binomial, algorithm::slice_owner, algorithm::chain, algorithm::double_tree,
                   algorithm::direct});
    case collective::broadcast:
      return bits({algorithm::tiny, algorithm::binomial, algorithm::chain, algorithm::double_tree,
                   algorithm::direct});
    case collective::all_gather:
      return bits({algorithm::tiny, algorithm::ring, algorithm::direct, algorithm::recursive_doubling,
                   algorithm::bruck});
    case collective::all_gather_v:
    case collective::split:
    case collective::window:
      return bits({algorithm::ring, algorithm::direct, algorithm::recursive_doubling, algorithm::bruck});
    case collective::reduce_scatter:
    case collective::reduce_scatter_v:
      return bits({algorithm::ring, algorithm::slice_owner, algorithm::halving});
    case collective::all_to_all:
      return bits({algorithm::tiny, algorithm::direct, algorithm::bruck});
    case collective::all_to_all_v:
      return bits({algorithm::direct});
    case collective::gather:
    case collective::gather_v:
    case collective::scatter:
    case collective::scatter_v:
      return bits({algorithm::direct, algorithm::binomial});
    case collective::scan:
    case collective::exscan:
      return bits({algorithm::chain, algorithm::recursive_doubling, algorithm::direct});
  }
  return 0;
}

bool is_scan(collective kind) noexcept { return kind == collective::scan || kind == collective::exscan; }

/// The operands keep the order of ranks.
mask ordered(collective kind) noexcept {
  mask keep = bits({algorithm::tiny, algorithm::recursive_doubling, algorithm::slice_owner, algorithm::chain,
                    algorithm::direct});
  if (kind == collective::all_reduce) keep |= bit(algorithm::halving);
  return keep;
}

/// Left folds in rank order. Ones in f32 that is rounded once, where folds are kept wider than elements.
mask left_folds(collective kind, bool wide) noexcept {
  const mask folds = is_scan(kind) ? bit(algorithm::direct)
                                   : bits({algorithm::tiny, algorithm::slice_owner, algorithm::direct});
  return wide ? folds : folds | bit(algorithm::chain);
}

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

bool flows(std::uint64_t bytes, rank_t ranks) noexcept {
  return bytes >= chain_bytes_a_rank * static_cast<std::uint64_t>(ranks);
}

algorithm choose_all_reduce(const selection_settings& settings, std::uint64_t bytes, rank_t ranks,
                            bool wide) noexcept {
  if (wide && ranks <= few_ranks) return algorithm::slice_owner;
  if (bytes <= small_bytes) return algorithm::recursive_doubling;
  if (settings.hosts_of_several && bytes > small_bytes) return algorithm::hierarchical;
  if (ranks <= few_ranks) return algorithm::slice_owner;
  return bytes <= whole_bytes ? algorithm::halving : algorithm::ring;
}

algorithm choose_reduce(std::uint64_t bytes, rank_t ranks, bool wide) noexcept {
  if (bytes <= direct_bytes && ranks <= very_few_ranks) return algorithm::direct;
  if (ranks <= few_ranks && (wide || bytes > small_bytes)) return algorithm::slice_owner;
  if (flows(bytes, ranks)) return algorithm::chain;
  return bytes >= double_tree_bytes ? algorithm::double_tree : algorithm::binomial;
}

algorithm choose_broadcast(std::uint64_t bytes, rank_t ranks) noexcept {
  if (ranks == 2 || (bytes <= direct_bytes && ranks <= very_few_ranks)) return algorithm::direct;
  if (flows(bytes, ranks)) return algorithm::chain;
  return bytes >= double_tree_bytes ? algorithm::double_tree : algorithm::binomial;
}

algorithm choose_freely(const selection_settings& settings, const call& what, rank_t ranks) noexcept {
  const std::uint64_t bytes = what.bytes();
  const bool few = ranks <= few_ranks;
  switch (what.kind) {
    case collective::none:
    case collective::message:
      break;
    case collective::barrier:
    case collective::all_reduce:
      return choose_all_reduce(settings, bytes, ranks, folds_wider(what));
    case collective::reduce:
      return choose_reduce(bytes, ranks, folds_wider(what));
    case collective::broadcast:
      return choose_broadcast(bytes, ranks);
    case collective::all_gather:
    case collective::split:
    case collective::window:
      return few ? algorithm::direct : bytes <= direct_bytes ? algorithm::bruck : algorithm::ring;
    case collective::all_gather_v:
      return few ? algorithm::direct : algorithm::ring;
    case collective::reduce_scatter:
    case collective::reduce_scatter_v:
      return few ? algorithm::slice_owner : bytes <= whole_bytes ? algorithm::halving : algorithm::ring;
    case collective::all_to_all:
      return ranks > very_few_ranks && bytes <= packed_bytes * static_cast<std::uint64_t>(ranks)
                 ? algorithm::bruck
                 : algorithm::direct;
    case collective::gather:
    case collective::scatter:
      return few || bytes > direct_bytes ? algorithm::direct : algorithm::binomial;
    case collective::all_to_all_v:
    case collective::gather_v:
    case collective::scatter_v:
      return algorithm::direct;
    case collective::scan:
    case collective::exscan:
      if (few && folds_wider(what)) return algorithm::direct;
      return ranks > 2 && bytes <= small_bytes ? algorithm::recursive_doubling : algorithm::chain;
  }
  return algorithm::automatic;
}

result<collective> parse_collective(std::string_view name) {
  for (const collective what : in_settings)
    if (name_of(what) == name) return what;
  return error{errc::invalid_argument, "\"" + std::string{name} +
                                           "\" is no collective that has algorithms; write "
                                           "all_reduce=ring, broadcast=chain, …"};
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
  std::array<algorithm_kind, collective_kinds> named{};
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
    auto what = parse_collective(trimmed(entry.substr(0, equals)));
    if (!what) return std::move(what).error();
    if (!serves(*kind, *what))
      return error{errc::invalid_argument, std::string{name_of(*what)} + " has no algorithm " +
                                               std::string{name_of(*kind)} + "; it has " +
                                               algorithms_for(*what)};
    named[static_cast<std::size_t>(*what)] = *kind;
  }
  for (const collective what : in_settings)
    if (const algorithm kind = named[static_cast<std::size_t>(what)]; kind != algorithm::automatic)
      forced[static_cast<std::size_t>(what)] = kind;
  return {};
}

result<void> selection_settings::check() const {
  if (mode != reproducibility::deterministic) return {};
  for (const collective what : in_settings) {
    const algorithm kind = forced_for(what);
    if (!reduces(what) || kind == algorithm::automatic || (left_folds(what, false) & bit(kind)) != 0)
      continue;
    return error{errc::invalid_argument, "deterministic results are folded in rank order, which " +
                                             std::string{name_of(kind)} + " does not do for " +
                                             std::string{name_of(what)} +
                                             " here; force none, or slice_owner, or chain"};
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

bool keeps_folds_wide(algorithm_kind kind, const call& what) noexcept {
  switch (kind) {
    case algorithm::slice_owner:
      return true;
    case algorithm::direct:
      return what.kind == collective::reduce || is_scan(what.kind);
    case algorithm::hierarchical:
      return what.op != reduction::avg;  // the division belongs to the last fold, and there are two
    default:
      return false;
  }
}

algorithm_kind choose(const selection_settings& settings, const call& what, rank_t ranks) noexcept {
  const bool as_all_reduce = what.kind == collective::barrier || what.carries_nothing();
  const collective kind = as_all_reduce ? collective::all_reduce : what.kind;
  const bool fits_line =
      settings.all_lines && (offered(kind) & bit(algorithm::tiny)) != 0 && ranks <= few_ranks &&
      tiny_exchange::line_bytes(what, ranks) <= tiny_line::capacity && pack(signature_of(what));
  mask allowed = offered(kind) & ~bit(algorithm::tiny);
  if (fits_line) allowed |= bit(algorithm::tiny);
  if (reduces(kind)) {
    if (what.op == reduction::user && what.user.order == commutativity::unknown) allowed &= ordered(kind);
    if (settings.mode == reproducibility::deterministic) allowed &= left_folds(kind, folds_wider(what));
  }
  const algorithm forced = settings.forced_for(kind);
  if (forced != algorithm::automatic && (allowed & bit(forced)) != 0) return forced;
  if (fits_line) return algorithm::tiny;
  const algorithm free = choose_freely(settings, what.carries_nothing() ? call{.kind = kind} : what, ranks);
  if ((allowed & bit(free)) != 0) return free;
  // These keep the order of ranks and fold from the left.
  if (!is_scan(kind)) return algorithm::slice_owner;
  return folds_wider(what) ? algorithm::direct : algorithm::chain;
}

}  // namespace chorale
