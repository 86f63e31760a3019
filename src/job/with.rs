//! The `with` table of a step: overrides from the command line, then serde into the
//! parameters of the kind, again and again until every wrong value is named.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::parse::Reader;
use super::{Override, bounds};
use crate::diagnostic::{Diagnostic, Source, nearest};
use crate::engine::step::{ErasedStep, StepDef};

/// Where the spans of overrides begin: far behind any file. Each has its own stretch.
const OVERRIDES: usize = usize::MAX / 2;
const STRETCH: usize = 1 << 24;
/// More problems in one table are not looked for.
const MAX_PROBLEMS: usize = 100;

impl Reader<'_> {
    /// Reads the parameters of a step. `anchor` is where a table that is absent is reported.
    pub(super) fn params(
        &mut self,
        def: &StepDef,
        step: &str,
        with: Option<&Spanned<DeValue<'_>>>,
        anchor: Range<usize>,
    ) -> Option<Arc<dyn ErasedStep>> {
        let span = with.map_or(anchor, Spanned::span);
        let overrides = self.overrides;
        let documents: Vec<String> = overrides.iter().map(|given| format!("x = {}", given.value)).collect();
        let mut table = match with.map(Spanned::get_ref) {
            None => DeTable::new(),
            Some(DeValue::Table(table)) => table.clone(),
            Some(other) => {
                let message = format!("invalid type: {}, expected a table of parameters", other.type_str());
                let diagnostic = self.source.error(span, message);
                self.report(diagnostic);
                return None;
            }
        };
        for (number, (given, document)) in overrides.iter().zip(&documents).enumerate() {
            if given.step == step
                && let Err(diagnostic) = apply(&mut table, number, given, document)
            {
                self.report(*diagnostic);
            }
        }
        let mut failed = self.unknown_params(def, &mut table);
        failed.extend(self.out_of_bounds(def, &mut table));
        for _ in 0..MAX_PROBLEMS {
            let value = Spanned::new(span.clone(), DeValue::Table(table.clone()));
            let error = match (def.parse)(ValueDeserializer::from(value)) {
                Ok(params) => return failed.is_empty().then_some(params),
                Err(error) => error,
            };
            let at = error.span().unwrap_or_else(|| span.clone());
            // A value that is no use as TOML may be meant as text: --set ingest.source=42
            if let Some(text) = self.as_text(&at)
                && replace(&mut table, &at, &text)
            {
                continue;
            }
            let culprit = remove(&mut table, &at);
            // A value that was removed because it is wrong is not missing.
            let removed = |name: &String| error.message().contains(&format!("missing field `{name}`"));
            if culprit.is_some() || !failed.iter().any(removed) {
                let diagnostic = self.explain(def, &error, at);
                self.report(diagnostic);
            }
            failed.push(culprit?);
        }
        None
    }

    /// Reports and removes keys that the kind does not know. Returns their names and those
    /// that were probably meant, which are then not reported as missing.
    fn unknown_params(&mut self, def: &StepDef, table: &mut DeTable<'_>) -> Vec<String> {
        let schema = (def.schema)();
        // Kinds that accept any key say so in their schema.
        if schema.get("additionalProperties") != Some(&serde_json::Value::Bool(false)) {
            return Vec::new();
        }
        let known: Vec<String> = schema
            .get("properties")
            .and_then(serde_json::Value::as_object)
            .map(|properties| properties.keys().cloned().collect())
            .unwrap_or_default();
        let mut unknown = Vec::new();
        for (key, _) in table.iter() {
            let name = key.get_ref().as_ref();
            if known.iter().any(|known| known == name) {
                continue;
            }
            let names = known.iter().map(String::as_str);
            let diagnostic = self.locate(key.span(), format!("{} has no parameter `{name}`", def.kind));
            let diagnostic = match nearest(name, names) {
                Some(near) => {
                    unknown.push(near.to_owned());
                    diagnostic.suggest(format!("did you mean `{near}`?"))
                }
                None if known.is_empty() => diagnostic.suggest("it has no parameters"),
                None => diagnostic.suggest(format!("known: {}", known.join(", "))),
            };
            self.report(diagnostic);
            unknown.push(name.to_owned());
        }
        for name in &unknown {
            if !known.contains(name) {
                table.remove(name.as_str());
            }
        }
        unknown
    }

    /// Reports and removes values that the schema of the kind excludes by a bound. Returns
    /// their names. A value of another type is left to serde.
    fn out_of_bounds(&mut self, def: &StepDef, table: &mut DeTable<'_>) -> Vec<String> {
        let schema = (def.schema)();
        let declared = schema.get("properties").and_then(serde_json::Value::as_object);
        let mut excluded = Vec::new();
        for (key, value) in table.iter() {
            let name = key.get_ref().as_ref();
            let Some(declared) = declared.and_then(|declared| declared.get(name)) else { continue };
            if let Some(problem) = bounds::problem(value.get_ref(), declared) {
                let diagnostic = self.locate(value.span(), format!("`{name}`: {problem}"));
                self.report(diagnostic);
                excluded.push(name.to_owned());
            }
        }
        for name in &excluded {
            table.remove(name.as_str());
        }
        excluded
    }

    /// A diagnostic at a span of the file or of an override.
    fn locate(&self, span: Range<usize>, message: String) -> Diagnostic {
        match self.override_at(span.start) {
            Some((base, given)) => {
                let end = span.end.saturating_sub(base).min(given.text.len());
                Source::new("--set", &given.text).error(span.start - base..end, message)
            }
            None => self.source.error(span, message),
        }
    }

    fn override_at(&self, at: usize) -> Option<(usize, &Override)> {
        let number = at.checked_sub(OVERRIDES)? / STRETCH;
        Some((OVERRIDES + number * STRETCH, self.overrides.get(number)?))
    }

    /// The value of the override that `at` lies in, as plain text.
    fn as_text(&self, at: &Range<usize>) -> Option<String> {
        self.override_at(at.start).map(|(_, given)| given.value.clone())
    }

    fn explain(&self, def: &StepDef, error: &toml::de::Error, at: Range<usize>) -> Diagnostic {
        let message = error.message();
        if let Some(rest) = message.trim_end().strip_prefix("missing field ") {
            return self.locate(at, format!("{} needs the parameter {rest}", def.kind));
        }
        let diagnostic = self.locate(at, message.trim_end().to_owned());
        // serde writes: unknown variant `x`, expected one of `a`, `b`
        if message.starts_with("unknown variant") || message.starts_with("unknown field") {
            let mut words = message.split('`').skip(1).step_by(2);
            if let Some(word) = words.next() {
                return diagnostic.guess(word, words);
            }
        }
        diagnostic
    }
}

