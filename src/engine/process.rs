//! Who this process is, and whether another one is gone.
//!
//! A pid alone says nothing: pids are reused, and in containers every main process is
//! number 1. A process counts as gone only when boot, pid namespace and start time can all
//! be compared.

use crate::store::lock::ProcessIdentity;

/// Identifies this process.
pub fn own_identity() -> ProcessIdentity {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    ProcessIdentity {
        host: Some(host),
        pid: Some(i64::from(std::process::id())),
        pid_start: start_time("self"),
        pid_namespace: std::fs::read_link("/proc/self/ns/pid")
            .ok()
            .map(|link| link.to_string_lossy().into_owned()),
        boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .ok()
            .map(|text| text.trim().to_owned()),
    }
}

/// Whether the process is known to be gone. False when it cannot be told.
pub fn is_gone(other: &ProcessIdentity, own: &ProcessIdentity) -> bool {
    let same_boot = other.boot_id.is_some() && other.boot_id == own.boot_id;
    let same_namespace = other.pid_namespace.is_some() && other.pid_namespace == own.pid_namespace;
    let (Some(pid), Some(started)) = (other.pid, &other.pid_start) else { return false };
    if !(same_boot && same_namespace) {
        return false;
    }
    // A process that ended, or one that only waits to be reaped, has no start time here.
    start_time(&pid.to_string()).as_ref() != Some(started)
}

/// Start time of a process in clock ticks since boot, or nothing when it is gone or dead.
///
/// Source: proc(5), field 22 of `/proc/PID/stat`; field 2 is in parentheses and may hold
/// spaces and parentheses itself.
fn start_time(pid: &str) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_start_time(&stat)
}

fn parse_start_time(stat: &str) -> Option<String> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_read_past_a_hostile_name() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 9 9";
        assert_eq!(parse_start_time(stat).as_deref(), Some("12345"));
        assert_eq!(parse_start_time(&stat.replace(") S ", ") Z ")), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_lives_and_a_reused_pid_does_not_count() {
        let own = own_identity();
        assert!(!is_gone(&own, &own));
        let mut reused = own.clone();
        reused.pid_start = Some("1".to_owned());
        assert!(is_gone(&reused, &own));
    }

    #[test]
    fn another_host_or_namespace_cannot_be_judged() {
        let own = own_identity();
        let elsewhere = ProcessIdentity {
            pid: Some(1),
            pid_start: Some("1".to_owned()),
            boot_id: Some("another boot".to_owned()),
            pid_namespace: own.pid_namespace.clone(),
            host: own.host.clone(),
        };
        assert!(!is_gone(&elsewhere, &own));
        assert!(!is_gone(&ProcessIdentity::default(), &own));
    }
}
