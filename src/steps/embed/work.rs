//! One pass over documents: read, cut, embed in batches, store whole documents.
//!
//! Requests run beside the reading and writing; the bounds of batches and the number of
//! requests are asked of the embedder each time, which learns them from the answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Embed;
use crate::content::chunk::{self, Source};
use crate::content::hash::bytes_hash;
use crate::embed::{Embedder, Failure, TextResult};
use crate::engine::careful;
use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::{Error, Result};
use crate::fault;
use crate::store::embeddings::{self, ChunkVector, Identity, NewChunk, NewIdentity, ToEmbed, Written};
use crate::store::queues::MAX_ATTEMPTS;

/// Documents read at once.
const READ_DOCUMENTS: usize = 64;

/// Chunks that one transaction stores, about.
const WRITE_CHUNKS: usize = 512;

/// Longest time that vectors wait for being stored: what a process that is killed loses.
const WRITE_AFTER: Duration = Duration::from_secs(5);

/// A passage that waits for its vector.
struct Text {
    document: usize,
    chunk: usize,
    text: String,
}

/// A document under way.
struct Document {
    id: i64,
    content_hash: String,
    chunks: Vec<NewChunk>,
    is_truncated: bool,
    /// Chunks without an answer.
    open: usize,
}

type Answered = (Vec<Text>, std::result::Result<Vec<TextResult>, Failure>);

pub(super) struct Pass<'a, 'c> {
    ctx: &'a StepCtx<'c>,
    embedder: &'a Arc<Embedder>,
    identity: Option<Identity>,
    ids: VecDeque<i64>,
    tried: Vec<i64>,
    total: usize,
    /// Documents under way, by a number of this pass.
    documents: BTreeMap<usize, Document>,
    next: usize,
    texts: VecDeque<Text>,
    requests: JoinSet<Answered>,
    /// Documents with all their answers, not yet stored.
    ready: Vec<Document>,
    /// When the pass began or last stored something.
    stored_at: Instant,
}

impl<'a, 'c> Pass<'a, 'c> {
    pub(super) fn new(
        ctx: &'a StepCtx<'c>,
        embedder: &'a Arc<Embedder>,
        identity: Option<Identity>,
        ids: Vec<i64>,
    ) -> Self {
        Self {
            ctx,
            embedder,
            identity,
            total: ids.len(),
            ids: ids.into(),
            tried: Vec::new(),
            documents: BTreeMap::new(),
            next: 0,
            texts: VecDeque::new(),
            requests: JoinSet::new(),
            ready: Vec::new(),
            stored_at: Instant::now(),
        }
    }

    pub(super) fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Documents that were read.
    pub(super) fn tried(&self) -> &[i64] {
        &self.tried
    }

    /// Embeds the documents. When the service fails, documents that have all their answers
    /// are stored first.
    pub(super) fn run(
        &mut self,
        is_out_of_time: impl Fn() -> bool,
        report: &mut StepReport,
    ) -> std::result::Result<(), Failure> {
        let failed = loop {
            self.ctx.check()?;
            if is_out_of_time() {
                self.ids.clear();
            }
            self.read_ahead()?;
            while self.requests.len() < self.embedder.concurrency() {
                let Some(batch) = self.next_batch() else { break };
                let embedder = Arc::clone(self.embedder);
                let deadline = self.ctx.deadline;
                self.requests.spawn_on(
                    async move {
                        let texts: Vec<String> = batch.iter().map(|text| text.text.clone()).collect();
                        let answer = embedder.embed(&texts, deadline).await;
                        (batch, answer)
                    },
                    &self.ctx.runtime,
                );
            }
            let is_last = self.requests.is_empty();
            if is_last || self.is_due() {
                self.store(report)?;
            }
            if is_last && self.ids.is_empty() {
                break None;
            }
            if is_last {
                continue;
            }
            match self.next_answer()? {
                // What is ready is due before the next answer came.
                None => {}
                Some((batch, Ok(results))) => self.take_answers(batch, results),
                Some((_, Err(failure))) => break Some(failure),
            }
        };
        self.requests.abort_all();
        let Some(failure) = failed else { return Ok(()) };
        self.store(report)?;
        Err(failure)
    }

    /// Whether what is ready is to be stored now: there is enough of it, or it waited long.
    fn is_due(&self) -> bool {
        let waiting: usize = self.ready.iter().map(|document| document.chunks.len().max(1)).sum();
        waiting >= WRITE_CHUNKS || (waiting > 0 && self.stored_at.elapsed() >= WRITE_AFTER)
    }

