//! The keys of job files: names, forms, defaults and what they mean. Read by the parser,
//! the JSON Schema and the manual, so that they cannot differ.

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its value looks like.
    pub form: Form,
    /// What holds when it is absent, in TOML; nothing for "not set".
    pub default: Option<&'static str>,
    /// What it means.
    pub doc: &'static str,
}

/// What a value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Any text.
    Text,
    /// A name: letters, digits, `-` and `_`.
    Name,
    /// A duration such as `"20m"`.
    Duration,
    /// `true` or `false`.
    Flag,
    /// An integer between the two, both included.
    Integer(u32, u32),
    /// A list of names.
    Names,
    /// Keyword or condition.
    When,
    /// Five cron fields.
    Schedule,
    /// A `retry` table.
    Retry,
    /// `[defaults]`
    Defaults,
    /// `[steps.NAME]`
    Steps,
    /// The parameters of the step's kind.
    With,
}

impl Form {
    /// What the manual calls it.
    pub fn name(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Name => "name".to_owned(),
            Self::Duration => "duration".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Integer(min, max) => format!("integer, {min} to {max}"),
            Self::Names => "list of step names".to_owned(),
            Self::When => "`success`, `always`, `failure` or a condition".to_owned(),
            Self::Schedule => "five cron fields".to_owned(),
            Self::Retry | Self::Defaults | Self::Steps | Self::With => "table".to_owned(),
        }
    }
}

const fn key(name: &'static str, form: Form, default: Option<&'static str>, doc: &'static str) -> Key {
    Key { name, form, default, doc }
}

/// Keys of the file.
pub const JOB: [Key; 8] = [
    key("name", Form::Name, None, "Name of the job. Default: the name of the file without `.toml`."),
    key("description", Form::Text, None, "What the job is for, one line, shown by `lore jobs list`."),
    key(
        "schedule",
        Form::Schedule,
        None,
        "When the job is meant to be started. Documentation, and input of generated manifests: lore has no scheduler.",
    ),
    key("timeout", Form::Duration, None, "Time that a run may take, the wait for the lock not included."),
    key("max_parallel", Form::Integer(1, 64), Some("2"), "Steps that may run at once."),
    key(
        "full",
        Form::Flag,
        Some("false"),
        "Whether every run resets the cursors of its sources and renders everything again, as `lore run --full` does.",
    ),
    key("defaults", Form::Defaults, None, "What holds for every step that does not say otherwise."),
    key("steps", Form::Steps, None, "The steps by name, `[steps.NAME]`. Required."),
];

/// Keys of `[defaults]`.
pub const DEFAULTS: [Key; 2] = [
    key("timeout", Form::Duration, None, "Time that one attempt of a step may take."),
    key("retry", Form::Retry, None, "How steps are tried again."),
];

/// Keys of `[steps.NAME]`.
pub const STEP: [Key; 7] = [
    key("uses", Form::Name, None, "Kind of the step. Default: the step's own name."),
    key("needs", Form::Names, Some("[]"), "Steps that have to end before this one begins."),
    key("when", Form::When, Some("\"success\""), "Whether the step runs, given how its needs ended."),
    key("timeout", Form::Duration, None, "Time that one attempt may take. Default: that of `[defaults]`."),
    key("retry", Form::Retry, None, "How the step is tried again. Default: that of `[defaults]`."),
    key(
        "allow_failure",
        Form::Flag,
        Some("false"),
        "Whether the run goes on and succeeds although this step failed. Its failure stays visible.",
    ),
    key("with", Form::With, Some("{}"), "Parameters of the step's kind."),
];

/// Keys of `retry`.
pub const RETRY: [Key; 3] = [
    key("max_attempts", Form::Integer(1, 100), Some("3"), "Attempts altogether; 1 means no retry."),
    key(
        "base",
        Form::Duration,
        Some("\"1s\""),
        "Wait after the first failure, doubled after each further one, ± 10 %.",
    ),
    key("max", Form::Duration, Some("\"5m\""), "Longest wait. What a server asks for wins."),
];

/// Words of other tools, and what they are called here.
pub(super) const ELSEWHERE: [(&str, &str); 21] = [
    ("job", "steps"),
    ("jobs", "steps"),
    ("tasks", "steps"),
    ("stages", "steps"),
    ("kind", "uses"),
    ("type", "uses"),
    ("use", "uses"),
    ("depends", "needs"),
    ("depends_on", "needs"),
    ("dependencies", "needs"),
    ("requires", "needs"),
    ("if", "when"),
    ("condition", "when"),
    ("continue_on_error", "allow_failure"),
    ("ignore_errors", "allow_failure"),
    ("params", "with"),
    ("args", "with"),
    ("options", "with"),
    ("cron", "schedule"),
    ("attempts", "max_attempts"),
    ("retries", "retry"),
];
