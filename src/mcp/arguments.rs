//! The tools and their arguments. The comments of the fields are what a model reads.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::bounds::check_size;
use crate::error::{Error, Result};

/// A tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// [`Search`]
    Search,
    /// [`GetThread`]
    GetThread,
    /// [`Similar`]
    Similar,
    /// [`Status`]
    Status,
}

impl Name {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 4] = [Self::Search, Self::GetThread, Self::Similar, Self::Status];

    /// How it is called.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::GetThread => "get_thread",
            Self::Similar => "similar",
            Self::Status => "status",
        }
    }

    /// What it is for.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Search => {
                "Search the team's GitLab issues, merge requests and discussions, by words and by meaning. \
                 Returns the best results with reference (group/project#12, group/project!34), title, URL and a \
                 passage; cite the reference or the URL. Best results are listed even when nothing fits: a best \
                 relevance below 0.35 is most likely a miss, one above 0.5 a hit. Use get_thread to read a result in full. Exact things \
                 (#12, !34, error codes, file names, hashes, \"quoted phrases\") are found exactly."
            }
            Self::GetThread => {
                "Read one issue or merge request with its whole discussion, as plain text. Long threads come in \
                 parts: when next_offset is not null, call again with that offset."
            }
            Self::Similar => {
                "Find threads that are like a given item or a given text: related work, likely duplicates, earlier \
                 reports of the same problem. Give either reference or text."
            }
            Self::Status => {
                "How fresh and how complete the index is: which projects can be searched, when the newest \
                 document changed, when jobs last ran, what waits to be indexed. Look here before you conclude that \
                 something does not exist."
            }
        }
    }

    /// JSON Schema of its arguments, without references into itself: not every client
    /// follows them.
    pub fn schema(self) -> Map<String, Value> {
        fn of<T: JsonSchema>() -> schemars::Schema {
            let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
            settings.into_generator().into_root_schema_for::<T>()
        }
        let schema = match self {
            Self::Search => of::<Search>(),
            Self::GetThread => of::<GetThread>(),
            Self::Similar => of::<Similar>(),
            Self::Status => of::<Status>(),
        };
        schema.as_object().cloned().unwrap_or_default()
    }
}

/// How to look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By words and by meaning.
    #[default]
    Hybrid,
    /// By words only.
    Lexical,
    /// By meaning only.
    Semantic,
}

/// Arguments of the tool `search`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Search {
    /// What to look for: a question or key words. Also understood: "a phrase", +must, -mustnot,
    /// begin*, #12, !34, and filters such as is:open label:bug author:ann project:group/app type:mr
    /// path:src/ path:*.rs after:7d in:title; with a dash (-label:bug) they leave out. May be empty when a
    /// filter is given: the newest come first.
    pub query: String,
    /// hybrid (by words and by meaning, the default), lexical (exact words) or semantic.
    pub mode: Mode,
    /// Only these types: issue, mr, discussion.
    pub types: Vec<String>,
    /// Only in these projects: whole path, last part of it, or group/*.
    pub projects: Vec<String>,
    /// Only by these authors (usernames).
    pub authors: Vec<String>,
    /// Only with all of these labels.
    pub labels: Vec<String>,
    /// Only what touches these files, or with a trailing / anything below the directory.
    pub paths: Vec<String>,
    /// Only in these states: open, closed, merged, locked.
    pub states: Vec<String>,
    /// Only of this milestone.
    pub milestone: Option<String>,
    /// Only assigned to this user.
    pub assignee: Option<String>,
    /// Only created since: a day (2024-01-31), a time (RFC 3339) or an age (12h, 7d, 2w, 3mo, 1y).
    pub created_after: Option<String>,
    /// Only created before, in the same forms.
    pub created_before: Option<String>,
    /// Only updated since, in the same forms.
    pub updated_after: Option<String>,
    /// Results at most, 1 to 50. Default 10.
    pub limit: Option<u32>,
    /// Results to pass over: take next_offset of the last answer for more.
    pub offset: u32,
    /// Characters of a longer passage for each result, up to 2000. Default 0: only the snippet.
    pub passage_chars: u32,
}