    /// Waits for an answer; nothing when what is ready has to be stored before one comes.
    fn next_answer(&mut self) -> Result<Option<Answered>> {
        let due = (!self.ready.is_empty()).then(|| WRITE_AFTER.saturating_sub(self.stored_at.elapsed()));
        let requests = &mut self.requests;
        self.ctx.block_on(async {
            let next = requests.join_next();
            let next = match due {
                None => next.await,
                Some(wait) => match tokio::time::timeout(wait, next).await {
                    Ok(next) => next,
                    Err(_) => return Ok(None),
                },
            };
            match next {
                Some(Ok(answered)) => Ok(Some(answered)),
                Some(Err(error)) => Err(Error::internal("a request for vectors broke off").because(error)),
                None => Err(Error::internal("there was no request for vectors to wait for")),
            }
        })
    }

    /// Reads and cuts documents until there is enough for the next requests.
    fn read_ahead(&mut self) -> Result<()> {
        let enough = self.embedder.limits().items * (self.embedder.concurrency() + 1);
        while self.texts.len() < enough && !self.ids.is_empty() {
            let ids: Vec<i64> = self.ids.drain(..self.ids.len().min(READ_DOCUMENTS)).collect();
            let identity_id = self.identity.as_ref().map_or(0, |identity| identity.id);
            let now = self.ctx.now();
            let read: Vec<Option<ToEmbed>> = self.ctx.read(|tx| {
                ids.iter().map(|id| embeddings::read_document(tx, identity_id, *id, now)).collect()
            })?;
            self.tried.extend(ids);
            for document in read.into_iter().flatten() {
                self.cut(&document);
            }
        }
        Ok(())
    }

    /// Leaves a document alone that the process died of: all that is stored of it is why.
    /// Returns false when nothing can be stored yet, because no vector was ever made.
    pub(super) fn condemn(&mut self, id: i64, report: &mut StepReport) -> Result<bool> {
        if self.made_identity()?.is_none() {
            return Ok(false);
        }
        let identity_id = self.identity.as_ref().map_or(0, |identity| identity.id);
        let now = self.ctx.now();
        let Some(document) = self.ctx.read(|tx| embeddings::read_document(tx, identity_id, id, now))? else {
            return Ok(true);
        };
        let why = ChunkVector::Failed { error: careful::VERDICT.to_owned(), earlier: MAX_ATTEMPTS - 1 };
        let chunk = NewChunk { hash: [0; 16], is_title: true, char_start: 0, char_end: 0, vector: why };
        self.ready.push(Document {
            id,
            content_hash: document.content_hash,
            chunks: vec![chunk],
            is_truncated: false,
            open: 0,
        });
        self.store(report)?;
        Ok(true)
    }

    /// Cuts a document and queues the passages that need a vector.
    fn cut(&mut self, document: &ToEmbed) {
        fault::item(Embed::KIND, document.title.as_deref().unwrap_or_default());
        let text = &document.content_text;
        let start = text.char_indices().nth(document.body_start).map_or(text.len(), |(at, _)| at);
        let source = Source {
            title: document.title.as_deref(),
            heading: document.heading.as_deref(),
            body: text.get(start..).unwrap_or_default(),
            body_start: document.body_start,
        };
        let limits = self.embedder.target().limits;
        let cut = chunk::chunk(&source, &limits, &|text| self.embedder.count_tokens(text));
        let mut known = document.known.clone();
        let number = self.next;
        self.next += 1;
        let mut chunks = Vec::with_capacity(cut.chunks.len());
        let mut open = 0;
        for (idx, chunk) in cut.chunks.into_iter().enumerate() {
            let digest = bytes_hash(chunk.text.as_bytes());
            let hash = digest.first_chunk::<16>().copied().unwrap_or_default();
            let same = known.iter().position(|known| known.hash == hash).map(|at| known.swap_remove(at));
            // Until the answer is there, a text counts as failed.
            let vector = match same {
                Some(known) if known.attempt_count == 0 || !known.is_ready => ChunkVector::Keep(known.id),
                Some(known) => ChunkVector::Failed { error: String::new(), earlier: known.attempt_count },
                None => ChunkVector::Failed { error: String::new(), earlier: 0 },
            };
            if matches!(vector, ChunkVector::Failed { .. }) {
                open += 1;
                self.texts.push_back(Text { document: number, chunk: idx, text: chunk.text });
            }
            chunks.push(NewChunk {
                hash,
                is_title: chunk.is_title,
                char_start: chunk.char_start,
                char_end: chunk.char_end,
                vector,
            });
        }
        let document = Document {
            id: document.document_id,
            content_hash: document.content_hash.clone(),
            chunks,
            is_truncated: cut.is_truncated,
            open,
        };
        if open == 0 {
            self.ready.push(document);
        } else {
            self.documents.insert(number, document);
        }
    }

