//! Planned faults: named points at which a debug build can be made to die, so that tests
//! can kill the real binary at the worst moment. Release builds do nothing here.

/// Name of the variable that plans a fault: `POINT`, `POINT:N` (the N-th time it is passed,
/// from 1), `POINT:N:stop`.
///
/// The process dies as by SIGKILL, or is stopped as by SIGSTOP. At a point that holds
/// ([`held_until`]) it is stopped, and the work there goes on only when it is told to end.
pub const VARIABLE: &str = "LORE_FAULT";

/// Every point that exists; tests walk this list.
pub const POINTS: &[&str] = &[
    "before-commit",
    "after-commit",
    "after-lock",
    "before-release",
    "backup-copied",
    "restore-staged",
    "check",
];

#[cfg(debug_assertions)]
struct Plan {
    point: String,
    left: std::sync::atomic::AtomicI64,
    signal: rustix::process::Signal,
}

/// The plan, when the point is passed for the planned time.
#[cfg(debug_assertions)]
fn planned_at(name: &'static str) -> Option<&'static Plan> {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};

    use rustix::process::Signal;

    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
    let plan = PLAN.get_or_init(|| {
        #[expect(clippy::disallowed_methods, reason = "a test hook, not configuration")]
        let text = std::env::var(VARIABLE).ok()?;
        let mut parts = text.split(':');
        let point = parts.next()?.to_owned();
        let left = AtomicI64::new(parts.next().and_then(|n| n.parse().ok()).unwrap_or(1));
        let signal = if parts.next() == Some("stop") { Signal::STOP } else { Signal::KILL };
        Some(Plan { point, left, signal })
    });
    debug_assert!(POINTS.contains(&name), "fault point {name} is not listed");
    plan.as_ref().filter(|plan| plan.point == name && plan.left.fetch_sub(1, Ordering::SeqCst) == 1)
}

/// Passes a point.
#[cfg(debug_assertions)]
pub fn point(name: &'static str) {
    use rustix::process::{Signal, getpid, kill_process};
    #[cfg(test)]
    planned::pass(name);
    if let Some(plan) = planned_at(name) {
        // No destructor, no handler, as when the kernel does it.
        let sent = kill_process(getpid(), plan.signal);
        assert!(sent.is_ok() && plan.signal == Signal::STOP, "still alive at fault point {name}: {sent:?}");
    }
}

/// Passes a point at which work can be held until it is told to end.
///
/// The process is stopped as by SIGSTOP, and when it goes on, this point waits for `is_over`. So
/// a signal that is sent meanwhile is sure to find the work under way.
#[cfg(debug_assertions)]
pub fn held_until(name: &'static str, is_over: impl Fn() -> bool) {
    use rustix::process::{Signal, getpid, kill_process};
    if planned_at(name).is_some() {
        let sent = kill_process(getpid(), Signal::STOP);
        assert!(sent.is_ok(), "cannot stop at fault point {name}: {sent:?}");
        while !is_over() {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
    }
}

/// Passes a point at which work can be held.
#[cfg(not(debug_assertions))]
pub fn held_until(_name: &'static str, _is_over: impl Fn() -> bool) {}

/// Name of the variable that says how many bytes are free on every file system.
pub const FREE_VARIABLE: &str = "LORE_FAULT_FREE";

/// How many bytes are said to be free.
#[cfg(debug_assertions)]
pub fn free_bytes() -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "a test hook, not configuration")]
    std::env::var(FREE_VARIABLE).ok()?.parse().ok()
}

/// How many bytes are said to be free.
#[cfg(not(debug_assertions))]
pub fn free_bytes() -> Option<u64> {
    None
}

/// Name of the variable that plans the death of the process in a step of a kind when it works
/// on an entry whose text holds a mark: `KIND=MARK`.
pub const ITEM_VARIABLE: &str = "LORE_FAULT_ITEM";

/// Begins work on an entry of a step, as it is called by people.
#[cfg(debug_assertions)]
pub fn item(step: &str, text: &str) {
    use rustix::process::{Signal, getpid, kill_process};
    #[expect(clippy::disallowed_methods, reason = "a test hook, not configuration")]
    let Ok(plan) = std::env::var(ITEM_VARIABLE) else { return };
    if plan.split_once('=').is_some_and(|(kind, mark)| kind == step && text.contains(mark)) {
        let sent = kill_process(getpid(), Signal::KILL);
        assert!(sent.is_err(), "still alive in {step} at {text}: {sent:?}");
    }
}

/// Begins work on an entry of a step.
#[cfg(not(debug_assertions))]
pub fn item(_step: &str, _text: &str) {}

/// Name of the variable that names a file with the milliseconds by which the wall clock is
/// wrong; it is read whenever the clock is.
pub const CLOCK_VARIABLE: &str = "LORE_FAULT_CLOCK";

/// By how much the wall clock is wrong, milliseconds.
#[cfg(debug_assertions)]
pub fn clock_error_ms() -> i64 {
    static FILE: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "a test hook, not configuration")]
    let file = FILE.get_or_init(|| std::env::var(CLOCK_VARIABLE).ok().filter(|file| !file.is_empty()));
    let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// By how much the wall clock is wrong, milliseconds.
#[cfg(not(debug_assertions))]
pub fn clock_error_ms() -> i64 {
    0
}

/// Passes a point.
#[cfg(not(debug_assertions))]
pub fn point(_name: &'static str) {}

/// Faults inside a test's own process, planned for the test's own thread.
#[cfg(test)]
pub mod planned {
    use std::cell::RefCell;

    struct Plan {
        point: &'static str,
        left: usize,
        act: Option<Box<dyn FnOnce()>>,
        passed_after: usize,
    }

    thread_local! {
        static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
    }

    /// Plans `act` for the `n`-th time, from 1, that this thread passes `point`.
    pub fn at(point: &'static str, n: usize, act: impl FnOnce() + 'static) {
        PLAN.set(Some(Plan { point, left: n, act: Some(Box::new(act)), passed_after: 0 }));
    }

    /// Takes the plan back. When it was carried out, returns how often the point was passed
    /// after that.
    pub fn take_back() -> Option<usize> {
        PLAN.take().filter(|plan| plan.act.is_none()).map(|plan| plan.passed_after)
    }

    pub(super) fn pass(name: &'static str) {
        let act = PLAN.with_borrow_mut(|plan| {
            let plan = plan.as_mut().filter(|plan| plan.point == name)?;
            if plan.act.is_none() {
                plan.passed_after += 1;
                return None;
            }
            plan.left -= 1;
            if plan.left == 0 { plan.act.take() } else { None }
        });
        if let Some(act) = act {
            act();
        }
    }
}
