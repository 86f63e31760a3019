//! What the steps of one run share, such as the budget of requests to a server.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longest wait at the word of a server when no job says otherwise.
const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);

type Things = BTreeMap<(TypeId, String), Arc<dyn Any + Send + Sync>>;

/// Things that all steps of a run use together, each made by the first that asks for it.
/// Clones are the same set.
#[derive(Clone)]
pub struct Shared {
    things: Arc<Mutex<Things>>,
    longest_wait: Duration,
}

impl Default for Shared {
    fn default() -> Self {
        Self { things: Arc::default(), longest_wait: LONGEST_WAIT }
    }
}

impl Shared {
    /// The same set, for an attempt that waits at most `longest_wait` at the word of a server.
    #[must_use]
    pub fn waiting_at_most(&self, longest_wait: Duration) -> Self {
        Self { things: Arc::clone(&self.things), longest_wait }
    }

    /// Longest wait at the word of a server: `retry.max` of the step. What asks for more is
    /// left to the next run.
    pub fn longest_wait(&self) -> Duration {
        self.longest_wait
    }

    /// The thing of this type and name, made when it is not there yet.
    pub fn get<T: Any + Send + Sync>(&self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        let mut things = self.things.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (TypeId::of::<T>(), name.to_owned());
        if let Some(known) = things.get(&key).and_then(|known| Arc::clone(known).downcast().ok()) {
            return known;
        }
        let made = Arc::new(make());
        things.insert(key, Arc::clone(&made) as Arc<dyn Any + Send + Sync>);
        made
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("longest_wait", &self.longest_wait).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_made_once_for_each_name_and_type() {
        let shared = Shared::default();
        let first = shared.get("main", || 1_i32);
        let again = shared.waiting_at_most(Duration::ZERO).get("main", || 2_i32);
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(*shared.get("other", || 3_i32), 3);
        assert_eq!(*shared.get("main", || "text"), "text");
    }
}