/// Arguments of the tool `get_thread`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetThread {
    /// What to read: group/project#12 (issue), group/project!34 (merge request), or its web
    /// address; #12 or !34 alone when only one project has that number.
    pub reference: String,
    /// Character to begin at: take next_offset of the last answer for the next part.
    #[serde(default)]
    pub offset: u64,
    /// Characters of this part at most, 200 to 24000. Default 12000.
    #[serde(default)]
    pub max_chars: Option<u32>,
    /// Whether GitLab's own notes are shown too (labels changed, mentioned in, …).
    #[serde(default)]
    pub system_notes: bool,
}

/// Arguments of the tool `similar`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Similar {
    /// The item that results are to be like: group/project#12, group/project!34 or its address.
    pub reference: Option<String>,
    /// Instead of a reference: a text that results are to be like, for example a new bug report.
    pub text: Option<String>,
    /// Only these types: issue, mr, discussion.
    pub types: Vec<String>,
    /// Only in these projects: whole path, last part of it, or group/*.
    pub projects: Vec<String>,
    /// Only in these states: open, closed, merged, locked.
    pub states: Vec<String>,
    /// Results at most, 1 to 50. Default 10.
    pub limit: Option<u32>,
    /// Results to pass over: take next_offset of the last answer for more.
    pub offset: u32,
}

/// Arguments of the tool `status`: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Status {}

/// Reads the arguments of a tool.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::error::ErrorKind::Usage) when they are too long, of the wrong
/// type or not known.
pub fn read<T: DeserializeOwned>(tool: Name, arguments: Map<String, Value>) -> Result<T> {
    check_size(&arguments)?;
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        Error::usage(format!("arguments of {}: {error}", tool.as_str()))
            .hint("the tool's schema says what each argument is")
    })
}

/// A text as words to look for: nothing in it is an operator, an exclusion or a quote.
pub fn plain_words(text: &str, operators: &[&str]) -> String {
    let word = |word: &str| {
        let word = word.trim_start_matches(['+', '-']).replace('"', " ");
        match word.split_once(':') {
            Some((name, rest)) if operators.contains(&name.to_lowercase().as_str()) => {
                format!("{name} {rest}")
            }
            _ => word,
        }
    };
    let words: Vec<String> =
        text.split_whitespace().map(word).filter(|word| !word.trim().is_empty()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn each_tool_and_each_argument_is_described_and_no_schema_refers_to_itself() {
        for tool in Name::ALL {
            let schema = tool.schema();
            assert_eq!(schema["type"], "object", "{tool:?}");
            assert!(tool.description().len() > 60, "{tool:?}");
            assert_eq!(schema["additionalProperties"], false, "{tool:?}");
            for (name, argument) in schema.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                assert!(argument["description"].as_str().is_some_and(|text| text.len() > 10), "{name}");
            }
            assert!(!Value::Object(schema).to_string().contains("$ref"), "{tool:?}");
        }
    }

    #[test]
    fn what_is_not_known_or_of_the_wrong_type_is_refused_by_name() {
        for (arguments, expected) in [
            (json!({ "query": "x", "scope": "all" }), "scope"),
            (json!({ "query": "x", "include_confidential": true }), "include_confidential"),
            (json!({ "query": 7 }), "string"),
            (json!({ "limit": -1 }), "u32"),
            (json!({ "mode": "psychic" }), "psychic"),
            (json!({ "query": "x".repeat(99_999) }), "characters"),
        ] {
            let error = read::<Search>(Name::Search, object(arguments)).unwrap_err();
            assert!(error.full_message().contains(expected), "{expected}: {error}");
        }
        assert_eq!(read::<Search>(Name::Search, Map::new()).unwrap(), Search::default());
        read::<Status>(Name::Status, object(json!({ "x": 1 }))).unwrap_err();
        read::<GetThread>(Name::GetThread, Map::new()).unwrap_err();
    }

    #[test]
    fn a_text_to_be_like_holds_no_operator() {
        let operators = ["is", "label"];
        assert_eq!(plain_words("it -is:open Label:bug", &operators), "it is open Label bug");
        assert_eq!(
            plain_words("\"unclosed std::fs +x #12\n- item", &operators),
            " unclosed std::fs x #12 item"
        );
        assert_eq!(plain_words(" \n\" - ", &operators), "");
    }
}
