#include <chorale/schedule/msccl.hpp>
#include <chorale/schedule/program_set.hpp>
#include <chorale/schedule/scratch_shapes.hpp>

#include <pugixml.hpp>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace chorale::schedule {
namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{1} << 28;
constexpr std::int64_t most_ranks = 1 << 16;
constexpr std::int64_t most_blocks = 1 << 20;
/// Blocks of all GPUs together, and blocks moved by all steps together: what following the data costs.
constexpr std::int64_t most_in_all = 1 << 26;

/// Errors raised while reading; never leaves this file. Reading recurses through elements, and a throw keeps
/// that readable.
struct malformed {
  error why;
};

struct xml_step {
  step made;
  bool nop = false;
  std::int64_t waits_block = -1;  ///< depid
  std::int64_t waits_step = -1;   ///< deps
  pugi::xml_node at;
};

struct thread_block {
  std::vector<xml_step> steps;
  pugi::xml_node at;
};

class reader {
 public:
  reader(std::string_view xml, std::string_view origin) : text_{xml}, origin_{origin} {}

  algorithm read() {
    if (text_.size() > most_bytes) refuse({}, "is larger than 256 MiB: cut it down");
    const auto parsed = document_.load_buffer(text_.data(), text_.size());
    if (!parsed)
      refuse_at(parsed.offset,
                std::string{"no well-formed XML: "} + parsed.description() + ": correct it there");
    const pugi::xml_node algo = document_.child("algo");
    if (!algo) refuse(document_.first_child(), "the document has no <algo>: give an MSCCL algorithm file");
    read_header(algo);
    auto programs = std::make_shared<std::vector<rank_program>>(static_cast<std::size_t>(what_.ranks));
    std::vector<bool> seen(programs->size(), false);
    for (const pugi::xml_node gpu : algo.children("gpu")) {
      const auto id = static_cast<std::size_t>(number(gpu, "id", 0, what_.ranks - 1));
      if (seen[id]) refuse(gpu, "comes a second time: keep one <gpu> per id");
      seen[id] = true;
      (*programs)[id] = read_gpu(gpu);
    }
    const auto missing = std::find(seen.begin(), seen.end(), false);
    if (missing != seen.end())
      refuse(algo, "has no <gpu id=\"" + std::to_string(missing - seen.begin()) + "\">, but ngpus is " +
                       std::to_string(what_.ranks));
    algorithm made{name_, what_,
                   [programs](rank_t rank) { return (*programs)[static_cast<std::size_t>(rank)]; }, support_,
                   unit_};
    shape_scratch(made, *programs);
    return made;
  }

 private:
  [[noreturn]] void refuse_at(std::ptrdiff_t offset, const std::string& what,
                              errc code = errc::invalid_argument) {
    const std::string_view before =
        text_.substr(0, static_cast<std::size_t>(std::max<std::ptrdiff_t>(offset, 0)));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    throw malformed{error{code, origin_ + ":" + std::to_string(line) + ": " + what}};
  }
  [[noreturn]] void refuse(pugi::xml_node at, const std::string& what, errc code = errc::invalid_argument) {
    const std::string element = at ? "<" + std::string{at.name()} + "> " : std::string{};
    refuse_at(at ? at.offset_debug() : 0, element + what, code);
  }

  std::int64_t number(pugi::xml_node at, const char* attribute, std::int64_t least, std::int64_t most) {
    const std::string_view text = at.attribute(attribute).value();
    std::int64_t value = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (fault != std::errc{} || end != text.data() + text.size() || value < least || value > most)
      refuse(at, std::string{"has "} + attribute + "=\"" + std::string{text} + "\": give a number from " +
                     std::to_string(least) + " to " + std::to_string(most));
    return value;
  }

  void charge(pugi::xml_node at, std::int64_t blocks) {
    in_all_ += blocks;
    if (in_all_ > most_in_all)
      refuse(at, "brings the algorithm to more than " + std::to_string(most_in_all) +
                     " chunks held or moved: use fewer GPUs or chunks");
  }

