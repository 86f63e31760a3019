//! How an item stream is walked: by windows of `updated_at`, oldest first.
//!
//! Offset paging over a list that changes loses rows: an item that is updated while the
//! list is read leaves its page, all later rows move up by one, and the first row of the
//! next page is never seen, for good, since the cursor passes it. So the next request starts
//! at the last time that was read, not at a page number: a row can only move forward, into
//! a window that is still to come. `Link` is followed only among rows that share one time,
//! and there the pages are read again until they bring nothing new.

use std::time::Duration;

use url::Url;

use crate::clock::Millis;

/// GitLab leaves `updated_at` alone when it is younger than this (`TOUCH_INTERVAL`): a note
/// written meanwhile does not show. The rest is room for clocks and transactions.
const TOUCH_INTERVAL_MS: Millis = 60_000 + 5_000;

/// Overlaps below this are not accepted, for the same reason.
const MIN_OVERLAP: Duration = Duration::from_secs(60);

/// Time between two looks at the discussions of recently updated items. A little less than
/// a day, so that a daily run does not miss its turn by seconds.
const BACKFILL_EVERY_MS: Millis = 23 * 3_600_000;

/// Returns where a run starts to read: behind the cursor by the overlap.
pub fn start(cursor: Option<Millis>, overlap: Duration) -> Option<Millis> {
    let overlap = i64::try_from(overlap.max(MIN_OVERLAP).as_millis()).unwrap_or(i64::MAX);
    cursor.map(|at| at.saturating_sub(overlap))
}

/// Passes over the same pages at most.
const MAX_PASSES: u32 = 4;

/// Where to go on after a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Onward {
    /// A new list of what was updated at this time or later, or of everything.
    Window(Option<Millis>),
    /// The next page of the same list.
    Page(Url),
    /// The list is at its end.
    End,
}

/// A walk through one stream.
#[derive(Debug)]
pub struct Walk {
    /// Start of the list that is read.
    window: Option<Millis>,
    /// Set while pages are followed by offset.
    offset: Option<OffsetPass>,
}

#[derive(Debug, Default)]
struct OffsetPass {
    /// Rows of its pages that were new or changed.
    n_changed: usize,
    /// Passes before this one.
    n_before: u32,
}

impl Walk {
    /// Starts at a time, or at the beginning.
    pub fn new(window: Option<Millis>) -> Self {
        Self { window, offset: None }
    }

    /// A row of these pages cannot be read: they are not read again for what slipped by.
    pub fn forget_pass(&mut self) {
        self.offset = None;
    }

    /// Decides where to go on after a page: `next` is its own successor, `times` the
    /// `updated_at` of its rows in their order, `n_changed` how many of them were news.
    pub fn onward(&mut self, next: Option<Url>, times: &[Millis], n_changed: usize) -> Onward {
        let onward = onward(next, self.window, times);
        let follows_offset = matches!(onward, Onward::Page(_)) && is_ascending(times);
        if let Some(pass) = &mut self.offset {
            pass.n_changed += n_changed;
        } else if follows_offset {
            self.offset = Some(OffsetPass { n_changed, n_before: 0 });
        }
        match onward {
            Onward::Page(url) => Onward::Page(url),
            Onward::Window(_) | Onward::End => match self.offset.take() {
                // A row may have left these pages while they were read, and another slipped
                // by unseen. Once nothing is news, nothing was missed.
                Some(OffsetPass { n_changed: 1.., n_before }) if n_before + 1 < MAX_PASSES => {
                    self.offset = Some(OffsetPass { n_changed: 0, n_before: n_before + 1 });
                    Onward::Window(self.window)
                }
                Some(_) | None => {
                    if let Onward::Window(start) = onward {
                        self.window = start;
                    }
                    onward
                }
            },
        }
    }
}

/// `window` is the start of the list that the page belongs to.
fn onward(next: Option<Url>, window: Option<Millis>, times: &[Millis]) -> Onward {
    let Some(next) = next else { return Onward::End };
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return Onward::Page(next) };
    // One millisecond early: the server may compare by microseconds, or with `>`.
    let start = last - 1;
    // A list that starts with the rows of this page again would be no progress.
    // A page of a single row moves on too: else a page that had to be made that small would
    // be followed by thousands of its size.
    if is_ascending(times) && (first < last || times.len() == 1) && window.is_none_or(|window| start > window)
    {
        Onward::Window(Some(start))
    } else {
        Onward::Page(next)
    }
}

/// Whether rows came oldest first, as asked. If not, a cursor means nothing before the end.
pub fn is_ascending(times: &[Millis]) -> bool {
    times.windows(2).all(|pair| pair[0] <= pair[1])
}

/// What is kept of a stream beside its cursor, in the cursor's `fingerprint`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memo {
    /// Server time at which the stream was last read to its end.
    pub read_at: Option<Millis>,
    /// Server time at which the discussions of recent items were last queued.
    pub backfill_at: Option<Millis>,
}

impl Memo {
    /// Reads a fingerprint; what it does not hold is unknown.
    pub fn parse(text: &str) -> Self {
        let mut memo = Self::default();
        for (key, value) in text.split(' ').filter_map(|part| part.split_once('=')) {
            match key {
                "read" => memo.read_at = value.parse().ok(),
                "backfill" => memo.backfill_at = value.parse().ok(),
                _ => {}
            }
        }
        memo
    }

