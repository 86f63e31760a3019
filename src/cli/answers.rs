//! The JSON Schema of answers: docs/answers.schema.json, made of the types that are written.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::query::json as query;
use super::show::Thread;

/// What each answer says of itself.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "its form is what counts")]
struct Meta {
    /// Milliseconds since the command began.
    elapsed_ms: u64,
    /// Version of the form of answers.
    schema: u32,
    /// Version of lore.
    version: String,
}

/// The answer of `lore query --json`.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "its form is what counts")]
struct QueryAnswer {
    #[schemars(extend("const" = true))]
    ok: bool,
    data: query::Data,
    meta: QueryMeta,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "its form is what counts")]
struct QueryMeta {
    #[serde(flatten)]
    every: Meta,
    #[serde(flatten)]
    own: query::Meta,
}

/// The answer of `lore show --json`.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "its form is what counts")]
struct ShowAnswer {
    #[schemars(extend("const" = true))]
    ok: bool,
    data: Thread,
    meta: Meta,
}

/// The answer of any command that failed.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "its form is what counts")]
struct FailedAnswer {
    #[schemars(extend("const" = false))]
    ok: bool,
    error: Failure,
    meta: Meta,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "its form is what counts")]
struct Failure {
    /// One of the codes in `lore --help`.
    code: String,
    /// What was done to what, and why it failed.
    message: String,
    /// What to do next.
    suggestion: Option<String>,
    /// All that can be done.
    suggestions: Vec<String>,
    /// What programs may want to know, by kind of error.
    details: Value,
}

/// Any answer that has a schema.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "its form is what counts")]
enum Answer {
    Query(QueryAnswer),
    Show(ShowAnswer),
    Failed(FailedAnswer),
}

/// The schema of answers, with a definition for each command.
pub(super) fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = Value::from(generator.into_root_schema_for::<Answer>());
    schema["title"] = "Answers of lore".into();
    // With --fields any of them may be absent.
    if let Some(Value::Object(found)) = schema.pointer_mut("/$defs/Found") {
        found.remove("required");
    }
    schema
}
