//! The one error type, its kinds, and the exit code of each kind.
//!
//! A kind decides three things: whether a retry may help, which code the process exits
//! with, and which word `--json` names it by. Nothing in lore decides by error text.

use std::fmt;

/// Class of a failure. Closed: every kind has its exit code and its name here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorKind {
    /// A defect of lore itself.
    Internal,
    /// The command line or the query cannot be understood.
    Usage,
    /// The query holds nothing that can be searched for.
    NoUsableTokens,
    /// The configuration or a job file is invalid.
    Config,
    /// A secret that is referenced has no value.
    TokenNotSet,
    /// The server refused the credentials.
    Auth,
    /// The project or item does not exist at the source, or may not be seen.
    SourceNotFound,
    /// The server asked to wait for longer than the deadline leaves.
    RateLimited,
    /// The server could not be reached or answered with a server error.
    Network,
    /// Another process held the database's write lock for too long.
    DatabaseBusy,
    /// SQLite reported an error.
    Database,
    /// The database is missing, newer than this binary, or could not be migrated.
    DatabaseVersion,
    /// Reading or writing a file failed, or an archive is malformed.
    Io,
    /// A value outside a closed list.
    InvalidEnumValue,
    /// The embedding service cannot be reached.
    EmbeddingUnavailable,
    /// The embedding service does not have the model.
    EmbeddingModelNotFound,
    /// Texts could not be embedded.
    EmbeddingFailed,
    /// A reference names nothing that is stored.
    ReferenceNotFound,
    /// The run failed in several ways, or ran out of its time.
    RunFailed,
    /// Finished, but items keep failing (only with `--strict`).
    ItemsFailing,
    /// The integrity check found something.
    IntegrityFindings,
    /// The disk is full.
    DiskFull,
    /// Another process holds the app lock.
    Locked,
    /// This process lost the app lock; it changed nothing since.
    Fenced,
    /// SIGINT.
    Interrupted,
    /// SIGTERM.
    Terminated,
}

