// How the ranks of a communicator make a window: they say what they bring, hand their host-mates their
// memory, and agree that everybody has mapped it, before anybody may use it.
#include <chorale/api/communicator.hpp>
#include <chorale/collective/epoch.hpp>
#include <chorale/collective/window_side.hpp>

#include <algorithm>
#include <array>
#include <vector>

namespace chorale {
namespace {

constexpr std::uint32_t most_signals = 65536;
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 46;
constexpr std::size_t largest_element = sizeof(double);
/// Distinguishes the lane of a window from a child that the same ticket could have made.
constexpr std::int64_t window_colour = no_colour + 1;

/// What each rank says at first, and again at the end: how it went.
struct report {
  std::uint64_t bytes = 0;
  std::uint32_t signals = 0;
  std::uint32_t registered = 0;
  std::int32_t code = 0;
  std::int32_t os_code = 0;
};
static_assert(sizeof(report) == 24);

task<error> outcome_of(ticket placed) {
  as_result_of<ticket> awaited = as_result(std::move(placed));
  auto ended = co_await std::move(awaited);
  co_return ended ? error{} : std::move(ended).error();
}

}  // namespace

/// One creation. Kept by its task, so that buffers of collectives stay where they are.
class window_maker {
 public:
  window_maker(std::shared_ptr<epoch> current, group& among, lane own, std::byte* registered,
               const window_options& options, std::uint64_t bytes)
      : current_{std::move(current)},
        among_{among},
        lane_{std::move(own)},
        registered_{registered},
        all_(static_cast<std::size_t>(among.size())),
        memory_(all_.size()) {
    ++current_->windows_in_the_making;
    mine_.bytes = bytes;
    mine_.signals = options.signals;
    mine_.registered = registered ? 1 : 0;
    const std::size_t size = window_part::segment_bytes(registered ? 0 : bytes, options.signals);
    auto made = segment::create(std::max<std::size_t>(size, 64));
    if (made)
      memory_[self()] = *std::move(made);
    else
      fail(std::move(made).error());
  }

  window_maker(const window_maker&) = delete;
  window_maker& operator=(const window_maker&) = delete;
  ~window_maker() { --current_->windows_in_the_making; }

  [[nodiscard]] described_call saying() {
    described_call described =
        chorale::all_gather(std::as_bytes(std::span{&mine_, 1}), std::as_writable_bytes(std::span{all_}));
    described.what.kind = collective_kind::window;
    return described;
  }

  static task<window> make(std::unique_ptr<window_maker> maker, ticket placed, deadline limit) {
    task<window> making = maker->run(std::move(placed), limit);
    window made = co_await std::move(making);
    co_return made;
  }

 private:
  task<window> run(ticket placed, deadline limit) {
    if (error why = lane_.unusable()) throw failure{std::move(why)};
    task<error> asking = outcome_of(std::move(placed));
    if (error why = co_await std::move(asking)) throw failure{std::move(why)};
    if (error why = somebody_failed()) throw failure{std::move(why)};
    task<void> sharing = share();
    co_await std::move(sharing);
    task<error> all_sent = outcome_of(lane_.barrier(limit));
    if (error why = co_await std::move(all_sent)) throw failure{std::move(why)};
    std::shared_ptr<window_side> side = make_side();
    std::unique_ptr<window_side, void (*)(window_side*)> unused{side.get(),
                                                                [](window_side* s) { s->drop(); }};
    task<error> agreeing = outcome_of(lane_.place(saying(), limit));
    if (error why = co_await std::move(agreeing)) throw failure{std::move(why)};
    if (error why = somebody_failed()) {
      side->close();  // everybody knows
      throw failure{std::move(why)};
    }
    [[maybe_unused]] const window_side* const used = unused.release();
    co_return window{current_, std::move(side), std::move(lane_)};
  }

  [[nodiscard]] std::size_t self() const noexcept { return static_cast<std::size_t>(among_.rank()); }
  [[nodiscard]] core& inside() const noexcept { return *current_->inside; }

  void fail(error why) {
    if (why_) return;
    mine_.code = static_cast<std::int32_t>(why.code());
    mine_.os_code = why.os_code();
    why_ = std::move(why);
  }

  /// The first that could not do its part, as everybody names it.
  [[nodiscard]] error somebody_failed() const {
    if (why_) return why_;
    for (std::size_t r = 0; r < all_.size(); ++r) {
      if (all_[r].code == 0) continue;
      const auto who = static_cast<rank_t>(r);
      const std::string what = "it could not make or map its part of a window";
      if (all_[r].os_code != 0) return error::from_os(all_[r].os_code, what, who);
      return error{static_cast<errc>(all_[r].code), what, who};
    }
    return {};
  }

