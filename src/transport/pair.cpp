#include <chorale/transport/pair.hpp>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace chorale {
namespace {

constexpr std::size_t initial_buckets = 64;
constexpr std::size_t most_spare_arrivals = 128;
constexpr std::uint64_t shortest_payload = 256;

std::uint64_t budget_of(std::uint64_t payload) noexcept { return sizeof(frame_header) + padded(payload); }

}  // namespace

pair::pair(rank_t peer, std::unique_ptr<wire> carrier, arrival_judge& judge)
    : peer_{peer},
      wire_{std::move(carrier)},
      judge_{judge},
      posted_(initial_buckets),
      early_(initial_buckets) {
  credit_.header.kind = frame_kind::credit;
}

pair::~pair() {
  for (auto*& bucket : early_)
    while (bucket) delete std::exchange(bucket, bucket->chain);
  while (spare_) delete std::exchange(spare_, spare_->chain);
  while (notices_) notices_ = std::move(notices_->next);
}

// Sending.

void pair::append(list& to, outgoing& m, outgoing::place where) noexcept {
  assert(m.where == outgoing::place::idle);
  m.where = where;
  m.previous = to.last;
  m.next = nullptr;
  (to.last ? to.last->next : to.first) = &m;
  to.last = &m;
}

pair::list& pair::list_of(const outgoing& m) noexcept {
  if (m.where == outgoing::place::control) return control_;
  return m.where == outgoing::place::bulk ? bulk_ : waiting_;
}

void pair::remove(outgoing& m) noexcept {
  list& from = list_of(m);
  (m.previous ? m.previous->next : from.first) = m.next;
  (m.next ? m.next->previous : from.last) = m.previous;
  m.where = outgoing::place::idle;
}

void pair::send(outgoing& m) noexcept {
  m.sent = 0;
  ++outstanding_;
  const std::uint64_t cost = budget_of(m.size);
  m.header.size = m.size;
  if (m.size <= eager_limit && cost <= send_budget_) {
    send_budget_ -= cost;
    m.header.kind = frame_kind::eager;
    append(control_, m, outgoing::place::control);
  } else if (take_early(m.header.key(), frame_kind::ready)) {
    m.header.kind = frame_kind::data;
    append(bulk_, m, outgoing::place::bulk);
  } else {
    // Goes out as a bare header first and moves to `waiting_` when that has been handed over.
    m.header.kind = frame_kind::announce;
    append(control_, m, outgoing::place::control);
  }
  pump();
}

bool pair::abandon(outgoing& m) noexcept {
  if (m.where == outgoing::place::idle) return false;
  --outstanding_;
  return drop_control(m);
}

bool pair::drop_control(outgoing& m) noexcept {
  if (m.where == outgoing::place::idle) return false;
  const bool begun = in_frame_ == &m;
  if (begun) {
    wire_->abandon(m);
    in_frame_ = nullptr;
  }
  remove(m);
  return begun;
}

bool pair::pump_one(outgoing& m) noexcept {
  const wire::pushed outcome = wire_->push(m);
  in_frame_ = wire_->in_frame() ? &m : nullptr;
  if (outcome != wire::pushed::done) return outcome == wire::pushed::more;
  remove(m);
  if (m.header.kind == frame_kind::announce) {
    // `ready` may have overtaken the announcement.
    const bool released = take_early(m.header.key(), frame_kind::ready) != nullptr;
    if (released) m.header.kind = frame_kind::data;
    m.header.size = m.size;
    append(released ? bulk_ : waiting_, m, released ? outgoing::place::bulk : outgoing::place::waiting);
    return true;
  }
  if (carries_payload(m.header.kind)) --outstanding_;
  // A receive with room for more may have said that it takes what came without asking.
  if (m.header.kind == frame_kind::eager) take_early(m.header.key(), frame_kind::ready);
  if (m.handed_over) m.handed_over(m);
  return true;
}

void pair::pump() noexcept {
  if (pumping_ || broken_) return;  // completions send more: the loop below sees it
  pumping_ = true;
  while (!broken_) {
    outgoing* next = in_frame_ ? in_frame_ : control_.first ? control_.first : bulk_.first;
    if (!next || !pump_one(*next)) break;
    // Turn about among bulk messages.
    if (bulk_.first && bulk_.first != bulk_.last && !in_frame_ && next == bulk_.first) {
      remove(*next);
      append(bulk_, *next, outgoing::place::bulk);
    }
  }
  pumping_ = false;
}

