//! The jobs that are compiled into the binary.

/// Name and text of each.
pub static JOBS: &[(&str, &str)] = &[];