    /// Writes a fingerprint.
    pub fn format(self) -> String {
        let Self { read_at, backfill_at } = self;
        let part = |key: &str, at: Option<Millis>| at.map(|at| format!("{key}={at}"));
        [part("read", read_at), part("backfill", backfill_at)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Whether an item that was updated at `updated_at` was read late enough: whatever came
    /// after that reading has moved its `updated_at`.
    pub fn has_settled(self, updated_at: Millis) -> bool {
        self.read_at.is_some_and(|read_at| read_at >= updated_at + TOUCH_INTERVAL_MS)
    }

    /// Returns the memo after a run that read the stream to its end at `now` (server time),
    /// and since when updated items are to have their discussions queued again.
    ///
    /// Nothing changes for a stream that has settled and whose turn has not come, so that a
    /// quiet stream writes nothing.
    pub fn after_run(self, cursor: Option<Millis>, window: Duration, now: Millis) -> (Self, Option<Millis>) {
        let mut memo = self;
        if cursor.is_some_and(|cursor| !self.has_settled(cursor)) {
            memo.read_at = Some(now);
        }
        let window = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
        let mut since = None;
        if window > 0 {
            match self.backfill_at {
                // Everything was just queued as new.
                None => memo.backfill_at = Some(now),
                Some(last) if now - last >= BACKFILL_EVERY_MS => {
                    memo.backfill_at = Some(now);
                    since = Some(now.saturating_sub(window));
                }
                Some(_) => {}
            }
        }
        (memo, since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url() -> Url {
        Url::parse("https://host/api/v4/projects/5/issues?page=2").unwrap()
    }

    #[test]
    fn the_overlap_is_never_less_than_a_minute() {
        assert_eq!(start(Some(1_000_000), Duration::from_secs(5)), Some(940_000));
        assert_eq!(start(Some(1_000_000), Duration::from_secs(120)), Some(880_000));
        assert_eq!(start(None, Duration::from_secs(120)), None);
    }

    #[test]
    fn a5_07_windows_move_on_and_equal_times_are_paged() {
        assert_eq!(onward(None, None, &[1, 2]), Onward::End);
        assert_eq!(onward(Some(url()), None, &[10, 20]), Onward::Window(Some(19)));
        assert_eq!(onward(Some(url()), Some(19), &[20, 20]), Onward::Page(url()));
        assert_eq!(onward(Some(url()), Some(5), &[20, 20]), Onward::Page(url()));
        assert_eq!(onward(Some(url()), Some(19), &[20, 21]), Onward::Window(Some(20)));
        assert_eq!(onward(Some(url()), Some(19), &[]), Onward::Page(url()), "a page of hidden rows");
        assert_eq!(onward(Some(url()), None, &[20, 10]), Onward::Page(url()), "not in order");
    }

    #[test]
    fn a_page_of_one_row_is_followed_by_a_window_of_any_size() {
        assert_eq!(onward(Some(url()), Some(5), &[20]), Onward::Window(Some(19)));
        assert_eq!(onward(Some(url()), None, &[20]), Onward::Window(Some(19)));
        assert_eq!(onward(Some(url()), Some(19), &[20]), Onward::Page(url()), "no progress");
    }

    #[test]
    fn a5_09_pages_of_equal_times_are_read_until_they_bring_nothing_new() {
        let mut walk = Walk::new(None);
        assert_eq!(walk.onward(Some(url()), &[20, 20], 2), Onward::Page(url()));
        assert_eq!(walk.onward(Some(url()), &[20, 30], 2), Onward::Window(None), "once more");
        assert_eq!(walk.onward(Some(url()), &[20, 20], 0), Onward::Page(url()));
        assert_eq!(walk.onward(Some(url()), &[20, 30], 1), Onward::Window(None), "one had slipped by");
        assert_eq!(walk.onward(Some(url()), &[20, 20], 0), Onward::Page(url()));
        assert_eq!(walk.onward(Some(url()), &[20, 30], 0), Onward::Window(Some(29)));
        assert_eq!(walk.onward(None, &[30, 31], 1), Onward::End);
        let mut endless = Walk::new(Some(5));
        let passes = (0..100)
            .take_while(|_| {
                assert_eq!(endless.onward(Some(url()), &[20, 20], 1), Onward::Page(url()));
                endless.onward(None, &[20], 1) != Onward::End
            })
            .count();
        assert_eq!(passes, 3, "the passes are bounded");
    }

    #[test]
    fn bugs_19_an_item_settles_a_minute_after_its_update() {
        let memo = Memo { read_at: Some(100_000), backfill_at: None };
        assert!(memo.has_settled(35_000));
        assert!(!memo.has_settled(36_000));
        assert!(!Memo::default().has_settled(0));
        assert_eq!(memo.after_run(Some(36_000), Duration::ZERO, 500_000).0.read_at, Some(500_000));
        assert_eq!(memo.after_run(Some(35_000), Duration::ZERO, 500_000).0, memo);
    }

    #[test]
    fn the_backfill_comes_once_a_day() {
        let day = 86_400_000;
        let window = Duration::from_secs(14 * 86_400);
        let (first, since) = Memo::default().after_run(None, window, 20 * day);
        assert_eq!((first.backfill_at, since), (Some(20 * day), None));
        assert_eq!(first.after_run(None, window, 20 * day + 3_600_000), (first, None));
        let (second, since) = first.after_run(None, window, 21 * day);
        assert_eq!((second.backfill_at, since), (Some(21 * day), Some(7 * day)));
        assert_eq!(first.after_run(None, Duration::ZERO, 30 * day).1, None);
    }

    #[test]
    fn a_memo_survives_being_written() {
        for memo in [
            Memo::default(),
            Memo { read_at: Some(5), backfill_at: None },
            Memo { read_at: Some(5), backfill_at: Some(-1) },
        ] {
            assert_eq!(Memo::parse(&memo.format()), memo);
        }
        assert_eq!(Memo::parse("size=5 read=x"), Memo::default());
    }
}