void pair::on_ready(const frame_header& header) noexcept {
  for (outgoing* m = waiting_.first; m; m = m->next) {
    if (m->header.key() != header.key()) continue;
    remove(*m);
    m->header.kind = frame_kind::data;
    append(bulk_, *m, outgoing::place::bulk);
    return;
  }
  keep_early(header, nullptr, 0);
}

bool pair::hold_budget(std::uint64_t bytes) noexcept {
  if (bytes > eager_budget - held_budget_) {
    judge_.link_violated(peer_, "more messages came unasked than the budget allows");
    return false;
  }
  held_budget_ += bytes;
  return true;
}

void pair::return_budget(std::uint64_t bytes) noexcept {
  owed_budget_ += bytes;
  if (owed_budget_ < eager_budget / 4 || credit_.where != outgoing::place::idle) return;
  credit_.header.size = std::exchange(owed_budget_, 0);
  held_budget_ -= credit_.header.size;
  credit_.sent = 0;
  append(control_, credit_, outgoing::place::control);
  pump();
}

pair::owned_notice& pair::new_notice(frame_kind kind, std::uint64_t lane, std::uint64_t ticket) {
  for (auto* link = &notices_; *link;) {  // those that have gone out
    if ((*link)->message.where == outgoing::place::idle)
      *link = std::move((*link)->next);
    else
      link = &(*link)->next;
  }
  auto node = std::make_unique<owned_notice>();
  node->message.header.kind = kind;
  node->message.header.lane = lane;
  node->message.header.ticket = ticket;
  node->next = std::move(notices_);
  notices_ = std::move(node);
  return *notices_;
}

void pair::send_frame(outgoing& m) noexcept {
  m.sent = 0;
  m.header.kind = frame_kind::window;
  m.header.size = m.size;
  ++outstanding_;
  const bool bulk = m.size > eager_limit;
  append(bulk ? bulk_ : control_, m, bulk ? outgoing::place::bulk : outgoing::place::control);
  pump();
}

void pair::send_lane_revoke(std::uint64_t lane, std::uint64_t ticket, const lane_revoke_body& body) {
  if (broken_) return;
  owned_notice& notice = new_notice(frame_kind::lane_revoke, lane, ticket);
  notice.body = body;
  notice.message.header.size = notice.message.size = sizeof body;
  notice.message.data = reinterpret_cast<const std::byte*>(&notice.body);
  ++outstanding_;
  append(control_, notice.message, outgoing::place::control);
  pump();
}

void pair::send_signature(std::uint64_t lane, std::uint64_t ticket, const signature& call) {
  if (broken_) return;
  // A `ready` for a message that no plan has.
  owned_notice& notice = new_notice(frame_kind::ready, lane, ticket);
  notice.message.header.sequence = ~std::uint32_t{0};
  notice.message.header.call = call;
  append(control_, notice.message, outgoing::place::control);
  pump();
}

// Receiving.

posted_receive* pair::find_posted(const frame_header& header) const noexcept {
  posted_receive* r = posted_[bucket_of(header.lane, header.ticket, posted_.size())];
  while (r && !(r->key == header.key())) r = r->chain;
  return r;
}

void pair::insert_posted(posted_receive& r) noexcept {
  if (posted_count_ >= 2 * posted_.size()) {
    std::vector<posted_receive*> larger(posted_.size() * 4);
    for (auto* bucket : posted_)
      while (bucket) {
        posted_receive* moved = std::exchange(bucket, bucket->chain);
        auto& to = larger[bucket_of(moved->key.lane, moved->key.ticket, larger.size())];
        moved->chain = std::exchange(to, moved);
      }
    posted_.swap(larger);
  }
  auto& bucket = posted_[bucket_of(r.key.lane, r.key.ticket, posted_.size())];
  r.chain = std::exchange(bucket, &r);
  r.posted = true;
  ++posted_count_;
}

void pair::unlink_posted(posted_receive& r) noexcept {
  posted_receive** link = &posted_[bucket_of(r.key.lane, r.key.ticket, posted_.size())];
  while (*link != &r) link = &(*link)->chain;
  *link = r.chain;
  r.posted = false;
  --posted_count_;
}