    /// Takes as many texts as one request may hold.
    fn next_batch(&mut self) -> Option<Vec<Text>> {
        let limits = self.embedder.limits();
        let (mut chars, mut tokens) = (0, 0);
        let mut batch: Vec<Text> = Vec::new();
        while let Some(text) = self.texts.front() {
            chars += text.text.chars().count();
            tokens += chunk::estimate_tokens(&text.text);
            let fits = batch.len() < limits.items && chars <= limits.chars && tokens <= limits.tokens;
            if !batch.is_empty() && !fits {
                break;
            }
            batch.extend(self.texts.pop_front());
        }
        (!batch.is_empty()).then_some(batch)
    }

    fn take_answers(&mut self, batch: Vec<Text>, results: Vec<TextResult>) {
        for (text, result) in batch.into_iter().zip(results) {
            let Some(document) = self.documents.get_mut(&text.document) else { continue };
            if let Some(chunk) = document.chunks.get_mut(text.chunk) {
                let earlier = match chunk.vector {
                    ChunkVector::Failed { earlier, .. } => earlier,
                    ChunkVector::Keep(_) | ChunkVector::New(_) => 0,
                };
                chunk.vector = match result {
                    Ok(vector) => ChunkVector::New(vector),
                    Err(error) => ChunkVector::Failed { error, earlier },
                };
            }
            document.open -= 1;
            if document.open == 0
                && let Some(document) = self.documents.remove(&text.document)
            {
                self.ready.push(document);
            }
        }
    }

    /// Stores the documents that have all their answers.
    fn store(&mut self, report: &mut StepReport) -> Result<()> {
        if self.ready.is_empty() {
            return Ok(());
        }
        // Nothing is known to store for as long as no vector was ever made: then the embedder
        // has failed, and that is the step's error.
        let Some(identity) = self.made_identity()? else { return Ok(()) };
        self.stored_at = Instant::now();
        while !self.ready.is_empty() {
            // By whole documents, up to a size that keeps the transaction short.
            let mut n = 0;
            let mut chunks = 0;
            while let Some(document) = self.ready.get(n).filter(|_| chunks < WRITE_CHUNKS) {
                chunks += document.chunks.len().max(1);
                n += 1;
            }
            let part: Vec<Document> = self.ready.drain(..n).collect();
            let now = self.ctx.now();
            let written: Vec<Written> = self.ctx.write(|tx| {
                part.iter()
                    .map(|document| {
                        let key = (document.id, document.content_hash.as_str());
                        embeddings::write_document(
                            tx,
                            &identity,
                            key,
                            &document.chunks,
                            document.is_truncated,
                            now,
                        )
                    })
                    .collect()
            })?;
            for (document, written) in part.iter().zip(written) {
                count(report, document, written);
            }
            let done = report.count("embedded") + report.count("failed") + report.count("skipped");
            self.ctx.progress.set("documents", u64::try_from(done).unwrap_or(0), Some(self.total as u64));
        }
        Ok(())
    }

    /// The identity to store for; made when the length of its vectors is known.
    fn made_identity(&mut self) -> Result<Option<Identity>> {
        if self.identity.is_none()
            && let Some(dims) = self.embedder.dims()
        {
            let target = self.embedder.target();
            let (hash, chunking, endpoint) = (target.hash(), target.chunking(), self.embedder.endpoint());
            let new = NewIdentity {
                hash: &hash,
                provider: target.provider.as_str(),
                model: &target.model,
                dims,
                chunking: &chunking,
                query_prefix: &target.query_prefix,
                document_prefix: &target.document_prefix,
                endpoint: endpoint.as_deref(),
            };
            self.identity = Some(self.ctx.write(|tx| embeddings::create(tx, &new, self.ctx.now()))?);
        }
        Ok(self.identity.clone())
    }
}

/// Counts what became of a document.
fn count(report: &mut StepReport, document: &Document, written: Written) {
    match written {
        // Still pending, or gone: neither done nor failed.
        Written::Changed | Written::Gone => return,
        Written::Stored => {}
    }
    let failed = |chunk: &&NewChunk| matches!(chunk.vector, ChunkVector::Failed { .. });
    let embedded = |chunk: &&NewChunk| matches!(chunk.vector, ChunkVector::New(_));
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let chunks_failed = number(document.chunks.iter().filter(failed).count());
    report.add("chunks", number(document.chunks.iter().filter(embedded).count()));
    report.add("chunks_failed", chunks_failed);
    report.add("truncated", i64::from(document.is_truncated));
    // A document without any text has nothing to embed.
    report.add("skipped", i64::from(document.chunks.is_empty()));
    report.add("failed", i64::from(chunks_failed > 0));
    report.add("embedded", i64::from(chunks_failed == 0 && !document.chunks.is_empty()));
}
