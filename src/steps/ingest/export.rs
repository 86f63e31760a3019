//! Ingests a project export: archive, directory or the built-in sample.
//!
//! Nothing is written before the whole archive was looked at once. After that, items are
//! written in batches, and the cursor with the last batch: an interrupted ingest starts again
//! and finds what it wrote unchanged. An export that did not change is not even opened.
//! No raw payloads are kept: the archive itself is the source, and a reader that reads it
//! differently raises [`READER_VERSION`](crate::export::READER_VERSION).

use std::collections::{BTreeSet, HashSet};

use crate::clock::Millis;
use crate::config::ExportConfig;
use crate::content::{ItemType, Label, Milestone, Project};
use crate::engine::ctx::StepCtx;
use crate::engine::step::StepReport;
use crate::error::{Error, ErrorKind, Result};
use crate::export::{BadLine, Entity, Export, Fingerprint, Item, Limits, Read, Stamp, Survey, demo};
use crate::steps::reconcile::judge;
use crate::store::cursors::{self, Cursor};
use crate::store::entities::{self, Change};
use crate::store::{ReadTx, WriteTx, tombstones};

/// Name of the cursor.
const STREAM: &str = "archive";

/// Name under which lines that cannot be used are kept as a failure.
const LINES: &str = "archive lines";

/// Items in one transaction at most.
const BATCH_ITEMS: usize = 200;

/// Bytes of items, as the export holds them, in one transaction; one more item may exceed it.
const BATCH_BYTES: u64 = 4 << 20;

/// GitLab's access level of an owner, as whoever may export a project has.
const OWNER: i64 = 50;

/// Lines that cannot be used and are named one by one.
const NAMED_BAD_LINES: usize = 10;

/// Counts of the report, so that a run without work shows zeros.
const COUNTS: [&str; 13] = [
    "issues_new",
    "issues_changed",
    "issues_unchanged",
    "merge_requests_new",
    "merge_requests_changed",
    "merge_requests_unchanged",
    "discussions_new",
    "discussions_changed",
    "discussions_removed",
    "notes",
    "labels",
    "milestones",
    "bad_lines",
];

/// Reads one export and stores what changed.
///
/// # Errors
/// [`ErrorKind::Io`] when the export cannot be read or is refused, those of the database and
/// of the stop.
pub fn ingest(ctx: &StepCtx<'_>, name: &str, config: &ExportConfig, report: &mut StepReport) -> Result<()> {
    let done =
        Export::open(&config.path).and_then(|export| ingest_export(ctx, name, config, &export, report));
    let Err(error) = &done else { return done };
    // Visible in `lore status` until it can be read again; a project that was never stored
    // has nothing to hang the failure on, and then the step's own error is the trace.
    if error.kind() == ErrorKind::Io && ctx.check().is_ok() {
        let known = ctx.read(|tx| entities::project(tx, name, &config.project))?;
        if let Some(project) = known {
            ctx.write(|tx| cursors::record_stream_failure(tx, project.id, STREAM, error, ctx.now()))?;
        }
    }
    done
}

/// Reads the sample that is built in.
///
/// # Errors
/// Those of the database and of the stop.
pub fn ingest_demo(ctx: &StepCtx<'_>, report: &mut StepReport) -> Result<()> {
    ingest_export(ctx, demo::SOURCE, &demo::config(), &demo::export(), report)
}

