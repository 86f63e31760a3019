//! What queries learn about services, for the next query: which one failed, and the vectors of
//! questions. Where it is kept depends on who asks.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::Millis;
use crate::error::Result;
use crate::store::embeddings::{self, Circuit};
use crate::store::{Store, WriteTx};

/// Where it is kept. A function that opens the database keeps it there, so that the next
/// process knows it too.
pub trait Memory {
    /// What is known of the service `name`.
    ///
    /// # Errors
    /// Those of the database.
    fn circuit(&self, store: &Store, name: &str) -> Result<Circuit> {
        store.read(|tx| embeddings::circuit(tx, name))
    }

    /// Keeps what is known of the service `name`, as far as it can be kept.
    fn keep_circuit(&self, name: &str, circuit: &Circuit, now: Millis);

    /// Keeps the vector of a question, as far as it can be kept.
    fn keep_vector(&self, identity_id: i64, text: &str, vector: &[f32], now: Millis);
}

impl<F: Fn() -> Result<Store>> Memory for F {
    fn keep_circuit(&self, name: &str, circuit: &Circuit, now: Millis) {
        write(self, |tx| match circuit.failures {
            0 => embeddings::close_circuit(tx, name).map(drop),
            _ => embeddings::set_circuit(tx, name, circuit, now),
        });
    }

    fn keep_vector(&self, identity_id: i64, text: &str, vector: &[f32], now: Millis) {
        write(self, |tx| embeddings::remember_query(tx, identity_id, text, vector, now));
    }
}

/// Writes, if the database can be written at once.
fn write(open: impl Fn() -> Result<Store>, work: impl FnOnce(&WriteTx<'_>) -> Result<()>) {
    let written = open().and_then(|store| store.write(work));
    if let Err(error) = written {
        tracing::debug!("what was learned about a service is not kept: {}", error.full_message());
    }
}

/// Keeps it for as long as this process lives, for readers that write nothing.
#[derive(Debug, Default)]
pub struct ProcessMemory(Mutex<BTreeMap<String, Circuit>>);

impl ProcessMemory {
    fn circuits(&self) -> MutexGuard<'_, BTreeMap<String, Circuit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory for ProcessMemory {
    /// What other processes learned counts too: whichever leaves the service alone for longer.
    fn circuit(&self, store: &Store, name: &str) -> Result<Circuit> {
        let stored = store.read(|tx| embeddings::circuit(tx, name))?;
        let own = self.circuits().get(name).cloned();
        Ok(own.filter(|own| own.open_until >= stored.open_until).unwrap_or(stored))
    }

    fn keep_circuit(&self, name: &str, circuit: &Circuit, _now: Millis) {
        self.circuits().insert(name.to_owned(), circuit.clone());
    }

    fn keep_vector(&self, _identity_id: i64, _text: &str, _vector: &[f32], _now: Millis) {}
}
