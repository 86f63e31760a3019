//! SQL of facets: how a set of documents is spread over projects, types, authors, labels and
//! months.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rusqlite::params;

use crate::clock;
use crate::content::filter::Bitset;
use crate::error::Result;
use crate::store::ReadTx;

/// Values of a facet that are told; the others are counted.
pub const MAX_VALUES: usize = 50;

/// A value and how often it occurs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// As a filter names it.
    pub value: String,
    /// Results that have it.
    pub count: usize,
}

/// One facet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facet {
    /// The commonest values first, ties by name.
    pub values: Vec<Value>,
    /// Further values that are not told.
    pub more: usize,
}

/// How results are spread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facets {
    /// All results.
    pub total: usize,
    /// Paths.
    pub project: Facet,
    /// `issue`, `merge_request`, `discussion`.
    pub source_type: Facet,
    /// Names.
    pub label: Facet,
    /// Usernames.
    pub author: Facet,
    /// Months of creation, UTC, as `2024-01`.
    pub month: Facet,
}

/// What is counted: an item, or a document.
type Key = (u8, i64);

/// Results that have each of the values.
#[derive(Default)]
struct Counted(BTreeMap<String, BTreeSet<Key>>);

impl Counted {
    fn add(&mut self, value: &str, key: Key) {
        match self.0.get_mut(value) {
            Some(keys) => _ = keys.insert(key),
            None => _ = self.0.insert(value.to_owned(), BTreeSet::from([key])),
        }
    }

    fn facet(self) -> Facet {
        let mut values: Vec<Value> =
            self.0.into_iter().map(|(value, keys)| Value { value, count: keys.len() }).collect();
        values.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.value.cmp(&b.value)));
        let more = values.len().saturating_sub(MAX_VALUES);
        values.truncate(MAX_VALUES);
        Facet { values, more }
    }
}

/// Counts a set of documents: by item, or each for itself. One scan of a covering index, and
/// one of the labels.
///
/// # Errors
/// Those of SQLite.
pub fn facets(tx: &ReadTx<'_>, set: &Bitset, by_item: bool) -> Result<Facets> {
    let mut paths: BTreeMap<i64, String> = BTreeMap::new();
    for project in super::projects(tx)? {
        paths.insert(project.id, project.path);
    }
    let mut keys: HashMap<i64, Key> = HashMap::new();
    let mut all: BTreeSet<Key> = BTreeSet::new();
    let [mut project, mut source_type, mut label, mut author, mut month] =
        std::array::from_fn(|_| Counted::default());
    let mut statement = tx.sql().prepare_cached(
        "SELECT id, project_id, source_type, author_username, created_at, item_type = 'merge_request', item_id
           FROM documents INDEXED BY idx_documents_filter WHERE lore_allow(id, ?1)",
    )?;
    let mut rows = statement.query([set.as_bytes()])?;
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        let key = if by_item { (row.get::<_, u8>(5)?, row.get(6)?) } else { (2, id) };
        keys.insert(id, key);
        all.insert(key);
        if let Some(path) = paths.get(&row.get::<_, i64>(1)?) {
            project.add(path, key);
        }
        source_type.add(&row.get::<_, String>(2)?, key);
        if let Some(name) = row.get::<_, Option<String>>(3)? {
            author.add(&name, key);
        }
        if let Some(created_at) = row.get::<_, Option<i64>>(4)? {
            let day: String = clock::day(created_at);
            month.add(day.rsplit_once('-').map_or(day.as_str(), |(month, _)| month), key);
        }
    }
    let mut statement = tx.sql().prepare_cached(
        "SELECT document_id, label_name FROM document_labels WHERE lore_allow(document_id, ?1)",
    )?;
    let mut rows = statement.query(params![set.as_bytes()])?;
    while let Some(row) = rows.next()? {
        if let Some(key) = keys.get(&row.get(0)?) {
            label.add(&row.get::<_, String>(1)?, *key);
        }
    }
    Ok(Facets {
        total: all.len(),
        project: project.facet(),
        source_type: source_type.facet(),
        label: label.facet(),
        author: author.facet(),
        month: month.facet(),
    })
}