  void read_header(pugi::xml_node algo) {
    name_ = algo.attribute("name").value();
    if (name_.empty()) name_ = origin_;
    what_.ranks = static_cast<rank_t>(number(algo, "ngpus", 1, most_ranks));
    auto blocks = static_cast<std::uint32_t>(number(algo, "nchunksperloop", 1, most_blocks));
    const std::string_view coll = algo.attribute("coll").value();
    const auto found = std::find_if(std::begin(collectives), std::end(collectives),
                                    [&](const auto& known) { return known.first == coll; });
    if (found == std::end(collectives))
      refuse(algo, "has coll=\"" + std::string{coll} + "\", for which chorale has no definition to check by",
             errc::unsupported);
    what_.what = found->second;
    if (what_.what != collective::all_reduce) {
      if (blocks % static_cast<std::uint32_t>(what_.ranks) != 0)
        refuse(algo, "has nchunksperloop=\"" + std::to_string(blocks) + "\", which ngpus does not divide");
      blocks /= static_cast<std::uint32_t>(what_.ranks);
    }
    what_.blocks = blocks;
    charge(algo, what_.ranks * (std::int64_t{what_.in_blocks()} + what_.out_blocks()));
    const bool in_place = number(algo, "inplace", 0, 1) == 1;
    const bool out_of_place = number(algo, "outofplace", 0, 1) == 1;
    if (!in_place && !out_of_place) refuse(algo, "is neither inplace nor outofplace: set one to 1");
    support_ = !in_place       ? placement_support::out_of_place_only
               : !out_of_place ? placement_support::in_place_only
                               : placement_support::both;
  }

  rank_program read_gpu(pugi::xml_node gpu) {
    number(gpu, "i_chunks", 0, what_.in_blocks());
    number(gpu, "o_chunks", 0, what_.out_blocks());
    rank_program program;
    const std::int64_t scratch = number(gpu, "s_chunks", 0, most_blocks);
    charge(gpu, scratch);
    for (std::int64_t s = 0; s < scratch; ++s) program.add_scratch({space::scratch, 0});
    std::vector<thread_block> blocks;
    std::set<std::pair<rank_t, channel_t>> sending;
    std::set<std::pair<rank_t, channel_t>> receiving;
    for (const pugi::xml_node tb : gpu.children("tb")) {
      if (number(tb, "id", 0, most_blocks) != static_cast<std::int64_t>(blocks.size()))
        refuse(tb, "has an id out of order: number thread blocks 0, 1, 2 …");
      blocks.push_back(read_thread_block(tb, sending, receiving));
    }
    emit(blocks, program);
    return program;
  }

  using ends = std::set<std::pair<rank_t, channel_t>>;
  thread_block read_thread_block(pugi::xml_node tb, ends& sending, ends& receiving) {
    const auto send_to = static_cast<rank_t>(number(tb, "send", -1, what_.ranks - 1));
    const auto recv_from = static_cast<rank_t>(number(tb, "recv", -1, what_.ranks - 1));
    const auto channel = static_cast<channel_t>(number(tb, "chan", 0, 0xffff));
    if ((send_to >= 0 && !sending.insert({send_to, channel}).second) ||
        (recv_from >= 0 && !receiving.insert({recv_from, channel}).second))
      refuse(tb, "shares an edge with another thread block: give each its own channel");
    thread_block block{{}, tb};
    for (const pugi::xml_node node : tb.children("step")) {
      if (number(node, "s", 0, most_blocks) != static_cast<std::int64_t>(block.steps.size()))
        refuse(node, "has an s out of order: number steps 0, 1, 2 …");
      xml_step s = read_step(node);
      s.made.channel = channel;
      if (sends(s.made.kind)) s.made.send_to = send_to;
      if (receives(s.made.kind)) s.made.recv_from = recv_from;
      if (!s.nop && ((sends(s.made.kind) && send_to < 0) || (receives(s.made.kind) && recv_from < 0)))
        refuse(node, "needs a peer its <tb> does not name: set send or recv there");
      block.steps.push_back(s);
    }
    return block;
  }

