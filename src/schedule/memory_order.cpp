#include <chorale/schedule/memory_order.hpp>

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

namespace chorale::schedule {
namespace {

/// Steps numbered so that predecessors have smaller numbers.
struct step_graph {
  std::vector<global_step> step_at;
  std::vector<std::size_t> first_before;  ///< node → range of `before`
  std::vector<std::uint32_t> before;
};

struct access {
  std::uint64_t location;  ///< of all ranks
  std::uint32_t node;
  bool writes;
};

/// "`later` must come after `earlier`": enough of these imply it for all pairs on a location.
struct demand {
  std::uint32_t earlier;
  std::uint32_t later;
};

void add_accesses(const program_set& set, global_step s, std::uint32_t node, std::uint64_t base,
                  std::vector<access>& accesses) {
  const step& it = set.at(s);
  const rank_t rank = set.rank_of(s);
  const auto add = [&](const block_ref& ref, bool writes) {
    const std::uint32_t first = set.location(rank, ref);
    for (std::uint32_t b = 0; b < ref.count; ++b) accesses.push_back({base + first + b, node, writes});
  };
  const bool onto_itself =
      it.kind == step_kind::copy && set.location(rank, it.src) == set.location(rank, it.dst);
  if (onto_itself) return;  // in place only; lowering drops it
  if (reads_src(it.kind)) add(it.src, false);
  if (writes_dst(it.kind)) add(it.dst, true);
}

std::vector<demand> demands_of(std::vector<access>& accesses) {
  // At one node the write stands for the read of the same block.
  std::sort(accesses.begin(), accesses.end(), [](const access& a, const access& b) {
    return std::tuple{a.location, a.node, !a.writes} < std::tuple{b.location, b.node, !b.writes};
  });
  std::vector<demand> demands;
  std::optional<std::uint32_t> write;
  std::vector<std::uint32_t> reads;
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const access& a = accesses[i];
    if (i == 0 || accesses[i - 1].location != a.location) {
      write.reset();
      reads.clear();
    } else if (accesses[i - 1].node == a.node) {
      continue;
    }
    if (!a.writes) {
      if (write) demands.push_back({*write, a.node});
      reads.push_back(a.node);
      continue;
    }
    for (const std::uint32_t r : reads) demands.push_back({r, a.node});
    if (reads.empty() && write) demands.push_back({*write, a.node});
    reads.clear();
    write = a.node;
  }
  return demands;
}

/// The first demand that no path through the graph meets. Ancestors are bitsets over a stripe of nodes at a
/// time, so that memory stays linear in the graph.
std::optional<demand> first_unmet(const step_graph& graph, std::vector<demand> demands) {
  std::erase_if(demands, [&](const demand& d) {
    const auto begin = graph.before.begin() + static_cast<std::ptrdiff_t>(graph.first_before[d.later]);
    const auto end = graph.before.begin() + static_cast<std::ptrdiff_t>(graph.first_before[d.later + 1]);
    return std::find(begin, end, d.earlier) != end;
  });
  if (demands.empty()) return std::nullopt;
  std::sort(demands.begin(), demands.end(), [](const demand& a, const demand& b) {
    return std::tuple{a.earlier, a.later} < std::tuple{b.earlier, b.later};
  });

  const std::size_t nodes = graph.step_at.size();
  const std::size_t words = std::min<std::size_t>(64, (nodes + 63) / 64);
  std::vector<std::uint64_t> ancestors(nodes * words);
  std::optional<demand> unmet;
  std::size_t next = 0;
  while (next < demands.size()) {
    const std::size_t begin = demands[next].earlier / 64 * 64;
    const std::size_t end = std::min(nodes, begin + words * 64);
    std::fill(ancestors.begin(), ancestors.end(), 0);
    for (std::size_t node = begin; node < nodes; ++node) {
      std::uint64_t* mine = &ancestors[node * words];
      for (std::size_t i = graph.first_before[node]; i < graph.first_before[node + 1]; ++i) {
        const std::uint32_t p = graph.before[i];
        if (p < begin) continue;
        if (p < end) mine[(p - begin) / 64] |= std::uint64_t{1} << ((p - begin) % 64);
        const std::uint64_t* theirs = &ancestors[p * words];
        for (std::size_t w = 0; w < words; ++w) mine[w] |= theirs[w];
      }
    }
    for (; next < demands.size() && demands[next].earlier < end; ++next) {
      const demand& d = demands[next];
      const std::size_t bit = d.earlier - begin;
      const bool met = (ancestors[d.later * words + bit / 64] >> (bit % 64) & 1) != 0;
      if (!met && (!unmet || d.later < unmet->later)) unmet = d;
    }
  }
  return unmet;
}

struct touch {
  const block_ref* ref;
  bool writes;
};

std::vector<touch> touches_of(const step& s) {
  std::vector<touch> all;
  if (writes_dst(s.kind)) all.push_back({&s.dst, true});
  if (reads_src(s.kind)) all.push_back({&s.src, false});
  return all;
}

/// What two steps quarrel over, for the message.
std::string shared_blocks(const program_set& set, global_step a, global_step b) {
  const rank_t rank = set.rank_of(a);
  for (const touch& of_a : touches_of(set.at(a))) {
    for (const touch& of_b : touches_of(set.at(b))) {
      const std::uint32_t from_a = set.location(rank, *of_a.ref);
      const std::uint32_t from_b = set.location(rank, *of_b.ref);
      const bool overlap = from_a < from_b + of_b.ref->count && from_b < from_a + of_a.ref->count;
      if (overlap && (of_a.writes || of_b.writes)) return describe(*of_b.ref);
    }
  }
  return "a block";
}

result<> judge(const program_set& set, const step_graph& graph, std::vector<access>& accesses) {
  const auto unmet = first_unmet(graph, demands_of(accesses));
  if (!unmet) return {};
  const global_step earlier = graph.step_at[unmet->earlier];
  const global_step later = graph.step_at[unmet->later];
  return set.fault(later, "touches " + shared_blocks(set, earlier, later) + " as " +
                              set.name_of_step(earlier) +
                              " does, one of them writing, and nothing orders them: add a dependency");
}

}  // namespace