void pair::receive(posted_receive& r) noexcept {
  r.received = 0;
  if (auto whole = take_early(r.key, frame_kind::eager)) {
    ++outstanding_;
    insert_posted(r);
    const std::uint64_t budget = whole->budget;
    take_whole(r, whole->payload.get(), whole->header.size);
    return_budget(budget);
    return;
  }
  const bool announced = take_early(r.key, frame_kind::announce) != nullptr;
  ++outstanding_;
  insert_posted(r);
  r.said_ready = announced || r.size > eager_limit;
  if (r.said_ready) {
    r.ready.header = {};
    r.ready.header.kind = frame_kind::ready;
    r.ready.header.set_key(r.key);
    r.ready.header.size = r.size;
    r.ready.header.call = r.call;
    append(control_, r.ready, outgoing::place::control);
    pump();
  }
}

void pair::withdraw(posted_receive& r) noexcept {
  if (!r.posted) return;
  drop_control(r.ready);
  if (!r.consume) wire_->forget_target(r.target, r.target + r.size);
  unlink_posted(r);
  --outstanding_;
}

void pair::take_part(posted_receive& r, const std::byte* payload, std::uint64_t size) noexcept {
  if (payload) {
    if (r.consume)
      r.consume(r, r.received, payload, size);
    else if (size != 0)
      std::memcpy(r.target + r.received, payload, size);
  }
  r.received += size;
  if (r.received != r.size) return;
  drop_control(r.ready);  // may still wait for room; the message is here, so nobody needs it
  unlink_posted(r);
  --outstanding_;
  if (r.completed) r.completed(r);
}

void pair::take_whole(posted_receive& r, const std::byte* payload, std::uint64_t size) noexcept {
  if (size != r.size || r.received != 0)
    return judge_.link_violated(peer_, "a message is not as long as its signature says");
  take_part(r, payload, size);
}

std::byte* pair::direct_target(const frame_header& header) noexcept {
  posted_receive* r = find_posted(header);
  if (!r || r->consume || header.size > r->size - r->received) return nullptr;
  return r->target + r->received;
}

void pair::on_frame(const frame_header& header, const std::byte* payload) noexcept {
  switch (header.kind) {
    case frame_kind::credit:
      if (header.size > eager_budget - send_budget_)
        return judge_.link_violated(peer_, "more budget came back than was used");
      send_budget_ += header.size;
      return;
    case frame_kind::lane_revoke: {
      lane_revoke_body body;
      std::memcpy(&body, payload, sizeof body);
      return judge_.lane_revoked(peer_, header, body);
    }
    case frame_kind::window:
      return judge_.window_frame(peer_, header, payload);
    default:
      break;
  }
  const std::uint64_t budget = header.kind == frame_kind::eager ? budget_of(header.size) : 0;
  if (!hold_budget(budget)) return;
  const bool wanted = judge_.judge(peer_, header) == verdict::current;
  if (!wanted) return budget != 0 ? return_budget(budget) : void();
  if (header.kind == frame_kind::ready) return on_ready(header);
  posted_receive* r = find_posted(header);
  switch (header.kind) {
    case frame_kind::eager:
      if (!r) return keep_early(header, payload, budget);
      take_whole(*r, payload, header.size);
      return return_budget(budget);
    case frame_kind::announce:
      if (!r) return keep_early(header, nullptr, 0);
      // Long receives said `ready` when they were posted; a short one is announced when the budget ran out.
      if (!std::exchange(r->said_ready, true)) {
        r->ready.header = header;
        r->ready.header.kind = frame_kind::ready;
        r->ready.header.call = r->call;
        append(control_, r->ready, outgoing::place::control);
        pump();
      }
      return;
    case frame_kind::data:
      if (!r) return judge_.link_violated(peer_, "data arrived that nobody is ready for");
      if (header.size > r->size - r->received)
        return judge_.link_violated(peer_, "a message is longer than announced");
      return take_part(*r, payload, header.size);
    default:
      return judge_.link_violated(peer_, "a frame of unknown kind");
  }
}

void pair::on_tiny(const tiny_line& line) noexcept {
  frame_header header;
  header.lane = line.lane;
  header.ticket = line.ticket;
  header.channel = line.channel();
  header.size = line.size();
  header.call = unpack(line.call);
  if (header.size > tiny_line::capacity) return judge_.link_violated(peer_, "a tiny message is too long");
  const std::uint64_t budget = budget_of(header.size);
  if (!hold_budget(budget)) return;
  if (judge_.judge(peer_, header) != verdict::current) return return_budget(budget);
  posted_receive* r = find_posted(header);
  if (!r) return keep_early(header, line.payload, budget);
  take_whole(*r, line.payload, header.size);
  return_budget(budget);
}

bool pair::send_line(const tiny_line& line) noexcept {
  const std::uint64_t cost = budget_of(line.size());
  if (broken_ || cost > send_budget_ || !wire_->push_tiny(line)) return false;
  send_budget_ -= cost;
  return true;
}