  xml_step read_step(pugi::xml_node node) {
    xml_step s{};
    s.at = node;
    s.waits_block = number(node, "depid", -1, most_blocks);
    s.waits_step = number(node, "deps", -1, most_blocks);
    const std::string_view type = node.attribute("type").value();
    if (type == "nop") {
      s.nop = true;
      return s;
    }
    const auto found =
        std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& k) { return k.first == type; });
    if (found == std::end(kinds))
      refuse(node, "has type=\"" + std::string{type} + "\": use s, r, cpy, re, rrc, rcs, rrs, rrcs or nop");
    s.made.kind = found->second;
    const auto count = static_cast<std::uint32_t>(number(node, "cnt", 1, most_blocks));
    charge(node, count);
    if (count > 1) unit_ = step_unit::run_of_blocks;
    if (reads_src(s.made.kind)) s.made.src = read_blocks(node, "srcbuf", "srcoff", count);
    if (writes_dst(s.made.kind)) s.made.dst = read_blocks(node, "dstbuf", "dstoff", count);
    return s;
  }

  block_ref read_blocks(pugi::xml_node node, const char* buffer, const char* offset, std::uint32_t count) {
    const std::string_view name = node.attribute(buffer).value();
    if (name != "i" && name != "o" && name != "s")
      refuse(node, std::string{"has "} + buffer + "=\"" + std::string{name} + "\": use i, o or s");
    const space where = name == "i" ? space::in : name == "o" ? space::out : space::scratch;
    return {where, static_cast<std::uint32_t>(number(node, offset, 0, most_blocks)), count};
  }

  /// Thread blocks run side by side; the program needs one order in which dependencies point backwards.
  void emit(const std::vector<thread_block>& blocks, rank_program& program) {
    std::vector<std::vector<std::vector<step_index>>> stands_for(blocks.size());  // per block and XML step
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t b = 0; b < blocks.size(); ++b) {
        while (stands_for[b].size() < blocks[b].steps.size()) {
          const xml_step& s = blocks[b].steps[stands_for[b].size()];
          const auto waited = waited_by(s, blocks, stands_for);
          if (!waited) break;
          std::vector<step_index> before = *waited;
          if (!stands_for[b].empty())
            before.insert(before.end(), stands_for[b].back().begin(), stands_for[b].back().end());
          std::sort(before.begin(), before.end());
          before.erase(std::unique(before.begin(), before.end()), before.end());
          if (!s.nop) before = {program.add(s.made, std::span<const step_index>{before})};
          stands_for[b].push_back(std::move(before));
          moved = true;
        }
      }
    }
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      if (stands_for[b].size() < blocks[b].steps.size())
        refuse(
            blocks[b].steps[stands_for[b].size()].at,
            "waits for a step that waits for it: thread blocks of one GPU depend on each other in a circle");
    }
  }

  /// What the step's depid and deps refer to; no value while that has not been emitted.
  std::optional<std::vector<step_index>> waited_by(
      const xml_step& s, const std::vector<thread_block>& blocks,
      const std::vector<std::vector<std::vector<step_index>>>& stands_for) {
    if (s.waits_block < 0) return std::vector<step_index>{};
    const auto block = static_cast<std::size_t>(s.waits_block);
    if (block >= blocks.size() || s.waits_step < 0 ||
        static_cast<std::size_t>(s.waits_step) >= blocks[block].steps.size())
      refuse(s.at, "depends on step " + std::to_string(s.waits_step) + " of thread block " +
                       std::to_string(s.waits_block) + ", which this GPU does not have");
    const auto index = static_cast<std::size_t>(s.waits_step);
    if (index >= stands_for[block].size()) return std::nullopt;
    return stands_for[block][index];
  }

  /// Leaves shapes open where the schedule cannot run: the checker will say why.
  void shape_scratch(const algorithm& made, std::vector<rank_program>& programs) const {
    const auto set = program_set::load(
        made, support_ == placement_support::in_place_only ? placement::in_place : placement::out_of_place);
    if (!set) return;
    const auto shapes = infer_scratch_shapes(*set, what_);
    if (!shapes) return;
    for (std::size_t r = 0; r < programs.size(); ++r) {
      for (std::uint32_t s = 0; s < (*shapes)[r].size(); ++s) programs[r].shape_scratch(s, (*shapes)[r][s]);
    }
  }

  static constexpr std::pair<std::string_view, collective> collectives[] = {
      {"allreduce", collective::all_reduce},         {"allgather", collective::all_gather},
      {"reducescatter", collective::reduce_scatter}, {"reduce_scatter", collective::reduce_scatter},
      {"alltoall", collective::all_to_all},
  };
  static constexpr std::pair<std::string_view, step_kind> kinds[] = {
      {"s", step_kind::send},
      {"r", step_kind::recv},
      {"cpy", step_kind::copy},
      {"re", step_kind::reduce},
      {"rrc", step_kind::recv_reduce},
      {"rcs", step_kind::recv_copy_send},
      {"rrs", step_kind::recv_reduce_send},
      {"rrcs", step_kind::recv_reduce_copy_send},
  };

  std::string_view text_;
  std::string origin_;
  pugi::xml_document document_;
  std::string name_;
  definition what_;
  placement_support support_ = placement_support::both;
  step_unit unit_ = step_unit::block;
  std::int64_t in_all_ = 0;
};

}  // namespace

result<algorithm> parse_msccl(std::string_view xml, std::string_view origin) {
  try {
    return reader{xml, origin}.read();
  } catch (const malformed& m) {
    return m.why;
  }
}

result<algorithm> load_msccl(const std::filesystem::path& file) {
  std::ifstream stream{file, std::ios::binary};
  const std::string text{std::istreambuf_iterator<char>{stream}, std::istreambuf_iterator<char>{}};
  if (!stream.is_open() || stream.bad())
    return error{errc::invalid_argument,
                 file.string() + ": cannot be read: check the path and its permissions"};
  return parse_msccl(text, file.string());
}

}  // namespace chorale::schedule