result<> ordered_by_dependencies(const program_set& set) {
  for (rank_t rank = 0; rank < set.ranks(); ++rank) {
    const rank_program& program = set.program(rank);
    step_graph graph;
    std::vector<access> accesses;
    graph.step_at.resize(program.steps().size());
    std::iota(graph.step_at.begin(), graph.step_at.end(), set.first_step(rank));
    for (std::uint32_t node = 0; node < graph.step_at.size(); ++node) {
      graph.first_before.push_back(graph.before.size());
      const auto dependencies = program.dependencies(program.steps()[node]);
      graph.before.insert(graph.before.end(), dependencies.begin(), dependencies.end());
      add_accesses(set, graph.step_at[node], node, 0, accesses);
    }
    graph.first_before.push_back(graph.before.size());
    if (auto sound = judge(set, graph, accesses); !sound) return sound;
  }
  return {};
}

result<> ordered_through_messages(const program_set& set, std::span<const global_step> order) {
  std::vector<std::uint64_t> base(static_cast<std::size_t>(set.ranks()) + 1, 0);
  for (rank_t r = 0; r < set.ranks(); ++r)
    base[static_cast<std::size_t>(r) + 1] = base[static_cast<std::size_t>(r)] + set.locations(r);
  std::vector<std::uint32_t> node_of(order.size());
  for (std::uint32_t node = 0; node < order.size(); ++node) node_of[order[node]] = node;

  step_graph graph;
  std::vector<access> accesses;
  graph.step_at.assign(order.begin(), order.end());
  for (std::uint32_t node = 0; node < order.size(); ++node) {
    const global_step s = order[node];
    const rank_t rank = set.rank_of(s);
    graph.first_before.push_back(graph.before.size());
    for (const step_index d : set.program(rank).dependencies(set.at(s)))
      graph.before.push_back(node_of[set.first_step(rank) + d]);
    if (const message_index m = set.received_by(s); m != no_message)
      graph.before.push_back(node_of[set.messages()[m].sender]);
    add_accesses(set, s, node, base[static_cast<std::size_t>(rank)], accesses);
  }
  graph.first_before.push_back(graph.before.size());
  return judge(set, graph, accesses);
}

}  // namespace chorale::schedule
