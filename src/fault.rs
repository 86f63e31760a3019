//! Planned faults: named points at which a debug build can be made to die, so that tests
//! can kill the real binary at the worst moment. Release builds do nothing here.

/// Name of the variable that plans a fault: `POINT`, `POINT:N` (the N-th time it is
/// passed, from 1). The process dies as by SIGKILL.
pub const VARIABLE: &str = "LORE_FAULT";

/// Every point that exists; tests walk this list.
pub const POINTS: &[&str] = &["before-commit", "after-commit", "after-lock", "before-release"];

/// Passes a point.
#[cfg(debug_assertions)]
pub fn point(name: &'static str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};

    static PLAN: OnceLock<Option<(String, AtomicI64)>> = OnceLock::new();
    let plan = PLAN.get_or_init(|| {
        #[expect(clippy::disallowed_methods, reason = "a test hook, not configuration")]
        let text = std::env::var(VARIABLE).ok()?;
        let (point, count) = text.split_once(':').unwrap_or((&text, "1"));
        Some((point.to_owned(), AtomicI64::new(count.parse().unwrap_or(1))))
    });
    debug_assert!(POINTS.contains(&name), "fault point {name} is not listed");
    if let Some((point, left)) = plan
        && point == name
        && left.fetch_sub(1, Ordering::SeqCst) == 1
    {
        // SIGKILL: no destructor, no handler, as when the kernel does it.
        let own = rustix::process::getpid();
        let killed = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        unreachable!("still alive at fault point {name}: {killed:?}");
    }
}

/// Passes a point.
#[cfg(not(debug_assertions))]
pub fn point(_name: &'static str) {}
