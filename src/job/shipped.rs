//! The jobs that are compiled into the binary; their files are in `jobs/`.

/// Name and text of each, in the order in which lists show them.
pub static JOBS: &[(&str, &str)] = &[
    ("sync", include_str!("../../jobs/sync.toml")),
    ("full-refresh", include_str!("../../jobs/full-refresh.toml")),
    ("embed", include_str!("../../jobs/embed.toml")),
    ("maintain", include_str!("../../jobs/maintain.toml")),
    ("reconcile", include_str!("../../jobs/reconcile.toml")),
    ("repair", include_str!("../../jobs/repair.toml")),
    ("rebuild", include_str!("../../jobs/rebuild.toml")),
    ("links", include_str!("../../jobs/links.toml")),
    ("demo", include_str!("../../jobs/demo.toml")),
];

/// The text of a job.
pub fn text(name: &str) -> Option<&'static str> {
    JOBS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
