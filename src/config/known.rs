//! Which keys there are: taken from the JSON Schema of the types, so that no list of them
//! has to be kept.

use figment::value::{Dict, Value};
use serde_json::Value as Json;

use super::Config;
use crate::diagnostic::nearest;

/// Values of `kind` in `[sources.NAME]`.
pub const SOURCE_KINDS: [&str; 2] = ["gitlab", "gitlab-export"];

/// A key that does not exist.
pub(super) struct Unknown {
    /// Its path.
    pub(super) path: String,
    /// What is wrong.
    pub(super) message: String,
    /// What was probably meant.
    pub(super) suggestion: Option<String>,
}

/// Finds every key of a layer that does not exist. `kind_of` tells the kind of a source,
/// which another layer may have set.
pub(super) fn unknown_keys(dict: &Dict, kind_of: &dyn Fn(&str) -> Option<String>) -> Vec<Unknown> {
    let root = schema();
    let mut found = Vec::new();
    walk(&root, &root, dict, "", kind_of, &mut found);
    found
}

/// JSON Schema (draft 2020-12) of `lore.toml`.
pub fn schema() -> Json {
    schemars::schema_for!(Config).to_value()
}

/// The part of the schema that describes a source of this kind.
pub fn source_schema<'a>(root: &'a Json, kind: &str) -> Option<&'a Json> {
    let kinds = root.pointer("/$defs/SourceConfig/oneOf")?.as_array()?;
    kinds.iter().find(|node| node.pointer("/properties/kind/const").and_then(Json::as_str) == Some(kind))
}

/// Follows references, and takes the one choice of an optional value.
pub fn resolve<'a>(root: &'a Json, node: &'a Json) -> &'a Json {
    if let Some(target) = node.get("$ref").and_then(Json::as_str) {
        return root.pointer(target.trim_start_matches('#')).map_or(node, |next| resolve(root, next));
    }
    let choices = node.get("anyOf").and_then(Json::as_array);
    let choice = choices.and_then(|list| {
        list.iter().find(|choice| choice.get("type").and_then(Json::as_str) != Some("null"))
    });
    choice.map_or(node, |choice| resolve(root, choice))
}

/// Whether a value of this kind is written as a table.
fn is_table(node: &Json) -> bool {
    node.get("type").and_then(Json::as_str) == Some("object")
        || node.pointer("/oneOf/0").is_some_and(|choice| choice.get("properties").is_some())
}

fn walk(
    root: &Json,
    node: &Json,
    dict: &Dict,
    above: &str,
    kind_of: &dyn Fn(&str) -> Option<String>,
    found: &mut Vec<Unknown>,
) {
    let node = resolve(root, node);
    let properties = node.get("properties").and_then(Json::as_object);
    let closed = node.get("additionalProperties") == Some(&Json::Bool(false));
    let others = node.get("additionalProperties").filter(|others| others.is_object());
    for (key, value) in dict {
        let path = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
        let inner = match value {
            Value::Dict(_, inner) => Some(inner),
            _ => None,
        };
        let wanted = properties.and_then(|properties| properties.get(key)).or(others);
        if inner.is_none() && wanted.is_some_and(|node| is_table(resolve(root, node))) {
            found.push(Unknown {
                message: format!("`{path}` is a table"),
                suggestion: Some(format!("write its keys below [{path}]")),
                path,
            });
            continue;
        }
        if above == "sources" {
            let node = kind_of(key).and_then(|kind| source_schema(root, &kind));
            if let (Some(inner), Some(node)) = (inner, node) {
                walk(root, node, inner, &path, kind_of, found);
            }
            continue;
        }
        let property = properties.and_then(|properties| properties.get(key));
        if let (Some(next), Some(inner)) = (property.or(others), inner) {
            walk(root, next, inner, &path, kind_of, found);
        } else if property.is_none() && others.is_none() && closed {
            let names: Vec<&str> = properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            let place = if above.is_empty() { "the configuration".to_owned() } else { format!("[{above}]") };
            found.push(Unknown {
                message: format!("unknown key `{key}` in {place}"),
                suggestion: Some(match nearest(key, names.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("known: {}", names.join(", ")),
                }),
                path,
            });
        }
    }
}
