// Random programs of every collective, type, operation, count, placement, algorithm and medium, against the
// plain reference.
#include "plain_reference.hpp"
#include "rig.hpp"
#include <chorale/api/description.hpp>
#include <chorale/async/virtual_backend.hpp>
#include <chorale/collective/prepared_call.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>

using namespace chorale;
using namespace chorale::testing;

namespace {

#ifdef CHORALE_SANITIZED
constexpr int program_count = 25;
constexpr std::uint64_t long_bytes = 300'000;
#else
constexpr int program_count = 320;
constexpr std::uint64_t long_bytes = 600'000;
#endif
constexpr std::size_t calls_a_program = 7;
constexpr std::byte untouched{0xa5};

using kinds = collective_kind;
constexpr kinds every_kind[] = {kinds::all_reduce, kinds::reduce,           kinds::broadcast,
                                kinds::all_gather, kinds::gather,           kinds::reduce_scatter,
                                kinds::all_to_all, kinds::scatter,          kinds::scan,
                                kinds::exscan,     kinds::all_gather_v,     kinds::gather_v,
                                kinds::scatter_v,  kinds::reduce_scatter_v, kinds::all_to_all_v};
constexpr dtype every_type[] = {dtype::i8,  dtype::u8,  dtype::i32,    dtype::u32,
                                dtype::i64, dtype::u64, dtype::f16,    dtype::bf16,
                                dtype::f32, dtype::f64, dtype::f8e4m3, dtype::f8e5m2};

struct dice {
  std::mt19937 random;
  std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : random() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <class T, std::size_t N>
  T pick(const T (&from)[N]) {
    return from[below(N)];
  }
};

/// Memory with a margin on both sides that must stay as it is, at any alignment that suits the elements.
class guarded_memory {
 public:
  guarded_memory(std::size_t bytes, std::size_t offset) : bytes_{bytes}, offset_{margin + offset} {
    memory_.assign(bytes + 2 * margin + offset, untouched);
  }
  [[nodiscard]] std::byte* data() noexcept { return memory_.data() + offset_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  [[nodiscard]] bool margins_hold() const {
    const auto holds = [&](std::size_t from, std::size_t to) {
      for (std::size_t i = from; i < to; ++i)
        if (memory_[i] != untouched) return false;
      return true;
    };
    return holds(0, offset_) && holds(offset_ + bytes_, memory_.size());
  }
  [[nodiscard]] bool is_untouched() const {
    for (std::size_t i = 0; i < bytes_; ++i)
      if (memory_[offset_ + i] != untouched) return false;
    return true;
  }

 private:
  static constexpr std::size_t margin = 64;
  std::size_t bytes_;
  std::size_t offset_;
  std::vector<std::byte> memory_;
};

struct rank_memory {
  std::optional<guarded_memory> in;  // also the output, in place
  std::optional<guarded_memory> out;
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  bool in_place = false;
};

struct drawn_call {
  plain_case what;
  folds how = folds::in_elements;
  std::vector<rank_memory> memory;
};

reduction draw_operation(dice& d, dtype type, bool scans) {
  constexpr reduction arithmetic[] = {reduction::sum, reduction::prod, reduction::min, reduction::max};
  constexpr reduction bits[] = {reduction::bit_and, reduction::bit_or, reduction::bit_xor};
  switch (d.below(type == dtype::u32 ? 5 : 4)) {
    case 0:
      return is_float(type) ? reduction::sum : d.pick(bits);
    case 1:
      return reduction::premul_sum;
    case 2:
      return scans ? reduction::sum : reduction::avg;
    case 3:
      return d.pick(arithmetic);
    default:
      return reduction::user;
  }
}

void fill(dice& d, const plain_case& c, std::vector<std::byte>& memory) {
  const std::size_t size = size_of(c.type);
  std::uniform_real_distribution<double> around_zero{-1, 1};
  std::uniform_real_distribution<double> around_one{0.5, 1.5};
  for (std::size_t i = 0; i < memory.size(); i += size) {
    std::byte* const at = memory.data() + i;
    if (is_float(c.type)) {
      store(c.type, at, c.op == reduction::prod ? around_one(d.random) : around_zero(d.random));
    } else if (c.op == reduction::avg) {
      store(c.type, at, static_cast<double>(d.below(11)));
    } else {
      store_bits(c.type, at, std::uint64_t{d.random()} << 32 | d.random());
    }
  }
}

std::uint64_t draw_count(dice& d) {
  switch (d.below(6)) {
    case 0:
      return d.below(3);
    case 1:
      return d.below(17);
    case 2:
      return d.below(400);
    case 3:
      return d.below(3000);
    case 4:
      return d.below(9000);
    default:
      return d.below(40000);
  }
}

plain_case draw_case(dice& d, rank_t n) {
  plain_case c;
  c.kind = d.pick(every_kind);
  c.type = d.one_in(3) ? dtype::f32 : d.pick(every_type);
  c.ranks = n;
  if (has_root(c.kind)) c.root = static_cast<rank_t>(d.below(static_cast<std::uint64_t>(n)));
  if (reduces(c.kind)) c.op = draw_operation(d, c.type, c.kind == kinds::scan || c.kind == kinds::exscan);
  const auto ranks = static_cast<std::size_t>(n);
  const std::uint64_t scale = draw_count(d);
  const auto share = [&] { return d.one_in(4) ? 0 : d.below(scale / ranks + 2); };
  if (c.kind == kinds::all_to_all_v) {
    for (std::size_t from = 0; from < ranks; ++from) {
      auto& row = c.pairs.emplace_back();
      for (std::size_t to = 0; to < ranks; ++to) row.push_back(share());
    }
  } else if (has_counts(c.kind)) {
    for (std::size_t r = 0; r < ranks; ++r) c.counts.push_back(share());
  } else {
    const bool of_shares = c.kind == kinds::all_gather || c.kind == kinds::gather ||
                           c.kind == kinds::scatter || c.kind == kinds::reduce_scatter ||
                           c.kind == kinds::all_to_all;
    c.count = of_shares ? scale / ranks : scale;
  }
  for (rank_t r = 0; r < n; ++r) {
    c.factors.push_back(is_float(c.type) ? 0.25 * static_cast<double>(1 + d.below(8))
                                         : static_cast<double>(1 + d.below(3)));
    c.in.emplace_back(c.reads(r) ? c.in_count(r) * size_of(c.type) : 0);
    fill(d, c, c.in.back());
  }
  return c;
}

rank_memory lay_out(dice& d, const plain_case& c, rank_t r) {
  rank_memory m;
  const std::size_t size = size_of(c.type);
  const auto& values = c.in[static_cast<std::size_t>(r)];
  const bool exchanges = c.kind == kinds::all_to_all || c.kind == kinds::all_to_all_v;
  const std::size_t in_bytes = c.reads(r) ? c.in_count(r) * size : 0;
  // exscan wants an output at rank 0 too.
  const std::size_t out_bytes = c.writes(r) || c.kind == kinds::exscan ? c.out_count(r) * size : 0;
  const auto offset = [&] { return d.below(9) * size; };
  m.in_place = !exchanges && c.reads(r) && out_bytes != 0 && d.one_in(2);
  if (m.in_place) {
    m.in.emplace(std::max(in_bytes, out_bytes), offset());
    m.input = m.in->data() + (in_bytes < out_bytes ? c.share_begins(r) * size : 0);
    m.output = m.in->data() + (out_bytes < in_bytes ? c.share_begins(r) * size : 0);
  } else {
    m.in.emplace(in_bytes, offset());
    m.out.emplace(out_bytes, offset());
    m.input = m.in->data();
    m.output = m.out->data();
  }
  if (!values.empty()) std::memcpy(m.input, values.data(), values.size());
  return m;
}

/// The call as an application describes it.
template <class T>
call describe_as(const drawn_call& drawn, rank_t r) {
  const plain_case& c = drawn.what;
  const auto self = static_cast<std::size_t>(r);
  const rank_memory& m = drawn.memory[self];
  const bool needs_out = c.writes(r) || c.kind == kinds::exscan;
  const std::span<const T> in{reinterpret_cast<const T*>(m.input), c.reads(r) ? c.in_count(r) : 0};
  const std::span<T> out{reinterpret_cast<T*>(m.output), needs_out ? c.out_count(r) : 0};
  const reduce_operation op = [&]() -> reduce_operation {
    if (c.op == reduction::user) return user_reduction{"compose", compose, nullptr, commutativity::unknown};
    if (c.op != reduction::premul_sum) return c.op;
    T factor{};
    store(c.type, reinterpret_cast<std::byte*>(&factor), c.factors[self]);
    return premul_sum(factor);
  }();
  const auto arriving = [&] {
    std::vector<std::uint64_t> column;
    for (const auto& row : c.pairs) column.push_back(row[self]);
    return column;
  };
  switch (c.kind) {
    case kinds::all_reduce:
      return (m.in_place ? all_reduce(out, op) : all_reduce(in, out, op)).what;
    case kinds::reduce:
      return (m.in_place ? chorale::reduce(out, c.root, op) : chorale::reduce(in, out, c.root, op)).what;
    case kinds::broadcast:
      return (m.in_place ? broadcast(out, c.root) : broadcast(in, out, c.root)).what;
    case kinds::all_gather:
      return all_gather(in, out).what;
    case kinds::all_gather_v:
      return all_gather_v(in, out, c.counts).what;
    case kinds::gather:
      return gather(in, out, c.root).what;
    case kinds::gather_v:
      return gather_v(in, out, c.counts, c.root).what;
    case kinds::reduce_scatter:
      return reduce_scatter(in, out, op).what;
    case kinds::reduce_scatter_v:
      return reduce_scatter_v(in, out, c.counts, op).what;
    case kinds::scatter:
      return scatter(in, out, c.root).what;
    case kinds::scatter_v:
      return scatter_v(in, out, c.counts, c.root).what;
    case kinds::all_to_all:
      return all_to_all(in, out).what;
    case kinds::all_to_all_v:
      return all_to_all_v(in, out, c.pairs[self], arriving()).what;
    case kinds::scan:
      return (m.in_place ? scan(out, op) : scan(in, out, op)).what;
    default:
      return (m.in_place ? exscan(out, op) : exscan(in, out, op)).what;
  }
}

call describe_for(const drawn_call& drawn, rank_t r) {
  switch (drawn.what.type) {
    case dtype::i8:
      return describe_as<std::int8_t>(drawn, r);
    case dtype::u8:
      return describe_as<std::uint8_t>(drawn, r);
    case dtype::i32:
      return describe_as<std::int32_t>(drawn, r);
    case dtype::u32:
      return describe_as<std::uint32_t>(drawn, r);
    case dtype::i64:
      return describe_as<std::int64_t>(drawn, r);
    case dtype::u64:
      return describe_as<std::uint64_t>(drawn, r);
    case dtype::f16:
      return describe_as<f16>(drawn, r);
    case dtype::bf16:
      return describe_as<bf16>(drawn, r);
    case dtype::f64:
      return describe_as<double>(drawn, r);
    case dtype::f8e4m3:
      return describe_as<f8e4m3>(drawn, r);
    case dtype::f8e5m2:
      return describe_as<f8e5m2>(drawn, r);
    default:
      return describe_as<float>(drawn, r);
  }
}

/// How exact the algorithm that the settings pick is.
folds folds_of(const selection_settings& settings, const plain_case& c, const call& what) {
  if (!reduces(c.kind)) return folds::in_elements;
  const algorithm_kind chosen = choose(settings, what, c.ranks);
  const bool from_the_left = chosen == algorithm_kind::slice_owner || chosen == algorithm_kind::tiny ||
                             chosen == algorithm_kind::direct;
  if (from_the_left) return folds::from_the_left_in_f32;
  return folds::in_elements;
}

selection_settings draw_settings(dice& d) {
  selection_settings s;
  if (d.one_in(5)) {
    s.mode = reproducibility::deterministic;
    return s;
  }
  for (const kinds kind : every_kind) {
    const auto forced = static_cast<algorithm_kind>(d.below(algorithm_kinds));
    if (serves(forced, kind)) s.forced[static_cast<std::size_t>(kind)] = forced;
  }
  return s;
}

/// The calls of one communicator: the epoch's own, or that of a child, whose ranks are `members` of it.
struct program {
  std::vector<rank_t> members;  // empty: all
  std::deque<drawn_call> calls;
  bool at_once = false;
  std::uint64_t lanes = 1;

