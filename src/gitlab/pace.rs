//! The budget of one server: how many requests are started per second, how many are under
//! way, and what the server's own limits say about both.
//!
//! Everything that works for one source in one run shares one budget. Deciding is pure: the
//! state is given the time; only [`Budget`] waits.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Requests that may start at once after a pause without requests.
const BURST: f64 = 5.0;

/// The share of the server's limit below which requests are spread over what is left of its
/// window, so that the limit is not met.
const SCARCE_SHARE: u64 = 10;

/// The same when the server does not tell its limit, in requests.
const SCARCE: u64 = 10;

/// Time between requests when few are left and the server does not say until when.
const SCARCE_INTERVAL: Duration = Duration::from_secs(1);

/// Refusals within this time are one: requests that were under way together.
const ONE_REFUSAL: Duration = Duration::from_secs(1);

/// A server that was never reached in this run is given up after this time: a wrong
/// address or a service that is down is not worth a minute of every stream.
const UNREACHED_PATIENCE: Duration = Duration::from_millis(1500);

/// How long requests may wait at the word of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// When the step must have ended: no wait goes beyond it.
    pub deadline: Option<Instant>,
    /// Longest wait for one request.
    pub longest: Duration,
}

impl Patience {
    /// Whether a wait until `until` is too long.
    pub(super) fn is_exceeded(self, now: Instant, until: Instant) -> bool {
        self.deadline.is_some_and(|deadline| until >= deadline)
            || until.saturating_duration_since(now) > self.longest
    }
}

/// What a server says is left of its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Requests that are left in its window.
    pub remaining: u64,
    /// Requests of a window.
    pub limit: Option<u64>,
    /// Time until the next window.
    pub reset: Option<Duration>,
}

impl Quota {
    /// Whether little is left.
    fn is_scarce(self) -> bool {
        self.remaining <= self.limit.map_or(SCARCE, |limit| limit / SCARCE_SHARE)
    }
}

/// When a request may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The time.
    pub at: Instant,
    /// Whether it is later than our own rate asks for: the server wants it so.
    pub is_asked: bool,
}

/// Decides when requests start.
#[derive(Debug)]
struct Pace {
    /// Time between two requests by our own rate.
    interval: Duration,
    /// When the next request is due at the earliest.
    next: Instant,
    /// The server asked for a pause until then.
    held: Option<Instant>,
    /// Until when requests are spread further apart, and how far.
    scarce: Option<(Instant, Duration)>,
}

impl Pace {
    fn new(per_second: f64, now: Instant) -> Self {
        let interval = Duration::from_secs_f64((1.0 / per_second).min(3600.0));
        Self { interval, next: now, held: None, scarce: None }
    }

    fn take(&mut self, now: Instant) -> Turn {
        let scarce = self.scarce.filter(|(until, _)| *until > now).map(|(_, interval)| interval);
        let interval = self.interval.max(scarce.unwrap_or_default());
        // A stretch that is spread has no burst.
        let spare = if scarce.is_some() { Duration::ZERO } else { interval.mul_f64(BURST - 1.0) };
        let own = self.next.max(now.checked_sub(spare).unwrap_or(now));
        let at = self.held.map_or(own, |held| own.max(held));
        self.next = at + interval;
        let is_asked = at > now && (self.held(now).is_some() || scarce.is_some());
        Turn { at, is_asked }
    }

    fn hold(&mut self, until: Instant) {
        self.held = Some(self.held.map_or(until, |held| held.max(until)));
    }

    /// Learns what is left of the server's limit.
    fn learn(&mut self, now: Instant, quota: Quota) {
        if !quota.is_scarce() {
            self.scarce = None;
            return;
        }
        match quota.reset {
            Some(reset) if quota.remaining == 0 => self.hold(now + reset),
            Some(reset) => {
                let parts = u32::try_from(quota.remaining).unwrap_or(u32::MAX).saturating_add(1);
                self.scarce = Some((now + reset, reset / parts));
            }
            None => self.scarce = Some((now + SCARCE_INTERVAL * 2, SCARCE_INTERVAL)),
        }
    }

    fn held(&self, now: Instant) -> Option<Instant> {
        self.held.filter(|until| *until > now)
    }
}

/// Decides how many requests may be under way: halved when the server refuses, one more
/// after as many answers as there are slots (additive increase, multiplicative decrease).
#[derive(Debug)]
struct Slots {
    /// Never more than this.
    most: usize,
    /// Now.
    limit: f64,
    in_use: usize,
    lowered_at: Option<Instant>,
}