fn ingest_export(
    ctx: &StepCtx<'_>,
    name: &str,
    config: &ExportConfig,
    export: &Export,
    report: &mut StepReport,
) -> Result<()> {
    for count in COUNTS {
        report.add(count, 0);
    }
    let web_url = config.web_url.as_deref();
    let stamp = export.stamp()?;
    let known = ctx.read(|tx| Known::read(tx, name, config))?;
    let before = known.fingerprint.clone().filter(|_| !ctx.options.full);
    if before.as_ref().is_some_and(|before| before.is_current(stamp, web_url)) {
        report.add("exports_unchanged", 1);
        known.tell_bad_lines(report);
        if let Some(project_id) = known.failed {
            ctx.write(|tx| cursors::clear_stream_failure(tx, project_id, STREAM))?;
        }
        return Ok(());
    }
    let limits = Limits::default();
    let survey = export.survey(&limits, &ctx.cancel)?;
    let fingerprint = Fingerprint::new(stamp, web_url, &survey.digest);
    let project = Project {
        gitlab_id: None,
        path: config.project.clone(),
        name: None,
        web_url: web_url.map(|url| url.trim_end_matches('/').to_owned()),
        archived: survey.archived,
    };
    if before.as_ref().is_some_and(|before| before.same_content(&fingerprint)) {
        report.add("exports_unchanged", 1);
        known.tell_bad_lines(report);
        return ctx.write(|tx| {
            let project_id = entities::upsert_project(tx, name, &project, ctx.now())?;
            finish(tx, project_id, &fingerprint, ctx.now())
        });
    }
    let project_id = ctx.write(|tx| {
        let project_id = entities::upsert_project(tx, name, &project, ctx.now())?;
        let labels = entities::upsert_labels(tx, project_id, &survey.labels, ctx.now())?;
        let milestones = entities::upsert_milestones(tx, project_id, &survey.milestones, ctx.now())?;
        Ok((project_id, labels, milestones))
    });
    let (project_id, labels, milestones) = project_id?;
    report.add("labels", count(labels));
    report.add("milestones", count(milestones));
    let mut writer = Writer::new(ctx, project_id, &survey, report);
    if survey.issues + survey.merge_requests == 0 {
        writer.report.warn(format!(
            "{} holds no issue and no merge request; nothing of {} was changed",
            export.origin(),
            config.project
        ));
    }
    for bad in &survey.bad {
        writer.bad_line(bad);
    }
    export.items(&survey, web_url, &limits, &ctx.cancel, &mut |read| writer.take(read))?;
    ensure_unchanged(export, stamp)?;
    writer.ensure_usable(export)?;
    writer.finish(&fingerprint, &survey.digest)?;
    ctx.progress.finish();
    Ok(())
}

/// What is stored about the export.
struct Known {
    fingerprint: Option<Fingerprint>,
    /// The project, when reading its export failed last time.
    failed: Option<i64>,
    /// What is recorded of lines that could not be used.
    bad_lines: Option<String>,
}

impl Known {
    fn read(tx: &ReadTx<'_>, name: &str, config: &ExportConfig) -> Result<Self> {
        let Some(project) = entities::project(tx, name, &config.project)? else {
            return Ok(Self { fingerprint: None, failed: None, bad_lines: None });
        };
        let cursor = cursors::get(tx, project.id, STREAM)?;
        let failures = cursors::stream_failures(tx)?;
        let of = |stream: &str| {
            failures.iter().find(|failure| failure.project_path == project.path && failure.stream == stream)
        };
        Ok(Self {
            fingerprint: cursor.and_then(|cursor| Fingerprint::parse(cursor.fingerprint.as_deref()?)),
            failed: of(STREAM).map(|_| project.id),
            bad_lines: of(LINES).map(|failure| failure.error.clone()),
        })
    }

    /// An export that did not change still lacks what could not be read of it.
    fn tell_bad_lines(&self, report: &mut StepReport) {
        if let Some(error) = &self.bad_lines {
            report.failing += 1;
            report.warn(error.clone());
        }
    }
}

/// Lines that cannot be used, as they are recorded until an export reads well.
fn bad_lines_error(n: usize, first: &str) -> Error {
    let lines = if n == 1 { "1 line of the export".to_owned() } else { format!("{n} lines of the export") };
    Error::new(ErrorKind::Io, format!("{lines} cannot be used; the first: {first}"))
}

/// A file that was written while it was read belongs to no fingerprint.
fn ensure_unchanged(export: &Export, stamp: Stamp) -> Result<()> {
    if export.stamp()? == stamp {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Io, format!("read export {}: it changed while it was read", export.origin()))
        .hint("run again when the copy is finished; copy to another name and rename to avoid this"))
}

