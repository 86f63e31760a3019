//! Which keys there are: taken from the JSON Schema of the types, so that no list of them
//! has to be kept.

use figment::value::{Dict, Value};
use serde_json::Value as Json;

use super::{Config, ExportConfig, GitlabConfig};
use crate::diagnostic::nearest;

/// Values of `kind` in `[sources.NAME]`.
pub(super) const SOURCE_KINDS: [&str; 2] = ["gitlab", "gitlab-export"];

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
    let root = schemars::schema_for!(Config).to_value();
    let mut found = Vec::new();
    walk(&root, &root, dict, "", kind_of, &mut found);
    found
}

/// The schema of a source of this kind.
pub(super) fn source_schema(kind: &str) -> Option<Json> {
    match kind {
        "gitlab" => Some(schemars::schema_for!(GitlabConfig).to_value()),
        "gitlab-export" => Some(schemars::schema_for!(ExportConfig).to_value()),
        _ => None,
    }
}

/// Follows references, and takes the one choice of an optional value.
pub(super) fn resolve<'a>(root: &'a Json, node: &'a Json) -> &'a Json {
    if let Some(target) = node.get("$ref").and_then(Json::as_str) {
        return root.pointer(target.trim_start_matches('#')).map_or(node, |next| resolve(root, next));
    }
    let choices = node.get("anyOf").and_then(Json::as_array);
    let choice = choices.and_then(|list| {
        list.iter().find(|choice| choice.get("type").and_then(Json::as_str) != Some("null"))
    });
    choice.map_or(node, |choice| resolve(root, choice))
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
        if above == "sources" {
            if let (Some(inner), Some(schema)) = (inner, kind_of(key).and_then(|kind| source_schema(&kind))) {
                let mut rest = inner.clone();
                rest.remove("kind");
                walk(&schema, &schema, &rest, &path, kind_of, found);
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