/// Puts the value of an override into the table. `document` is its value as `x = VALUE`.
fn apply<'d>(
    table: &mut DeTable<'d>,
    number: usize,
    given: &'d Override,
    document: &'d str,
) -> Result<(), Box<Diagnostic>> {
    let base = OVERRIDES + number * STRETCH;
    let value_at = given.text.find('=').map_or(0, |at| at + 1);
    let value_at =
        value_at + given.text.get(value_at..).map_or(0, |rest| rest.len() - rest.trim_start().len());
    let key_at = given.text.find('.').map_or(0, |at| at + 1);
    let key_span = base + key_at..base + value_at.saturating_sub(1).max(key_at + 1);
    let value_span = base + value_at..base + given.text.len().max(value_at + 1);
    let parsed = DeTable::parse(document).ok().and_then(|parsed| {
        let mut table = parsed.into_inner();
        // Exactly the one key: a value with a line break could smuggle in more.
        (table.len() == 1).then(|| table.remove("x")).flatten()
    });
    let value = parsed.map_or_else(|| DeValue::String(Cow::Borrowed(&given.value)), Spanned::into_inner);
    let value = move_to(value, &value_span);
    let Some((last, parents)) = given.key.split_last() else {
        return Ok(());
    };
    let mut at = table;
    for parent in parents {
        let key = Spanned::new(key_span.clone(), Cow::Owned(parent.clone()));
        let slot =
            at.entry(key).or_insert_with(|| Spanned::new(value_span.clone(), DeValue::Table(DeTable::new())));
        let DeValue::Table(inner) = slot.get_mut() else {
            let message = format!("`{parent}` is no table, it has no key `{last}`");
            return Err(Box::new(Source::new("--set", &given.text).error(key_at..value_at, message)));
        };
        at = inner;
    }
    // Remove first: inserting over an equal key would keep the old key's span.
    at.remove(last.as_str());
    at.insert(Spanned::new(key_span, Cow::Owned(last.clone())), Spanned::new(value_span, value));
    Ok(())
}

/// Gives everything inside a value the span of the override.
fn move_to<'d>(value: DeValue<'d>, span: &Range<usize>) -> DeValue<'d> {
    match value {
        DeValue::Array(list) => {
            let mut moved = toml::de::DeArray::new();
            for item in list {
                moved.push(Spanned::new(span.clone(), move_to(item.into_inner(), span)));
            }
            DeValue::Array(moved)
        }
        DeValue::Table(table) => DeValue::Table(
            table
                .into_iter()
                .map(|(key, value)| {
                    let key = Spanned::new(span.clone(), key.into_inner());
                    (key, Spanned::new(span.clone(), move_to(value.into_inner(), span)))
                })
                .collect(),
        ),
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => value,
    }
}

/// Removes the innermost entry that `at` lies in; returns its key.
fn remove(table: &mut DeTable<'_>, at: &Range<usize>) -> Option<String> {
    for (_, value) in table.iter_mut() {
        if let DeValue::Table(inner) = value.get_mut()
            && let Some(removed) = remove(inner, at)
        {
            return Some(removed);
        }
    }
    let name = table.iter().find_map(|(key, value)| {
        (contains(&value.span(), at) || contains(&key.span(), at)).then(|| key.get_ref().to_string())
    })?;
    table.remove(name.as_str());
    Some(name)
}

/// Replaces the value at `at` by a text; false when it is a text already, or not there.
fn replace<'d>(table: &mut DeTable<'d>, at: &Range<usize>, text: &str) -> bool {
    for (_, value) in table.iter_mut() {
        let here = contains(&value.span(), at);
        match value.get_mut() {
            DeValue::Table(inner) => {
                if replace(inner, at, text) {
                    return true;
                }
            }
            DeValue::String(_) => {}
            other @ (DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)) => {
                if here {
                    *other = DeValue::String(Cow::Owned(text.to_owned()));
                    return true;
                }
            }
        }
    }
    false
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
