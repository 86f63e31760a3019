//! Bounds of a parameter as the JSON Schema of its kind declares them: the schema that editors
//! read is the rule that is kept.

use serde_json::Value;
use toml::de::DeValue;
use url::Url;

/// What is wrong with a value, when a bound of its schema excludes it. Bounds that come with
/// the type alone (no negative number) are the type's to report.
pub(super) fn problem(value: &DeValue<'_>, schema: &Value) -> Option<String> {
    match value {
        DeValue::Integer(integer) => {
            let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok()?;
            let bound = |name: &str| schema.get(name).and_then(Value::as_i64);
            let (least, most) = (bound("minimum").filter(|least| *least > 0)?, bound("maximum"));
            let is_within = number >= least && most.is_none_or(|most| number <= most);
            let expected =
                most.map_or_else(|| format!("{least} or more"), |most| format!("{least} to {most}"));
            (!is_within).then(|| format!("{number} is out of range, expected {expected}"))
        }
        DeValue::String(text) => {
            let least = schema.get("minLength").and_then(Value::as_u64).unwrap_or(0);
            if u64::try_from(text.chars().count()).is_ok_and(|length| length < least) {
                return Some("the text is empty".to_owned());
            }
            // Nothing of it is repeated: it may hold a password.
            let is_address = schema.get("format").and_then(Value::as_str) == Some("uri");
            (is_address && !is_url(text)).then(|| "not an http or https address".to_owned())
        }
        DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => None,
    }
}

fn is_url(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_schema_excludes_is_named_and_what_the_type_excludes_is_left_to_it() {
        let found = |text: &str, schema: Value| {
            let document = format!("x = {text}");
            let table = toml::de::DeTable::parse(&document).unwrap();
            problem(table.get_ref().get("x").unwrap().get_ref(), &schema)
        };
        let range = || json!({ "type": ["integer", "null"], "minimum": 1, "maximum": 64 });
        assert_eq!(found("0", range()).unwrap(), "0 is out of range, expected 1 to 64");
        assert_eq!(found("0x41", range()).unwrap(), "65 is out of range, expected 1 to 64");
        assert_eq!(found("64", range()), None);
        assert_eq!(found("-1", json!({ "minimum": 1 })).unwrap(), "-1 is out of range, expected 1 or more");
        assert_eq!(found("-1", json!({ "minimum": 0 })), None);
        assert_eq!(found("\"0\"", range()), None);
        assert_eq!(found("''", json!({ "minLength": 1 })).unwrap(), "the text is empty");
        let address = || json!({ "format": "uri" });
        assert_eq!(found("'nope'", address()).unwrap(), "not an http or https address");
        assert_eq!(found("'http://h:1'", address()), None);
    }
}