impl ErrorKind {
    /// Every kind, in the order of the exit codes.
    pub const ALL: &'static [Self] = &[
        Self::Internal,
        Self::Usage,
        Self::NoUsableTokens,
        Self::Config,
        Self::TokenNotSet,
        Self::Auth,
        Self::SourceNotFound,
        Self::RateLimited,
        Self::Network,
        Self::DatabaseBusy,
        Self::Database,
        Self::DatabaseVersion,
        Self::Io,
        Self::InvalidEnumValue,
        Self::EmbeddingUnavailable,
        Self::EmbeddingModelNotFound,
        Self::EmbeddingFailed,
        Self::ReferenceNotFound,
        Self::RunFailed,
        Self::ItemsFailing,
        Self::IntegrityFindings,
        Self::DiskFull,
        Self::Locked,
        Self::Fenced,
        Self::Interrupted,
        Self::Terminated,
    ];

    /// Exit code of a process that ends with this kind.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Internal => 1,
            Self::Usage | Self::NoUsableTokens => 2,
            Self::Config => 3,
            Self::TokenNotSet => 4,
            Self::Auth => 5,
            Self::SourceNotFound => 6,
            Self::RateLimited => 7,
            Self::Network => 8,
            Self::DatabaseBusy => 9,
            Self::Database => 10,
            Self::DatabaseVersion => 11,
            Self::Io => 12,
            Self::InvalidEnumValue => 13,
            Self::EmbeddingUnavailable => 14,
            Self::EmbeddingModelNotFound => 15,
            Self::EmbeddingFailed => 16,
            Self::ReferenceNotFound => 17,
            Self::RunFailed => 20,
            Self::ItemsFailing => 21,
            Self::IntegrityFindings => 22,
            Self::DiskFull => 74,
            Self::Locked => 75,
            Self::Fenced => 76,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }

    /// Name in JSON output, in the run history and in metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Internal => "INTERNAL",
            Self::Usage => "USAGE",
            Self::NoUsableTokens => "NO_USABLE_TOKENS",
            Self::Config => "CONFIG_INVALID",
            Self::TokenNotSet => "TOKEN_NOT_SET",
            Self::Auth => "AUTH_REJECTED",
            Self::SourceNotFound => "SOURCE_NOT_FOUND",
            Self::RateLimited => "RATE_LIMITED",
            Self::Network => "NETWORK",
            Self::DatabaseBusy => "DATABASE_BUSY",
            Self::Database => "DATABASE",
            Self::DatabaseVersion => "DATABASE_VERSION",
            Self::Io => "IO",
            Self::InvalidEnumValue => "INVALID_ENUM_VALUE",
            Self::EmbeddingUnavailable => "OLLAMA_UNAVAILABLE",
            Self::EmbeddingModelNotFound => "OLLAMA_MODEL_NOT_FOUND",
            Self::EmbeddingFailed => "EMBEDDING_FAILED",
            Self::ReferenceNotFound => "REFERENCE_NOT_FOUND",
            Self::RunFailed => "RUN_FAILED",
            Self::ItemsFailing => "ITEMS_FAILING",
            Self::IntegrityFindings => "INTEGRITY_FINDINGS",
            Self::DiskFull => "DISK_FULL",
            Self::Locked => "LOCKED",
            Self::Fenced => "FENCED",
            Self::Interrupted => "INTERRUPTED",
            Self::Terminated => "TERMINATED",
        }
    }

    /// What the kind means, for the reference and the top command's help.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Internal => "internal error (a defect of lore)",
            Self::Usage => "wrong usage",
            Self::NoUsableTokens => "the query holds nothing that can be searched for",
            Self::Config => "configuration or job file invalid",
            Self::TokenNotSet => "a secret that is referenced is not set",
            Self::Auth => "credentials rejected",
            Self::SourceNotFound => "not found at the source",
            Self::RateLimited => "rate limited up to the deadline",
            Self::Network => "network or server failure",
            Self::DatabaseBusy => "database busy",
            Self::Database => "database error",
            Self::DatabaseVersion => "database missing, too new, or migration failed",
            Self::Io => "input or output failed",
            Self::InvalidEnumValue => "a value outside the accepted list",
            Self::EmbeddingUnavailable => "embedding service unavailable",
            Self::EmbeddingModelNotFound => "embedding model not found",
            Self::EmbeddingFailed => "embedding failed",
            Self::ReferenceNotFound => "nothing found for a reference",
            Self::RunFailed => "run failed in several ways, or out of time",
            Self::ItemsFailing => "finished, but items are failing (--strict)",
            Self::IntegrityFindings => "integrity findings",
            Self::DiskFull => "disk full",
            Self::Locked => "lock held by another run",
            Self::Fenced => "lock lost to another run, nothing written since",
            Self::Interrupted => "interrupted (SIGINT), resumable",
            Self::Terminated => "terminated (SIGTERM), resumable",
        }
    }

    /// Whether trying again, unchanged, may succeed.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::RateLimited | Self::Network | Self::DatabaseBusy | Self::EmbeddingUnavailable)
    }

    /// Finds a kind by its [`code`](Self::code).
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.code() == code)
    }
}

