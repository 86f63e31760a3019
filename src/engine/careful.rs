//! Finds the entry of a queue that kills the process again and again.
//!
//! A step that the last runs died in works on its entries one at a time and notes each before
//! it begins. The entry that is still noted when the next run looks was there when the process
//! died: it is tried once more, after all others, and left alone when the process dies again.
//! One that was left alone and is released counts one death less.
//! As long as no process dies this costs three look-ups a step.

use std::collections::BTreeMap;

use super::ctx::StepCtx;
use crate::error::Result;
use crate::store::suspects;

/// Runs that died in a step one after the other, after which it is careful.
const DEATHS: i64 = 2;

/// Deaths with nothing else under way, after which an entry is left alone.
const CRASHES: i64 = 2;

/// What is recorded with an entry that is left alone.
pub const VERDICT: &str = "the process died twice while it worked on this entry and on nothing else \
     (too little memory, or a defect of lore); it is left alone until it changes or `--retry-failed` asks for it";

/// How a step works on its entries.
#[derive(Debug)]
pub struct Careful {
    step: &'static str,
    is_on: bool,
    charged: BTreeMap<String, i64>,
}

impl Careful {
    /// Looks at how the last runs of this kind of step ended.
    ///
    /// # Errors
    /// Those of the store, and the reason for a stop.
    pub fn begin(ctx: &StepCtx<'_>, step: &'static str) -> Result<Self> {
        let (has_died, has_suspects, released) = ctx.read(|tx| {
            Ok((
                suspects::died_in(tx, step, DEATHS)?,
                suspects::are_any(tx, step)?,
                suspects::released(tx, step, VERDICT)?,
            ))
        })?;
        let mut charged =
            if has_suspects { ctx.write(|tx| suspects::charge(tx, step))? } else { BTreeMap::new() };
        let is_on = has_died || has_suspects || !released.is_empty();
        // Nobody vouches for a released entry: it comes last, and its next death is the last.
        for entry in released {
            *charged.entry(entry).or_default() += CRASHES - 1;
        }
        if is_on {
            tracing::warn!(
                step,
                suspects = charged.len(),
                "the process died in this step before: working on one entry at a time"
            );
        }
        Ok(Self { step, is_on, charged })
    }

    /// Whether entries are to be worked on one at a time.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Entries that the process died with.
    pub fn suspects(&self) -> usize {
        self.charged.len()
    }

    /// Whether the process died with it before.
    pub fn is_suspect(&self, entry: &str) -> bool {
        self.charged.contains_key(entry)
    }

    /// Whether it is to be left alone.
    pub fn is_condemned(&self, entry: &str) -> bool {
        self.charged.get(entry).is_some_and(|crashes| *crashes >= CRASHES)
    }

    /// Keeps those whose turn it is: suspects come after all others.
    pub fn turn<T>(&self, entries: Vec<T>, name: impl Fn(&T) -> String) -> Vec<T> {
        if self.charged.is_empty() || entries.iter().all(|entry| self.is_suspect(&name(entry))) {
            return entries;
        }
        entries.into_iter().filter(|entry| !self.is_suspect(&name(entry))).collect()
    }

    /// Notes that work on an entry begins. Does nothing when the step need not be careful.
    ///
    /// # Errors
    /// As [`StepCtx::write`].
    pub fn note(&self, ctx: &StepCtx<'_>, entry: &str) -> Result<()> {
        if !self.is_on {
            return Ok(());
        }
        ctx.write(|tx| suspects::note(tx, self.step, entry, ctx.now()))
    }

    /// Takes back what [`Careful::note`] wrote, also when the work failed or was stopped: the
    /// process lives.
    ///
    /// # Errors
    /// Those of `out`, else those of the store.
    pub fn settle<T, E: From<crate::error::Error>>(
        &self,
        ctx: &StepCtx<'_>,
        entry: &str,
        out: std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        if !self.is_on {
            return out;
        }
        // Not through the context, which writes nothing once a stop was asked for.
        let settled = ctx.store.write(|tx| match &out {
            Ok(_) => suspects::clear(tx, self.step, entry),
            Err(_) => suspects::pause(tx, self.step, entry),
        });
        match (out, settled) {
            (Ok(value), Ok(())) => Ok(value),
            (Ok(_), Err(error)) => Err(error.into()),
            (Err(failure), Ok(())) => Err(failure),
            (Err(failure), Err(error)) => {
                tracing::warn!(step = self.step, entry, %error, "an entry stays noted as under way");
                Err(failure)
            }
        }
    }

    /// The step came to its end, and so did every suspicion.
    ///
    /// # Errors
    /// As [`StepCtx::write`].
    pub fn end(&self, ctx: &StepCtx<'_>) -> Result<()> {
        if !self.is_on {
            return Ok(());
        }
        ctx.write(|tx| suspects::acquit_all(tx, self.step))
    }
}
