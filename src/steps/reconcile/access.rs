//! What the token of a source may do, compared with what it could do before.

use serde_json::Value;

use super::Run;
use crate::engine::step::StepReport;
use crate::error::{ErrorKind, Result};
use crate::steps::ingest::gitlab::Source;
use crate::store::tombstones::{self, SourceAccess};

/// What is known of a token before the projects are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    /// The server knows the token's user: a 404 is not for want of a token.
    pub(super) is_proven: bool,
    /// It may do less than before, so that nothing missing is believed to be deleted.
    pub(super) is_lessened: bool,
}

/// Asks what the token is, and compares it with what was seen before.
pub(super) fn check(run: &Run<'_>, source: &Source<'_>, report: &mut StepReport) -> Result<Token> {
    let ctx = run.ctx;
    let user_id = ask(source, &["user"])?.and_then(|user| user.get("id").and_then(Value::as_i64));
    let scopes = ask(source, &["personal_access_tokens", "self"])?;
    let now = SourceAccess { user_id, scopes: scopes.map(|token| scopes_of(&token)).unwrap_or_default() };
    let before = ctx.read(|tx| tombstones::source_access(tx, source.name))?;
    let lessened = before.as_ref().and_then(|before| lessened(before, &now)).filter(|_| !run.accept_access);
    match &lessened {
        Some(why) => {
            report.failing += 1;
            report.warn(format!(
                "source {}: {why}; nothing that is missing is taken as deleted. If that is intended, run once with --set reconcile.accept_access=true",
                source.name
            ));
        }
        None => {
            let measure = match before {
                // What was not told this time stands as it was.
                Some(before) if !run.accept_access => SourceAccess {
                    user_id: now.user_id.or(before.user_id),
                    scopes: if now.scopes.is_empty() { before.scopes } else { now.scopes },
                },
                Some(_) | None => now,
            };
            ctx.write(|tx| tombstones::set_source_access(tx, source.name, &measure))?;
        }
    }
    Ok(Token { is_proven: user_id.is_some(), is_lessened: lessened.is_some() })
}

/// Asks for an object that not every server and token knows.
fn ask(source: &Source<'_>, segments: &[&str]) -> Result<Option<Value>> {
    let url = source.client.address().url(segments, &[]);
    match source.ctx.block_on(async { Ok(source.client.object(&url).await) })? {
        Ok(raw) => Ok(serde_json::from_str(raw.get()).ok()),
        // The token is refused altogether; of itself a token may not be allowed to ask.
        Err(error) if error.error.kind() == ErrorKind::Auth && segments == ["user"] => Err(error.into()),
        Err(error) => match error.error.kind() {
            ErrorKind::Interrupted | ErrorKind::Terminated | ErrorKind::Fenced | ErrorKind::RateLimited => {
                Err(error.into())
            }
            kind => {
                tracing::debug!(source = source.name, ?kind, "the server does not tell what the token is");
                Ok(None)
            }
        },
    }
}

fn scopes_of(token: &Value) -> Vec<String> {
    let scopes = token.get("scopes").and_then(Value::as_array);
    let mut scopes: Vec<String> =
        scopes.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    scopes.sort();
    scopes.dedup();
    scopes
}

/// In what a token may do less than before; what is not known says nothing.
fn lessened(before: &SourceAccess, now: &SourceAccess) -> Option<String> {
    if let (Some(before), Some(now)) = (before.user_id, now.user_id)
        && before != now
    {
        return Some(format!("the token belongs to user {now}, not to user {before} any more"));
    }
    if now.scopes.is_empty() {
        return None;
    }
    let has = |scopes: &[String], name: &str| scopes.iter().any(|scope| scope == name);
    let lost: Vec<&str> = before
        .scopes
        .iter()
        .map(String::as_str)
        // To read, `read_api` is as much as `api`.
        .filter(|scope| {
            !has(&now.scopes, scope)
                && !(matches!(*scope, "api" | "read_api")
                    && (has(&now.scopes, "read_api") || has(&now.scopes, "api")))
        })
        .collect();
    (!lost.is_empty()).then(|| format!("the token has lost the scope {}", lost.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(user_id: Option<i64>, scopes: &[&str]) -> SourceAccess {
        SourceAccess { user_id, scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect() }
    }

    #[test]
    fn another_user_and_lost_scopes_are_less() {
        let before = access(Some(1), &["api", "sudo"]);
        for (now, is_less) in [
            (access(Some(1), &["api", "sudo"]), false),
            (access(Some(1), &["read_api", "sudo"]), false),
            (access(Some(1), &["read_api"]), true),
            (access(Some(1), &["read_user"]), true),
            (access(Some(2), &["api", "sudo"]), true),
            (access(None, &[]), false),
        ] {
            assert_eq!(lessened(&before, &now).is_some(), is_less, "{now:?}");
        }
        assert_eq!(lessened(&access(None, &[]), &access(Some(2), &["api"])), None);
    }
}