impl Slots {
    fn new(most: usize) -> Self {
        let most = most.max(1);
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        Self { most, limit: most as f64, in_use: 0, lowered_at: None }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and `most`")]
    fn now(&self) -> usize {
        (self.limit as usize).clamp(1, self.most)
    }

    fn lower(&mut self, now: Instant) {
        let is_news = self.lowered_at.is_none_or(|at| now.saturating_duration_since(at) >= ONE_REFUSAL);
        if is_news {
            self.limit = (self.limit / 2.0).max(1.0);
            self.lowered_at = Some(now);
        }
    }

    fn raise(&mut self) {
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let most = self.most as f64;
        self.limit = (self.limit + 1.0 / self.limit).min(most);
    }
}

/// Whether the server was ever reached, and since when it was not.
#[derive(Debug, Default)]
struct Reach {
    was_reached: bool,
    /// First and last failure to connect.
    failed: Option<(Instant, Instant)>,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    slots: Slots,
    reach: Reach,
}

/// The budget of one source, shared by everything in a run that asks its server.
#[derive(Debug)]
pub struct Budget {
    state: Mutex<State>,
    freed: Notify,
}

/// A slot for one request; free again when it is dropped.
#[derive(Debug)]
pub struct Slot<'a>(&'a Budget);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.state().slots.in_use -= 1;
        self.0.freed.notify_one();
    }
}

