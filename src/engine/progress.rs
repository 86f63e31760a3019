//! Progress of long work: a bar on a terminal, a log line every 30 seconds elsewhere.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Time between two log lines about the same work.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// How progress is shown.
#[derive(Clone, Default)]
pub enum ProgressMode {
    /// Not at all.
    #[default]
    Silent,
    /// A log line every 30 seconds.
    Log,
    /// Bars on standard error.
    Bars(MultiProgress),
}

/// Progress of one step.
#[derive(Clone)]
pub struct Progress {
    step: String,
    mode: ProgressMode,
    state: Arc<Mutex<State>>,
}

struct State {
    bar: Option<ProgressBar>,
    started: Instant,
    last_log: Instant,
}

impl Progress {
    /// Makes the progress of `step`.
    pub fn new(step: &str, mode: ProgressMode) -> Self {
        let now = Instant::now();
        Self {
            step: step.to_owned(),
            mode,
            state: Arc::new(Mutex::new(State { bar: None, started: now, last_log: now })),
        }
    }

    /// Says that `done` of `total` units are done; the total may be unknown.
    pub fn set(&self, unit: &str, done: u64, total: Option<u64>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.mode {
            ProgressMode::Silent => {}
            ProgressMode::Log => {
                if state.last_log.elapsed() >= LOG_EVERY {
                    state.last_log = Instant::now();
                    let line = progress_line(unit, done, total, state.started.elapsed());
                    tracing::info!(step = %self.step, done, total, "{line}");
                }
            }
            ProgressMode::Bars(bars) => {
                let bar = state.bar.get_or_insert_with(|| {
                    let bar = bars.add(ProgressBar::new(total.unwrap_or(0)));
                    let template = "{prefix:20} {bar:30} {pos}/{len} {msg} {per_sec} eta {eta}";
                    if let Ok(style) = ProgressStyle::with_template(template) {
                        bar.set_style(style);
                    }
                    bar.set_prefix(self.step.clone());
                    bar
                });
                bar.set_message(unit.to_owned());
                bar.set_length(total.unwrap_or(done).max(done));
                bar.set_position(done);
            }
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = state.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Formats one line of progress: done, total, rate and expected time left.
fn progress_line(unit: &str, done: u64, total: Option<u64>, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
    match total {
        Some(total) if total >= done && rate > 0.0 => {
            let left = (total - done) as f64 / rate;
            format!("{done} of {total} {unit}, {rate:.1}/s, about {left:.0} s left")
        }
        Some(_) | None => format!("{done} {unit}, {rate:.1}/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_rate_and_time_left() {
        let line = progress_line("documents", 50, Some(200), Duration::from_secs(10));
        assert_eq!(line, "50 of 200 documents, 5.0/s, about 30 s left");
        assert_eq!(progress_line("notes", 7, None, Duration::from_secs(7)), "7 notes, 1.0/s");
    }
}