/// An error: what was being done, to what, and what to do next.
///
/// The message is a lowercase fragment without a final period; causes are joined to it by
/// `: `. Messages never hold secrets: URLs are stripped before they get here.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    hints: Vec<String>,
    details: Option<serde_json::Value>,
    retry_after_ms: Option<i64>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Result with lore's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes an error of `kind` that says `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            hints: Vec::new(),
            details: None,
            retry_after_ms: None,
            source: None,
        }))
    }

    /// Shorthand for a broken invariant.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Shorthand for a command-line mistake.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// Shorthand for an invalid configuration or job file.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    /// Adds what to do next; printed as `hint: …`.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hints.push(hint.into());
        self
    }

    /// Adds machine-readable details for `--json`.
    #[must_use]
    pub fn details(mut self, details: serde_json::Value) -> Self {
        self.0.details = Some(details);
        self
    }

    /// Says how long the server asked to wait, in milliseconds.
    #[must_use]
    pub fn retry_after_ms(mut self, wait_ms: i64) -> Self {
        self.0.retry_after_ms = Some(wait_ms);
        self
    }

    /// Attaches the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Puts what was being done in front of the message; kind, hints and details stay.
    #[must_use]
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.0.message = format!("{doing}: {}", self.0.message);
        self
    }

    /// Changes the class, for a layer that knows better what a failure means.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// The class of the failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message with its causes, joined by `: `.
    pub fn full_message(&self) -> String {
        let mut text = self.0.message.clone();
        let mut next: Option<&(dyn std::error::Error + 'static)> =
            self.0.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static));
        while let Some(cause) = next {
            let cause_text = cause.to_string();
            if !text.ends_with(&cause_text) {
                text.push_str(": ");
                text.push_str(&cause_text);
            }
            next = cause.source();
        }
        text
    }

    /// What to do next, in order.
    pub fn hints(&self) -> &[String] {
        &self.0.hints
    }

    /// Machine-readable details, when there are any.
    pub fn details_value(&self) -> Option<&serde_json::Value> {
        self.0.details.as_ref()
    }

    /// How long the server asked to wait, in milliseconds.
    pub fn retry_after(&self) -> Option<i64> {
        self.0.retry_after_ms
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full_message())
    }
}

impl std::error::Error for Error {}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        let kind = match error.sqlite_error_code() {
            // The last one: another process is stopped while it changes the index of the log.
            Some(
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed,
            ) => ErrorKind::DatabaseBusy,
            Some(ErrorCode::DiskFull) => ErrorKind::DiskFull,
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => ErrorKind::Io,
            Some(ErrorCode::OperationInterrupted) => ErrorKind::Interrupted,
            _ => ErrorKind::Database,
        };
        let damaged = is_damage(&error);
        let foreign = error.sqlite_error_code() == Some(ErrorCode::NotADatabase);
        let error = Self::new(kind, "database").because(error);
        if kind == ErrorKind::DiskFull {
            error.hint(
                "make room on the file system of the database, and run again: what is stored stays whole",
            )
        } else if foreign {
            error.hint("name another file with --database, or move this one away: lore makes a new one")
        } else if damaged {
            error
                .hint("`lore status --check` says what is damaged")
                .hint("restore a backup, or move the file away and bring your projects in again")
        } else {
            error
        }
    }
}

/// Whether an error of SQLite says that the content of the file is damaged: pages that are
/// malformed, tables that are gone, values that no lore wrote.
pub fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::{Error as Sql, ErrorCode};
    match error {
        Sql::Utf8Error(..)
        | Sql::FromSqlConversionFailure(..)
        | Sql::InvalidColumnType(..)
        | Sql::IntegralValueOutOfRange(..) => true,
        Sql::SqliteFailure(..) | Sql::SqlInputError { .. } => {
            error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt)
                || error.to_string().contains("no such table")
        }
        _ => false,
    }
}

/// Maps an I/O error, so that a full disk is told apart from every other failure.
pub fn io_error(doing: impl fmt::Display, error: std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::DiskFull,
        _ => ErrorKind::Io,
    };
    Error::new(kind, doing.to_string()).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_found_again() {
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_code(kind.code()), Some(*kind));
        }
    }

    #[test]
    fn full_message_joins_causes_once() {
        let cause = std::io::Error::other("no route to host");
        let error = Error::new(ErrorKind::Network, "GET /projects").because(cause);
        assert_eq!(
            error.context("fetch page 2").full_message(),
            "fetch page 2: GET /projects: no route to host"
        );
    }
}
