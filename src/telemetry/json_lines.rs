//! Log lines as JSON objects, flat: the fields of the event beside those of the spans that
//! it happened in, so that `jq 'select(.run_id == 7)'` finds every line of a run.

use std::fmt;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::clock;

/// Trace id of the run that this process works on; one process works on one run.
static TRACE_ID: Mutex<Option<String>> = Mutex::new(None);

/// Puts a trace id on every line from now on.
pub fn set_trace_id(trace_id: Option<String>) {
    *TRACE_ID.lock().unwrap_or_else(PoisonError::into_inner) = trace_id;
}

/// Writes each event as one line.
pub(super) struct JsonLines {
    out: Mutex<Box<dyn Write + Send>>,
}

/// Fields of a span.
struct SpanFields(Map<String, Value>);

impl JsonLines {
    pub(super) fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out: Mutex::new(out) }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for JsonLines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let mut fields = Map::new();
        attributes.record(&mut Collect(&mut fields));
        if let Some(span) = ctx.span(id) {
            span.extensions_mut().insert(SpanFields(fields));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        if let Some(SpanFields(fields)) = span.extensions_mut().get_mut() {
            values.record(&mut Collect(fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let mut line = Map::new();
        line.insert("timestamp".to_owned(), clock::rfc3339(clock::now_ms()).into());
        line.insert("level".to_owned(), event.metadata().level().as_str().into());
        let mut own = Map::new();
        event.record(&mut Collect(&mut own));
        if let Some(message) = own.remove("message") {
            line.insert("message".to_owned(), message);
        }
        if let Some(trace_id) = TRACE_ID.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            line.insert("trace_id".to_owned(), trace_id.as_str().into());
        }
        for span in ctx.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(SpanFields(fields)) = span.extensions().get() {
                line.extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
        }
        line.extend(own);
        line.insert("target".to_owned(), event.metadata().target().into());
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // A log that cannot be written has nobody to tell.
        drop(writeln!(out, "{}", Value::Object(line)).and_then(|()| out.flush()));
    }
}

/// Collects fields as JSON values.
struct Collect<'a>(&'a mut Map<String, Value>);

impl Collect<'_> {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for Collect<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_holds_the_fields_of_its_spans_and_its_own() {
        let out = Shared::default();
        let subscriber = tracing_subscriber::registry().with(JsonLines::new(Box::new(out.clone())));
        tracing::subscriber::with_default(subscriber, || {
            let run = tracing::info_span!("run", run_id = 7, job = %"sync", state = tracing::field::Empty);
            let _in_run = run.enter();
            let step = tracing::info_span!("step", step = %"embed", attempt = 2_u32);
            let _in_step = step.enter();
            run.record("state", "failed");
            tracing::warn!(error.code = "NETWORK", "line one\nline \"two\"");
        });
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["message"], "line one\nline \"two\"");
        assert_eq!(line["level"], "WARN");
        assert_eq!((&line["run_id"], &line["job"]), (&7.into(), &"sync".into()));
        assert_eq!((&line["step"], &line["attempt"]), (&"embed".into(), &2.into()));
        assert_eq!((&line["state"], &line["error.code"]), (&"failed".into(), &"NETWORK".into()));
    }
}