  /// Both see it alike: wires are shared memory or not for both.
  [[nodiscard]] bool reaches(rank_t member) const {
    const rank_t in_epoch = among_.in_epoch(member);
    return member != among_.rank() && inside().shares_memory_with(in_epoch);
  }
  [[nodiscard]] const peer& mate(rank_t member) const {
    return current_->members.peers[static_cast<std::size_t>(among_.in_epoch(member))];
  }

  task<void> share() {
    const std::uint64_t name = lane_.state_->key;
    for (rank_t member = 0; member < among_.size(); ++member) {
      if (registered_ || !reaches(member)) continue;
      stay();
      task<result<void>> sending = descriptor_mail::send(mate(member), name, memory_[self()].fd());
      auto sent = co_await std::move(sending);
      if (!sent) fail(std::move(sent).error());
    }
    memory_[self()].close_descriptor();
  }

  /// A reset takes the sockets along.
  void stay() const {
    if (inside().closed()) throw failure{error{errc::revoked, inside().cause().summary()}};
  }

  void map(rank_t member) {
    const auto index = static_cast<std::size_t>(member);
    stay();
    auto letter = current_->windows.take(mate(member), lane_.state_->key);
    if (!letter) return fail(core::as_seen_by(among_, std::move(letter).error()));
    const std::size_t size = window_part::segment_bytes(all_[index].bytes, all_[index].signals);
    auto mapped = segment::map(*std::move(letter), std::max<std::size_t>(size, 64));
    if (!mapped) return fail(std::move(mapped).error());
    memory_[index] = *std::move(mapped);
    memory_[index].close_descriptor();
  }

  [[nodiscard]] std::shared_ptr<window_side> make_side() {
    std::vector<window_part> parts(all_.size());
    for (rank_t member = 0; member < among_.size(); ++member) {
      const auto index = static_cast<std::size_t>(member);
      const report& theirs = all_[index];
      const bool self = member == among_.rank();
      // A sender that failed has sent nothing, and will say so.
      if (reaches(member) && theirs.registered == 0) map(member);
      if (memory_[index].data())
        parts[index] = window_part::in(memory_[index].data(), theirs.bytes, theirs.signals);
      parts[index].bytes = theirs.bytes;
      parts[index].signals = theirs.signals;
      if (self && registered_) parts[index].memory = registered_;
    }
    lane_state& lane = *inside().open_lane(*lane_.state_);
    return std::make_shared<window_side>(inside(), lane, std::move(parts), std::move(memory_));
  }

  std::shared_ptr<epoch> current_;
  group& among_;
  lane lane_;
  std::byte* registered_;
  report mine_;
  std::vector<report> all_;
  std::vector<segment> memory_;  // by member; what is mapped
  error why_;
};

namespace {

error refuse(const char* which, std::string why) {
  return error{errc::invalid_argument, which + std::move(why)};
}

error check_window(const char* which, std::uint64_t bytes, const window_options& options) {
  if (options.signals > most_signals)
    return refuse(which,
                  std::to_string(options.signals) + " counters; at most " + std::to_string(most_signals));
  if (bytes > most_bytes)
    return refuse(which, std::to_string(bytes) + " bytes; at most " + std::to_string(most_bytes));
  return {};
}

task<window> refused(error why) {
  const environment& here = co_await this_environment{};
  static_cast<void>(here);
  throw failure{std::move(why)};
}

}  // namespace

// The call takes its place here, not where it is awaited.
task<window> communicator::make_window(std::uint64_t bytes, std::byte* registered, window_options options,
                                       deadline limit) {
  if (current_->gpu_in_the_making)
    return refused(error{errc::invalid_state,
                         "a window is created while use_gpu is under way; await one, then call the other"});
  const deadline until{limit.from(loop().now())};
  const std::uint64_t key = among().child_id(epoch_number(), next_ticket(), window_colour);
  auto maker = std::make_unique<window_maker>(current_, among(), lane_for(key), registered, options, bytes);
  ticket placed = place(maker->saying(), until);
  return window_maker::make(std::move(maker), std::move(placed), until);
}

task<window> communicator::create_window(std::uint64_t bytes, window_options options, deadline limit) {
  if (forked()) return refused(error{errc::forked});
  if (error why = check_window("create_window: ", bytes, options)) return refused(std::move(why));
  return make_window(bytes, nullptr, options, limit);
}

task<window> communicator::register_window(std::span<std::byte> memory, window_options options,
                                           deadline limit) {
  if (forked()) return refused(error{errc::forked});
  if (error why = check_window("register_window: ", memory.size(), options)) return refused(std::move(why));
  if (!memory.data() && !memory.empty())
    return refused(refuse("register_window: ",
                          "the memory is null and has " + std::to_string(memory.size()) + " bytes"));
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % largest_element != 0)
    return refused(refuse("register_window: ", "the memory is not aligned to " +
                                                   std::to_string(largest_element) +
                                                   " bytes, which accumulate needs"));
  alignas(largest_element) static std::byte nothing;
  return make_window(memory.size(), memory.data() ? memory.data() : &nothing, options, limit);
}

}  // namespace chorale