fn finish(tx: &WriteTx<'_>, project_id: i64, fingerprint: &Fingerprint, now: Millis) -> Result<()> {
    let cursor = Cursor { fingerprint: Some(fingerprint.to_text()), saved_at: now, ..Cursor::default() };
    cursors::set(tx, project_id, STREAM, &cursor)?;
    cursors::clear_stream_failure(tx, project_id, STREAM)
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Collects items and writes them in batches.
struct Writer<'a, 'c> {
    ctx: &'a StepCtx<'c>,
    project_id: i64,
    report: &'a mut StepReport,
    batch: Vec<Item>,
    batch_bytes: u64,
    /// Numbers seen: a number that comes twice would overwrite itself in every run.
    seen: HashSet<(ItemType, i64)>,
    /// Labels and milestones that are stored; the first description of each counts.
    labels: HashSet<String>,
    milestones: HashSet<i64>,
    done: u64,
    total: u64,
    bad_lines: usize,
    first_bad: Option<String>,
    /// Items of which a later state was stored before.
    went_back: usize,
}

impl<'a, 'c> Writer<'a, 'c> {
    fn new(ctx: &'a StepCtx<'c>, project_id: i64, survey: &Survey, report: &'a mut StepReport) -> Self {
        Self {
            ctx,
            project_id,
            report,
            batch: Vec::new(),
            batch_bytes: 0,
            seen: HashSet::new(),
            labels: survey.labels.iter().map(|label| label.name.clone()).collect(),
            milestones: survey.milestones.iter().map(|milestone| milestone.gitlab_id).collect(),
            done: 0,
            total: survey.issues + survey.merge_requests,
            bad_lines: 0,
            first_bad: None,
            went_back: 0,
        }
    }

    fn take(&mut self, read: Read) -> Result<()> {
        self.done += 1;
        let item = match read {
            Read::Item(item) => *item,
            Read::Bad(bad) => {
                self.bad_line(&bad);
                return Ok(());
            }
        };
        let (item_type, iid) = number(&item.entity);
        if !self.seen.insert((item_type, iid)) {
            let place = format!("{}{iid}", item_type.sigil());
            self.bad_line(&BadLine {
                place,
                problem: "is in the export twice; the first one counts".to_owned(),
            });
            return Ok(());
        }
        self.batch_bytes += item.bytes;
        self.batch.push(item);
        if self.batch.len() >= BATCH_ITEMS || self.batch_bytes >= BATCH_BYTES {
            let (ctx, project_id) = (self.ctx, self.project_id);
            let batch = self.next_batch();
            let written = ctx.write(|tx| batch.write(tx, project_id, ctx.now()))?;
            self.add(&written);
        }
        Ok(())
    }

    /// An export none of whose items can be used is not taken as read.
    fn ensure_usable(&self, export: &Export) -> Result<()> {
        if self.total == 0 || !self.seen.is_empty() {
            return Ok(());
        }
        let shown = self.report.warnings.last().map(|text| format!("; the last: {text}")).unwrap_or_default();
        Err(Error::new(
            ErrorKind::Io,
            format!("read export {}: none of its {} items can be used{shown}", export.origin(), self.total),
        )
        .hint(
            "nothing was changed; export the project again, with a GitLab of another version if this repeats",
        ))
    }

    fn finish(mut self, fingerprint: &Fingerprint, digest: &str) -> Result<()> {
        let (ctx, project_id) = (self.ctx, self.project_id);
        let batch = self.next_batch();
        let (written, missing) = ctx.write(|tx| {
            let written = batch.write(tx, project_id, ctx.now())?;
            let went_back = self.went_back + written.went_back;
            let missing = if self.bad_lines == 0 && went_back == 0 {
                Some(self.strike_missing(tx, digest)?)
            } else {
                None
            };
            finish(tx, project_id, fingerprint, ctx.now())?;
            match &self.first_bad {
                Some(first) => {
                    let error = bad_lines_error(self.bad_lines, first);
                    cursors::record_stream_failure(tx, project_id, LINES, &error, ctx.now())?;
                }
                None => cursors::clear_stream_failure(tx, project_id, LINES)?,
            }
            Ok((written, missing))
        })?;
        self.add(&written);
        self.report.add("items_missing", count(missing.unwrap_or_default()));
        if self.went_back > 0 {
            self.report.warn(format!(
                "{} items of the export are older than what was stored: what it lacks is not taken as deleted",
                self.went_back
            ));
        }
        if let Some(more) = self.bad_lines.checked_sub(NAMED_BAD_LINES).filter(|more| *more > 0) {
            self.report.warn(format!("{more} more lines cannot be used"));
        }
        Ok(())
    }

    /// Takes what was collected, with the labels and milestones that are new with it.
    fn next_batch(&mut self) -> Batch {
        self.batch_bytes = 0;
        let items = std::mem::take(&mut self.batch);
        let (mut labels, mut milestones) = (Vec::new(), Vec::new());
        for item in &items {
            for label in &item.labels {
                if self.labels.insert(label.name.clone()) {
                    labels.push(label.clone());
                }
            }
            if let Some(milestone) = &item.milestone
                && self.milestones.insert(milestone.gitlab_id)
            {
                milestones.push(milestone.clone());
            }
        }
        Batch { items, labels, milestones }
    }

    /// Gives each stored item that a whole export lacks a strike; `reconcile` deletes those
    /// that two exports lack. Returns how many there are.
    fn strike_missing(&self, tx: &WriteTx<'_>, digest: &str) -> Result<usize> {
        let (now, mut n_missing) = (self.ctx.now(), 0);
        for item_type in ItemType::ALL {
            let seen: BTreeSet<i64> =
                self.seen.iter().filter(|(other, _)| *other == item_type).map(|(_, iid)| *iid).collect();
            tombstones::forgive(tx, self.project_id, item_type, &seen)?;
            let known = tombstones::known(tx, self.project_id, item_type)?;
            // An export holds what is confidential too.
            let verdict = judge(&known, &seen, Some(OWNER), self.ctx.options.allow_mass_delete);
            let proof = format!("export {digest}");
            tombstones::strike(tx, self.project_id, item_type, &verdict.suspects, &proof, now)?;
            n_missing += verdict.suspects.len();
        }
        Ok(n_missing)
    }

    fn add(&mut self, written: &Written) {
        self.went_back += written.went_back;
        for (name, n) in &written.counts {
            self.report.add(name, count(*n));
        }
        self.ctx.progress.set("items", self.done, Some(self.total));
    }

    fn bad_line(&mut self, bad: &BadLine) {
        self.bad_lines += 1;
        self.first_bad.get_or_insert_with(|| bad.to_string());
        self.report.add("bad_lines", 1);
        self.report.failing += 1;
        if self.bad_lines <= NAMED_BAD_LINES {
            tracing::warn!(place = %bad.place, problem = %bad.problem, "a line of the export cannot be used");
            self.report.warn(bad.to_string());
        }
    }
}

fn number(entity: &Entity) -> (ItemType, i64) {
    match entity {
        Entity::Issue(issue) => (ItemType::Issue, issue.iid),
        Entity::MergeRequest(merge_request) => (ItemType::MergeRequest, merge_request.iid),
    }
}

/// What one transaction writes.
struct Batch {
    items: Vec<Item>,
    labels: Vec<Label>,
    milestones: Vec<Milestone>,
}

/// What writing a batch came to.
struct Written {
    counts: Vec<(&'static str, usize)>,
    went_back: usize,
}

impl Batch {
    fn write(&self, tx: &WriteTx<'_>, project_id: i64, now: Millis) -> Result<Written> {
        let mut went_back = 0;
        let mut counts = vec![
            ("labels", entities::upsert_labels(tx, project_id, &self.labels, now)?),
            ("milestones", entities::upsert_milestones(tx, project_id, &self.milestones, now)?),
        ];
        for item in &self.items {
            let (item_type, stored) = match &item.entity {
                Entity::Issue(issue) => {
                    (ItemType::Issue, entities::upsert_issue(tx, project_id, issue, now)?)
                }
                Entity::MergeRequest(merge_request) => (
                    ItemType::MergeRequest,
                    entities::upsert_merge_request(tx, project_id, merge_request, now)?,
                ),
            };
            went_back += usize::from(stored.went_back);
            counts.push((change_name(item_type, stored.change), 1));
            let replaced =
                entities::replace_discussions(tx, project_id, item_type, stored.id, &item.discussions, now)?;
            counts.extend([
                ("discussions_new", replaced.new),
                ("discussions_changed", replaced.changed),
                ("discussions_removed", replaced.removed),
                ("notes", replaced.notes),
            ]);
        }
        Ok(Written { counts, went_back })
    }
}

fn change_name(item_type: ItemType, change: Change) -> &'static str {
    match (item_type, change) {
        (ItemType::Issue, Change::New) => "issues_new",
        (ItemType::Issue, Change::Changed) => "issues_changed",
        (ItemType::Issue, Change::Touched | Change::Unchanged) => "issues_unchanged",
        (ItemType::MergeRequest, Change::New) => "merge_requests_new",
        (ItemType::MergeRequest, Change::Changed) => "merge_requests_changed",
        (ItemType::MergeRequest, Change::Touched | Change::Unchanged) => "merge_requests_unchanged",
    }
}
