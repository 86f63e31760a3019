//! The graph of a job as text, mermaid, dot and JSON.

use clap::ValueEnum;
use serde::Serialize;

use super::App;
use crate::error::{Error, Result};
use crate::job::{Job, JobStep, When};

/// Form of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// One line a step, in waves
    Text,
    /// A mermaid flow chart
    Mermaid,
    /// Graphviz
    Dot,
    /// One JSON document
    Json,
}

#[derive(Serialize)]
struct Graph<'a> {
    job: &'a str,
    steps: Vec<Node<'a>>,
    edges: Vec<Edge<'a>>,
}

#[derive(Serialize)]
struct Node<'a> {
    name: &'a str,
    uses: &'a str,
    wave: usize,
    when: String,
    allow_failure: bool,
}

#[derive(Serialize)]
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
}

/// Prints the graph of a job.
///
/// # Errors
/// When the output cannot be written.
pub(super) fn show(job: &Job, format: Format, app: &mut App) -> Result<()> {
    let graph = graph(job);
    let text = match format {
        Format::Text => text(job),
        Format::Mermaid => mermaid(job),
        Format::Dot => dot(job),
        Format::Json => serde_json::to_string_pretty(&graph)
            .map_err(|error| Error::internal("encode the graph").because(error))?,
    };
    app.reply(&graph, |out| out.line(text.trim_end()))
}

fn graph(job: &Job) -> Graph<'_> {
    let mut steps = Vec::new();
    for (wave, places) in (1..).zip(job.waves()) {
        steps.extend(places.into_iter().filter_map(|place| job.steps.get(place)).map(|step| Node {
            name: &step.id,
            uses: step.kind,
            wave,
            when: step.when.to_string(),
            allow_failure: step.allow_failure,
        }));
    }
    let edges =
        job.steps.iter().flat_map(|step| step.needs.iter().map(|need| Edge { from: need, to: &step.id }));
    Graph { job: &job.name, steps, edges: edges.collect() }
}

/// What stands under a step's name: its kind, when it is called otherwise, and what is unusual.
fn remarks(step: &JobStep) -> Vec<String> {
    let mut remarks = Vec::new();
    if step.kind != step.id {
        remarks.push(step.kind.to_owned());
    }
    match &step.when {
        When::Success => {}
        When::Always | When::Failure => remarks.push(format!("when {}", step.when)),
        When::Condition(condition) => remarks.push(format!("when {}", condition.text())),
    }
    if step.allow_failure {
        remarks.push("may fail".to_owned());
    }
    remarks
}

fn text(job: &Job) -> String {
    let width = job.steps.iter().map(|step| step.id.len()).max().unwrap_or(0);
    let mut out = format!("{}\n", job.name);
    for (number, wave) in (1..).zip(job.waves()) {
        for step in wave.into_iter().filter_map(|place| job.steps.get(place)) {
            let mut notes = Vec::new();
            if !step.needs.is_empty() {
                notes.push(format!("after {}", step.needs.join(", ")));
            }
            notes.extend(remarks(step));
            let line = format!("{number:>3}. {:<width$}  {}", step.id, notes.join("; "));
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
    out
}

fn mermaid(job: &Job) -> String {
    let mut out = "flowchart TD\n".to_owned();
    let escaped = |text: &str| {
        text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
    };
    // Numbered: a step may be called `end`, which mermaid does not take as a node.
    for (place, step) in job.steps.iter().enumerate() {
        let label: Vec<String> =
            std::iter::once(step.id.clone()).chain(remarks(step)).map(|part| escaped(&part)).collect();
        out.push_str(&format!("    s{place}[\"{}\"]\n", label.join("<br/>")));
    }
    for (place, (step, needs)) in job.steps.iter().zip(job.need_places()).enumerate() {
        let arrow = if step.when == When::Success { "-->" } else { "-.->" };
        for need in needs {
            out.push_str(&format!("    s{need} {arrow} s{place}\n"));
        }
    }
    out
}

fn dot(job: &Job) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut out = format!("digraph \"{}\" {{\n    node [shape=box];\n", quoted(&job.name));
    for step in &job.steps {
        let label: Vec<String> =
            std::iter::once(step.id.clone()).chain(remarks(step)).map(|part| quoted(&part)).collect();
        out.push_str(&format!("    \"{}\" [label=\"{}\"];\n", quoted(&step.id), label.join("\\n")));
    }
    for step in &job.steps {
        let style = if step.when == When::Success { "" } else { " [style=dashed]" };
        for need in &step.needs {
            out.push_str(&format!("    \"{}\" -> \"{}\"{style};\n", quoted(need), quoted(&step.id)));
        }
    }
    out.push_str("}\n");
    out
}
