//! Secrets: values that cannot be printed, and references to where they are kept.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// A secret value. It has no `Display` and no `Serialize`; `Debug` shows nothing of it.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// Gives the value out. Called only where a request header is built.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Where a secret is kept: `{ env = "NAME" }` or `{ file = "/path" }`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretRef {
    /// Environment variable that holds the secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// File that holds the secret; surrounding white space is dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
}

impl SecretRef {
    /// Reads the secret. `key` is the configuration key that is named in errors.
    ///
    /// # Errors
    /// [`ErrorKind::TokenNotSet`] when the variable or file is missing or empty,
    /// [`ErrorKind::Config`] when the reference names both or none.
    pub fn read(&self, key: &str, vars: impl Fn(&str) -> Option<String>) -> Result<Secret> {
        let (value, place) = match (&self.env, &self.file) {
            (Some(name), None) if !is_variable_name(name) => {
                return Err(Error::config(format!(
                    "{key}: `env` holds the name of an environment variable, and what is written there is none"
                ))
                .hint("a name has letters, digits and `_`; the secret itself belongs into the variable"));
            }
            (Some(name), None) => (vars(name), format!("environment variable {name}")),
            (None, Some(path)) => {
                let place = format!("file {}", path.display());
                let text = crate::bounded::read(path).and_then(|bytes| {
                    String::from_utf8(bytes).map_err(|_| std::io::Error::other("it is not UTF-8"))
                });
                let text = text.map_err(|error| {
                    Error::new(ErrorKind::TokenNotSet, format!("{key}: cannot read {place}")).because(error)
                })?;
                (Some(text), place)
            }
            _ => {
                return Err(Error::config(format!(
                    "{key}: a secret is {{ env = \"NAME\" }} or {{ file = \"/path\" }}, exactly one of them"
                )));
            }
        };
        let value = value.map(|text| text.trim().to_owned()).unwrap_or_default();
        if value.is_empty() {
            return Err(Error::new(ErrorKind::TokenNotSet, format!("{key}: {place} is not set or empty"))
                .hint("set it where the job runs, or change the reference in the configuration"));
        }
        if value.chars().any(char::is_control) {
            return Err(Error::config(format!(
                "{key}: {place} holds a control character or more than one line"
            )));
        }
        Ok(Secret::new(value))
    }
}

/// Whether a text can be the name of an environment variable. What is none may be the
/// secret itself, written in the wrong place, and is not shown.
pub fn is_variable_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Returns a URL as it may be shown: without user, password, query and fragment.
pub fn redact_url(url: &url::Url) -> String {
    let mut shown = url.clone();
    // Both fail only for URLs that cannot have these parts, which then hold no secret.
    let cleared = shown.set_username("").is_ok() && shown.set_password(None).is_ok();
    if !cleared && (!url.username().is_empty() || url.password().is_some()) {
        return format!("{}:…", url.scheme());
    }
    shown.set_query(None);
    shown.set_fragment(None);
    shown.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_nothing() {
        let secret = Secret::new("S3CR3T".to_owned());
        assert!(!format!("{secret:?}").contains("S3CR3T"));
        assert_eq!(secret.expose(), "S3CR3T");
    }

    #[test]
    fn unset_and_empty_are_errors_that_name_the_key() {
        let reference = SecretRef { env: Some("LORE_TOKEN".to_owned()), file: None };
        for value in [None, Some(String::new()), Some("  \n".to_owned())] {
            let error = reference.read("sources.main.token", |_| value.clone()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TokenNotSet);
            assert!(error.to_string().contains("sources.main.token"), "{error}");
            assert!(error.to_string().contains("LORE_TOKEN"), "{error}");
        }
    }

    #[test]
    fn a_secret_in_place_of_a_variable_is_not_shown() {
        for value in ["glpat-S3CR3T", "${S3CR3T}", "S3CR3T value", ""] {
            let reference = SecretRef { env: Some(value.to_owned()), file: None };
            let error = reference.read("sources.main.token", |_| None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(!error.to_string().contains("S3CR3T"), "{error}");
        }
    }

    #[test]
    fn values_are_taken_literally() {
        let reference = SecretRef { env: Some("X".to_owned()), file: None };
        let secret = reference.read("k", |_| Some("pa$USERword ${HOME}".to_owned())).unwrap();
        assert_eq!(secret.expose(), "pa$USERword ${HOME}");
    }

    #[test]
    fn urls_lose_user_password_and_query() {
        let url = url::Url::parse("http://user:S3CR3T@host:1/a/b?key=S3CR3T#S3CR3T").unwrap();
        assert_eq!(redact_url(&url), "http://host:1/a/b");
    }
}