void pair::line_taken(std::uint64_t size) noexcept {
  const std::uint64_t budget = budget_of(size);
  if (hold_budget(budget)) return_budget(budget);
}

void pair::on_broken(error why) noexcept {
  if (broken_) return;
  broken_ = true;
  judge_.link_broken(peer_, std::move(why));
}

// Early arrivals.

void pair::keep_early(const frame_header& header, const std::byte* payload, std::uint64_t budget) noexcept {
  if (early_count_ >= 2 * early_.size()) {
    std::vector<early_arrival*> larger(early_.size() * 4);
    for (auto* bucket : early_)
      while (bucket) {
        early_arrival* moved = std::exchange(bucket, bucket->chain);
        auto& to = larger[bucket_of(moved->header.lane, moved->header.ticket, larger.size())];
        moved->chain = std::exchange(to, moved);
      }
    early_.swap(larger);
  }
  early_arrival* kept = spare_;
  if (kept) {
    spare_ = kept->chain;
    --spare_count_;
  } else {
    kept = std::make_unique<early_arrival>().release();
  }
  kept->header = header;
  kept->budget = budget;
  if (payload && header.size != 0) {
    if (kept->capacity < header.size) {
      kept->capacity = std::max(header.size, shortest_payload);
      kept->payload = std::make_unique_for_overwrite<std::byte[]>(kept->capacity);
    }
    std::memcpy(kept->payload.get(), payload, header.size);
  }
  auto& bucket = early_[bucket_of(header.lane, header.ticket, early_.size())];
  kept->chain = std::exchange(bucket, kept);
  ++early_count_;
}

void pair::recycle(early_arrival* used) noexcept {
  if (spare_count_ == most_spare_arrivals) {
    delete used;
    return;
  }
  used->chain = std::exchange(spare_, used);
  ++spare_count_;
}

pair::taken_arrival pair::take_early(const message_key& key, frame_kind kind) noexcept {
  taken_arrival found{nullptr, {this}};
  if (early_count_ == 0) return found;
  early_arrival** link = &early_[bucket_of(key.lane, key.ticket, early_.size())];
  while (*link && !((*link)->header.kind == kind && (*link)->header.key() == key)) link = &(*link)->chain;
  if (!*link) return found;
  found.reset(*link);
  *link = found->chain;
  --early_count_;
  return found;
}

bool pair::take_early_tiny(const message_key& key, std::byte* payload, std::size_t size) noexcept {
  auto found = take_early(key, frame_kind::eager);
  if (!found) return false;
  if (found->header.size != size) {
    judge_.link_violated(peer_, "a message is not as long as its signature says");
    return false;
  }
  if (size != 0) std::memcpy(payload, found->payload.get(), size);
  return_budget(std::exchange(found->budget, 0));
  return true;
}

/// Returns the budget they held. The caller gives it back when no list is being walked: that may complete
/// messages, and whoever hears of it may post and take others.
template <class Match>
std::uint64_t pair::forget_early(std::size_t bucket, Match match) noexcept {
  std::uint64_t budget = 0;
  early_arrival** link = &early_[bucket];
  while (*link) {
    if (!match((*link)->header)) {
      link = &(*link)->chain;
      continue;
    }
    const taken_arrival gone{*link, {this}};
    *link = gone->chain;
    --early_count_;
    budget += gone->budget;
  }
  return budget;
}

void pair::forget_lane(std::uint64_t lane) noexcept {
  if (early_count_ == 0) return;
  std::uint64_t budget = 0;
  for (std::size_t bucket = 0; bucket < early_.size(); ++bucket)
    budget += forget_early(bucket, [lane](const frame_header& h) { return h.lane == lane; });
  return_budget(budget);
}

void pair::forget_ticket(std::uint64_t lane, std::uint64_t ticket) noexcept {
  if (early_count_ == 0) return;
  return_budget(forget_early(bucket_of(lane, ticket, early_.size()),
                             [=](const frame_header& h) { return h.lane == lane && h.ticket == ticket; }));
}

std::size_t pair::progress(std::size_t budget) noexcept {
  // A pair that nobody waits for costs no system call until the backend has told of something.
  if (broken_ || (outstanding_ == 0 && !wants_room() && wire_->quiet())) return 0;
  const std::size_t moved = wire_->poll(*this, budget);
  if (wants_room()) pump();
  return moved;
}

}  // namespace chorale