impl Budget {
    /// Makes a budget of `per_second` requests, which is above zero, `most` of them under way.
    pub fn new(per_second: f64, most: usize, now: Instant) -> Self {
        let state =
            State { pace: Pace::new(per_second, now), slots: Slots::new(most), reach: Reach::default() };
        Self { state: Mutex::new(state), freed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a slot.
    pub async fn slot(&self) -> Slot<'_> {
        loop {
            let freed = self.freed.notified();
            {
                let mut state = self.state();
                if state.slots.in_use < state.slots.now() {
                    state.slots.in_use += 1;
                    return Slot(self);
                }
            }
            freed.await;
        }
    }

    /// Takes the next turn.
    pub fn take(&self, now: Instant) -> Turn {
        self.state().pace.take(now)
    }

    /// Until when nothing may start, when the server asked for a pause.
    pub fn held(&self, now: Instant) -> Option<Instant> {
        self.state().pace.held(now)
    }

    /// Starts no request for `wait`: the server asked for it.
    pub fn hold(&self, now: Instant, wait: Duration) {
        self.state().pace.hold(now + wait);
    }

    /// Learns from the headers of an answer.
    pub fn learn(&self, now: Instant, quota: Quota) {
        self.state().pace.learn(now, quota);
    }

    /// The server asked for less: fewer requests under way.
    pub fn refused(&self, now: Instant) {
        self.state().slots.lower(now);
    }

    /// The server answered as it should: a little more again.
    pub fn served(&self) {
        self.state().slots.raise();
        self.freed.notify_one();
    }

    /// Requests that may be under way now.
    pub fn concurrency(&self) -> usize {
        self.state().slots.now()
    }

    /// The server answered, whatever it said.
    pub fn reached(&self) {
        self.state().reach.was_reached = true;
    }

    /// No connection came about. Returns whether trying again after `wait` is worth it.
    pub fn unreached(&self, now: Instant, wait: Duration) -> bool {
        let reach = &mut self.state().reach;
        let first = reach.failed.map_or(now, |(first, _)| first);
        reach.failed = Some((first, now));
        reach.was_reached || now + wait < first + UNREACHED_PATIENCE
    }

    /// Whether a request would fail like the one a moment ago: the server was never reached,
    /// and is given up.
    pub fn is_given_up(&self, now: Instant) -> bool {
        let reach = &self.state().reach;
        !reach.was_reached
            && reach.failed.is_some_and(|(first, last)| {
                now >= first + UNREACHED_PATIENCE && now.saturating_duration_since(last) < ONE_REFUSAL
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn millis(turns: &[Turn], start: Instant) -> Vec<u128> {
        turns.iter().map(|turn| turn.at.saturating_duration_since(start).as_millis()).collect()
    }

    fn quota(remaining: u64, limit: u64, reset: u64) -> Quota {
        Quota { remaining, limit: Some(limit), reset: Some(Duration::from_secs(reset)) }
    }

    #[test]
    fn a_burst_is_free_and_the_rest_is_spread() {
        let start = Instant::now();
        let mut pace = Pace::new(10.0, start);
        let later = start + Duration::from_secs(10);
        let turns: Vec<Turn> = (0..8).map(|_| pace.take(later)).collect();
        assert_eq!(millis(&turns, later), [0, 0, 0, 0, 0, 100, 200, 300]);
        assert!(turns.iter().all(|turn| !turn.is_asked));
        let much_later = later + Duration::from_secs(1);
        assert!(pace.take(much_later).at <= much_later);
    }

    #[test]
    fn api_76_everybody_waits_while_the_server_asked_for_a_pause() {
        let start = Instant::now();
        let mut pace = Pace::new(10.0, start);
        pace.hold(start + Duration::from_secs(5));
        pace.hold(start + Duration::from_secs(2));
        let turns: Vec<Turn> = (0..3).map(|_| pace.take(start)).collect();
        assert_eq!(millis(&turns, start), [5000, 5100, 5200], "spread, not all at once");
        assert!(turns.iter().all(|turn| turn.is_asked));
        assert_eq!(pace.held(start + Duration::from_secs(6)), None);
    }

    #[test]
    fn api_77_requests_are_spread_before_the_limit_is_met() {
        let start = Instant::now();
        let mut pace = Pace::new(100.0, start);
        pace.learn(start, quota(500, 600, 60));
        assert!(!pace.take(start).is_asked, "plenty");
        pace.learn(start, quota(9, 600, 10));
        let turns: Vec<Turn> = (0..3).map(|_| pace.take(start)).collect();
        assert_eq!(millis(&turns, start)[1..], [1010, 2010], "ten seconds over nine and one");
        assert!(turns[2].is_asked);
        pace.learn(start, quota(0, 600, 10));
        assert!(pace.take(start).at >= start + Duration::from_secs(10), "nothing is left");
        let next_window = start + Duration::from_secs(30);
        pace.learn(next_window, quota(599, 600, 60));
        assert!(!pace.take(next_window).is_asked);
        let unknown = Quota { remaining: 3, limit: None, reset: None };
        pace.learn(next_window, unknown);
        let turns = [pace.take(next_window), pace.take(next_window)];
        assert!(turns[1].at >= turns[0].at + SCARCE_INTERVAL);
    }

    #[test]
    fn a_refusal_halves_what_is_under_way_and_answers_restore_it() {
        let start = Instant::now();
        let mut slots = Slots::new(8);
        slots.lower(start);
        slots.lower(start + Duration::from_millis(20));
        assert_eq!(slots.now(), 4, "those under way together count once");
        for second in 1..10 {
            slots.lower(start + Duration::from_secs(second));
        }
        assert_eq!(slots.now(), 1, "never none");
        let n_answers = (0..1000)
            .take_while(|_| {
                slots.raise();
                slots.now() < 8
            })
            .count();
        assert!((20..60).contains(&n_answers), "{n_answers}: gradually");
        slots.raise();
        assert_eq!(slots.now(), 8, "never more than configured");
    }

    #[test]
    fn a_server_that_was_never_reached_is_given_up_soon() {
        let start = Instant::now();
        let budget = Budget::new(10.0, 4, start);
        let second = Duration::from_secs(1);
        assert!(budget.unreached(start, second));
        assert!(!budget.is_given_up(start));
        assert!(!budget.unreached(start + second, second));
        let later = start + second * 2;
        assert!(!budget.unreached(later, Duration::ZERO));
        assert!(budget.is_given_up(later), "other streams need not try for themselves");
        assert!(!budget.is_given_up(later + second), "a later attempt does");
        budget.reached();
        assert!(budget.unreached(later, second * 60), "it is there, so patience pays");
    }

    #[test]
    fn slots_are_handed_on_and_follow_the_limit() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let budget = Budget::new(10.0, 2, Instant::now());
            let (first, second) = (budget.slot().await, budget.slot().await);
            let waiting = budget.slot();
            tokio::pin!(waiting);
            assert!(waiting.as_mut().now_or_never().is_none());
            budget.refused(Instant::now());
            drop(first);
            assert!(waiting.as_mut().now_or_never().is_none(), "one is under way, one is allowed");
            drop(second);
            let third = waiting.await;
            budget.served();
            let fourth = budget.slot().await;
            drop((third, fourth));
        });
    }
}