  [[nodiscard]] bool has(rank_t in_epoch) const {
    return members.empty() || std::ranges::find(members, in_epoch) != members.end();
  }
};

/// Every rank makes the calls in one order; all at once, or each when the one before has ended.
task<void> play(core& on, group& among, program& p) {
  std::vector<started> running;
  std::vector<lane_state*> kept;  // a lane's last handle ends its key
  const rank_t r = among.rank();
  for (std::uint64_t key = 0; key < p.lanes; ++key) kept.push_back(on.open_lane(among, key).value());
  for (std::size_t i = 0; i < p.calls.size(); ++i) {
    call what = describe_for(p.calls[i], r);
    // Planned calls meet others.
    if ((i + static_cast<std::size_t>(r)) % 3 == 0)
      what.prepared = std::make_shared<const prepared_call>(on.prepare(among, what).value());
    ticket placed = place_checked(on, among, what, i % p.lanes);
    started op = std::move(placed).start();
    if (p.at_once)
      running.push_back(std::move(op));
    else
      co_await std::move(op);
  }
  for (started& op : running) co_await std::move(op);
  for (lane_state* lane : kept) on.close_handle(*lane);
}

/// What all ranks play, and at the same time what children do.
task<void> play_all(core& on, std::deque<program>& programs) {
  const environment& here = co_await this_environment{};
  scope all{here};
  std::vector<group*> children;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    program& p = programs[i];
    if (!p.has(on.rank())) continue;
    if (!p.members.empty()) children.push_back(&on.add_group(100 + i, p.members, on.everybody()));
    all.spawn(play(on, p.members.empty() ? on.everybody() : *children.back(), p));
  }
  co_await all.join();
  ticket together = place(on, barrier_call(), 77);  // else who is through leaves while others are not
  co_await std::move(together);
  for (group* child : children) on.leave_group(*child);
}

void judge(drawn_call& drawn) {
  const plain_case& c = drawn.what;
  for (rank_t r = 0; r < c.ranks; ++r) {
    rank_memory& m = drawn.memory[static_cast<std::size_t>(r)];
    const auto& values = c.in[static_cast<std::size_t>(r)];
    const std::string wrong = complaint(c, r, m.output, drawn.how);
    BOOST_TEST(wrong.empty(), wrong);
    BOOST_TEST(m.in->margins_hold(), "rank " << r << ": memory beside the input was written");
    if (m.out) BOOST_TEST(m.out->margins_hold(), "rank " << r << ": memory beside the output was written");
    if (m.out && !c.writes(r)) BOOST_TEST(m.out->is_untouched(), "rank " << r << ": wrote what it need not");
    if (!m.in_place && !values.empty())
      BOOST_TEST(std::memcmp(m.input, values.data(), values.size()) == 0,
                 "rank " << r << ": its input was written");
  }
  if (c.kind != kinds::all_reduce) return;
  for (rank_t r = 1; r < c.ranks; ++r)
    BOOST_TEST(std::memcmp(drawn.memory[0].output, drawn.memory[static_cast<std::size_t>(r)].output,
                           c.count * size_of(c.type)) == 0,
               "rank " << r << " has another result than rank 0");
}

engine make_engine(dice& d, medium over) {
  if (over == medium::simulated) return engine{std::make_unique<virtual_backend>()};
  const bool plain = d.one_in(2) || !make_backend(backend_kind::io_uring);
  return engine{engine_options{plain ? backend_kind::epoll : backend_kind::io_uring, duration{0}}};
}

program draw_program(dice& d, rank_t n, const selection_settings& settings) {
  program p;
  for (std::size_t i = 0; i < calls_a_program; ++i) {
    drawn_call& drawn = p.calls.emplace_back();
    drawn.what = draw_case(d, n);
    for (rank_t r = 0; r < n; ++r) drawn.memory.push_back(lay_out(d, drawn.what, r));
    drawn.how = folds_of(settings, drawn.what, describe_for(drawn, 0));
  }
  p.at_once = d.one_in(2);
  p.lanes = 1 + d.below(3);
  return p;
}

/// Ranks of a child, in any order.
std::vector<rank_t> draw_members(dice& d, rank_t n) {
  std::vector<rank_t> members(static_cast<std::size_t>(n));
  std::iota(members.begin(), members.end(), 0);
  std::ranges::shuffle(members, d.random);
  members.resize(1 + d.below(static_cast<std::uint64_t>(n)));
  return members;
}

void play_program(std::uint32_t seed) {
  dice d{std::mt19937{seed}};
  constexpr medium media[] = {medium::shm, medium::tcp, medium::mixed, medium::simulated, medium::simulated};
  const medium over = d.pick(media);
  const auto n = static_cast<rank_t>(1 + d.below(9));
  selection_settings settings = draw_settings(d);
  settings.all_lines = over == medium::shm;
  std::vector<std::uint32_t> hosts;
  for (rank_t r = 0; r < n; ++r) hosts.push_back(static_cast<std::uint32_t>(d.below(3)));
  std::deque<program> programs;
  programs.push_back(draw_program(d, n, settings));
  const std::uint64_t children = d.one_in(3) ? 1 + d.below(2) : 0;
  for (std::uint64_t i = 0; i < children; ++i) {
    std::vector<rank_t> members = draw_members(d, n);
    selection_settings child = settings;  // as the child's group works it out
    std::set<std::uint32_t> distinct;
    for (const rank_t m : members) distinct.insert(hosts[static_cast<std::size_t>(m)]);
    child.hosts_of_several = distinct.size() > 1 && distinct.size() < members.size();
    programs.push_back(draw_program(d, static_cast<rank_t>(members.size()), child));
    programs.back().members = std::move(members);
  }
  BOOST_TEST_CONTEXT("seed " << seed << ", " << n << " ranks, " << name_of(over) << ", " << children
                             << " children") {
    engine loop = make_engine(d, over);
    {
      ranks all{loop, n, over, settings, seed, hosts};
      auto body = [&](core& on, rank_t) { return play_all(on, programs); };
      try {
        all.run(body);
      } catch (const failure& f) {
        for (const program& p : programs)
          for (const drawn_call& drawn : p.calls) BOOST_TEST_MESSAGE(drawn.what.text());
        BOOST_ERROR("a call failed: " << f.what());
        return;
      }
    }
    for (program& p : programs)
      for (drawn_call& drawn : p.calls) BOOST_TEST_CONTEXT(drawn.what.text()) judge(drawn);
  }
}

/// One call of `kind` whose messages are cut into pieces, wherever its algorithm allows.
program long_program(dice& d, rank_t n, kinds kind, const selection_settings& settings) {
  program p;
  drawn_call& drawn = p.calls.emplace_back();
  plain_case& c = drawn.what;
  c.kind = kind;
  c.ranks = n;
  c.root = has_root(kind) ? n - 1 : 0;
  constexpr dtype types[] = {dtype::f32, dtype::bf16, dtype::i32};
  c.type = d.pick(types);
  if (reduces(kind)) c.op = c.type == dtype::i32 ? reduction::bit_xor : reduction::sum;
  const std::uint64_t elements = long_bytes / size_of(c.type) + 13;
  if (kind == kinds::all_to_all_v)
    for (rank_t from = 0; from < n; ++from) {
      auto& row = c.pairs.emplace_back();
      for (rank_t to = 0; to < n; ++to) row.push_back(from == 1 ? 0 : elements / 3 + d.below(1000));
    }
  else if (has_counts(kind))
    for (rank_t r = 0; r < n; ++r) c.counts.push_back(r == 1 ? 0 : elements / 2 + d.below(100000));
  else
    c.count = elements;
  for (rank_t r = 0; r < n; ++r) {
    c.factors.push_back(1);
    c.in.emplace_back(c.reads(r) ? c.in_count(r) * size_of(c.type) : 0);
    fill(d, c, c.in.back());
  }
  for (rank_t r = 0; r < n; ++r) drawn.memory.push_back(lay_out(d, c, r));
  drawn.how = folds_of(settings, c, describe_for(drawn, 0));
  return p;
}

void play_long(dice& d, rank_t n, medium over, kinds kind, algorithm_kind algorithm) {
  selection_settings settings;
  settings.forced[static_cast<std::size_t>(kind)] = algorithm;
  std::deque<program> programs;
  programs.push_back(long_program(d, n, kind, settings));
  drawn_call& drawn = programs.front().calls.front();
  BOOST_TEST_CONTEXT(drawn.what.text() << ", " << name_of(algorithm) << ", " << name_of(over)) {
    engine loop = make_engine(d, over);
    {
      ranks all{loop, n, over, settings, 1, {0, 0, 1, 1}};
      auto body = [&](core& on, rank_t) { return play_all(on, programs); };
      all.run(body);
    }
    judge(drawn);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(every_collective)

BOOST_AUTO_TEST_CASE(long_vectors_on_every_algorithm) {
  const auto seed = static_cast<std::uint32_t>(std::random_device{}());
  BOOST_TEST_MESSAGE("seed " << seed);
  dice d{std::mt19937{seed}};
  constexpr medium media[] = {medium::shm, medium::tcp, medium::simulated};
  for (const kinds kind : every_kind)
    for (std::size_t a = 0; a < algorithm_kinds; ++a) {
      const auto algorithm = static_cast<algorithm_kind>(a);
      if (serves(algorithm, kind)) play_long(d, 4, d.pick(media), kind, algorithm);
    }
}

// CHORALE_TEST_SEED plays one program again.
BOOST_AUTO_TEST_CASE(random_programs) {
  if (const char* one = std::getenv("CHORALE_TEST_SEED")) {
    play_program(static_cast<std::uint32_t>(std::strtoul(one, nullptr, 10)));
    return;
  }
  const auto first = static_cast<std::uint32_t>(std::random_device{}());
  BOOST_TEST_MESSAGE("seeds from " << first);
  for (std::uint32_t i = 0; i < program_count; ++i) play_program(first + i);
}

BOOST_AUTO_TEST_SUITE_END()
