//! JSON Schema of job files, from the same tables that the parser reads.

use serde_json::{Map, Value, json};

use super::keys::{self, Form, Key};
use crate::engine::step::StepDef;

/// Returns the JSON Schema (draft 2020-12) of job files that use these kinds.
pub fn json_schema(kinds: &[StepDef]) -> Value {
    let mut defs = Map::new();
    defs.insert("duration".to_owned(), duration());
    defs.insert("name".to_owned(), json!({ "type": "string", "pattern": NAME_PATTERN }));
    defs.insert("retry".to_owned(), object(&keys::RETRY, &[]));
    defs.insert("defaults".to_owned(), object(&keys::DEFAULTS, &[]));
    let mut by_name = Map::new();
    let mut by_uses = Vec::new();
    for kind in kinds {
        let with = format!("with-{}", kind.kind);
        defs.extend(kind_schema(kind, &with));
        let with = json!({ "properties": { "with": { "$ref": format!("#/$defs/{with}") } } });
        by_name.insert(
            kind.kind.to_owned(),
            json!({ "allOf": [
                { "$ref": "#/$defs/step" },
                { "if": { "not": { "required": ["uses"] } }, "then": with },
            ] }),
        );
        by_uses.push(json!({
            "if": { "required": ["uses"], "properties": { "uses": { "const": kind.kind } } },
            "then": with,
        }));
    }
    let mut step = object(&keys::STEP, &[]);
    let names: Vec<&str> = kinds.iter().map(|kind| kind.kind).collect();
    if let Some(uses) = step.pointer_mut("/properties/uses").and_then(Value::as_object_mut) {
        uses.remove("$ref");
        uses.insert("enum".to_owned(), json!(names));
    }
    if let Some(step) = step.as_object_mut() {
        step.insert("allOf".to_owned(), Value::Array(by_uses));
    }
    defs.insert("step".to_owned(), step);
    defs.insert(
        "steps".to_owned(),
        json!({
            "type": "object",
            "minProperties": 1,
            "propertyNames": { "pattern": NAME_PATTERN },
            "properties": by_name,
            "additionalProperties": { "allOf": [{ "$ref": "#/$defs/step" }, { "required": ["uses"] }] },
        }),
    );
    let mut root = object(&keys::JOB, &["steps"]);
    if let Some(root) = root.as_object_mut() {
        root.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        root.insert("title".to_owned(), json!("lore job file"));
        root.insert("$defs".to_owned(), Value::Object(defs));
    }
    root
}

const NAME_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9_-]*$";

fn duration() -> Value {
    json!({
        "type": "string",
        "pattern": "^\\s*([0-9]+(ms|s|m|min|h|d|w))+\\s*$",
        "examples": ["500ms", "30s", "10m", "1h30m", "14d"],
    })
}

fn object(keys: &[Key], required: &[&str]) -> Value {
    let properties: Map<String, Value> =
        keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let mut object = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if let (Some(object), false) = (object.as_object_mut(), required.is_empty()) {
        object.insert("required".to_owned(), json!(required));
    }
    object
}

fn property(key: &Key) -> Value {
    let mut property = match key.form {
        Form::Text | Form::When | Form::Schedule => json!({ "type": "string" }),
        Form::Flag => json!({ "type": "boolean" }),
        Form::Integer(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Form::Names => json!({ "type": "array", "uniqueItems": true, "items": { "$ref": "#/$defs/name" } }),
        Form::With => json!({ "type": "object" }),
        Form::Name => json!({ "$ref": "#/$defs/name" }),
        Form::Duration => json!({ "$ref": "#/$defs/duration" }),
        Form::Retry => json!({ "$ref": "#/$defs/retry" }),
        Form::Defaults => json!({ "$ref": "#/$defs/defaults" }),
        Form::Steps => json!({ "$ref": "#/$defs/steps" }),
    };
    if let Some(property) = property.as_object_mut() {
        property.insert("description".to_owned(), json!(key.doc));
    }
    property
}

/// The schema of a kind's `with`, and what it refers to, under names of their own.
fn kind_schema(kind: &StepDef, name: &str) -> Map<String, Value> {
    let mut schema = (kind.schema)().to_value();
    let mut defs = Map::new();
    rename_refs(&mut schema, name);
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("$schema");
        schema.remove("title");
        if let Some(Value::Object(inner)) = schema.remove("$defs") {
            defs.extend(inner.into_iter().map(|(def, value)| (format!("{name}.{def}"), value)));
        }
    }
    defs.insert(name.to_owned(), schema);
    defs
}

fn rename_refs(value: &mut Value, name: &str) {
    match value {
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                match value {
                    Value::String(target) if key == "$ref" => {
                        *target = target.replace("#/$defs/", &format!("#/$defs/{name}."));
                    }
                    Value::String(_)
                    | Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::Array(_)
                    | Value::Object(_) => rename_refs(value, name),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| rename_refs(value, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
