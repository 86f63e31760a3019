use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::store::embeddings::tests::{new_identity, put, store, unit};
use crate::store::embeddings::{self, ChunkVector, NewChunk};
use crate::store::{Store, WriteTx};

/// A generator that gives the same numbers everywhere.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1_u64 << 24) as f32 - 0.5
    }

    /// Near the centre of a cluster, as vectors of texts on one subject are.
    fn clustered(&mut self, dims: usize, clusters: u64) -> Vec<f32> {
        let cluster = (self.next() + 0.5) * clusters as f32;
        let mut centre =
            Self(0x9E37_79B9_7F4A_7C15 ^ (cluster as u64 + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93));
        for _ in 0..3 {
            centre.next();
        }
        let values: Vec<f32> = (0..dims).map(|_| centre.next() + 0.7 * self.next()).collect();
        unit(&values)
    }
}

struct Built {
    _dir: tempfile::TempDir,
    store: Store,
    identity: embeddings::Identity,
    /// Document, chunk, vector as it is stored.
    all: Vec<(i64, i64, Vec<u8>)>,
}

fn build(documents: i64, dims: usize, clusters: u64, seed: u64) -> Built {
    let (dir, store) = store();
    let mut numbers = Numbers(seed | 1);
    let identity = store.write(|tx| embeddings::create(tx, &new_identity("h", dims), 0)).unwrap();
    store
        .write(|tx| {
            (1..=documents).try_for_each(|iid| {
                add(tx, &identity, iid, 1 + (iid % 3) as usize, || numbers.clustered(dims, clusters))
            })
        })
        .unwrap();
    let all = store
        .read(|tx| {
            let mut statement = tx.sql().prepare("SELECT c.document_id, c.id, v.vector FROM chunks c JOIN chunk_vectors v ON v.chunk_id = c.id ORDER BY c.id")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
        .unwrap();
    Built { _dir: dir, store, identity, all }
}

fn add(
    tx: &WriteTx<'_>,
    identity: &embeddings::Identity,
    iid: i64,
    chunks: usize,
    mut vector: impl FnMut() -> Vec<f32>,
) -> Result<()> {
    let id = put(tx, iid, "t", "text")?;
    let hash: String =
        tx.sql().query_row("SELECT content_hash FROM documents WHERE id = ?1", [id], |row| row.get(0))?;
    let chunks: Vec<NewChunk> = (0..chunks)
        .map(|_| NewChunk {
            hash: [0; 16],
            is_title: false,
            char_start: 0,
            char_end: 0,
            vector: ChunkVector::New(vector()),
        })
        .collect();
    embeddings::write_document(tx, identity, (id, &hash), &chunks, false, 0).map(drop)
}

/// What a search should return: everything compared.
fn brute_force(built: &Built, vector: &[f32], allowed: Option<&[u8]>, limit: usize) -> Vec<i64> {
    let hits = built
        .all
        .iter()
        .filter(|(document, _, _)| allowed.is_none_or(|set| contains(set, *document)))
        .map(|(document_id, chunk_id, stored)| VectorHit {
            document_id: *document_id,
            chunk_id: *chunk_id,
            similarity: f64::from(half::dot(vector, stored)),
        })
        .collect();
    ids(&collapse(hits, limit))
}

fn ids(hits: &[VectorHit]) -> Vec<i64> {
    hits.iter().map(|hit| hit.document_id).collect()
}

fn set(ids: impl IntoIterator<Item = i64>) -> Vec<u8> {
    let mut set = Vec::new();
    for id in ids {
        let at = usize::try_from(id).unwrap();
        if set.len() <= at / 8 {
            set.resize(at / 8 + 1, 0_u8);
        }
        set[at / 8] |= 1 << (at % 8);
    }
    set
}

fn search(built: &Built, vector: &[f32], allowed: Option<&[u8]>, limit: usize) -> Neighbours {
    let query = NearestQuery { identity: &built.identity, vector, allowed, limit };
    built.store.read(|tx| nearest(tx, &query)).unwrap()
}

fn recall(found: &[i64], truth: &[i64]) -> f64 {
    let found: BTreeSet<_> = found.iter().collect();
    truth.iter().filter(|id| found.contains(id)).count() as f64 / truth.len().max(1) as f64
}

#[test]
fn the_nearest_ten_are_those_of_an_exhaustive_search() {
    let built = build(6_000, 128, 300, 7);
    let mut numbers = Numbers(99);
    let mut sum = 0.0;
    for _ in 0..40 {
        let vector = numbers.clustered(128, 300);
        let found = search(&built, &vector, None, 10);
        assert_eq!(found.way, Way::Scan);
        sum += recall(&ids(&found.hits), &brute_force(&built, &vector, None, 10));
    }
    assert!(sum / 40.0 >= 0.99, "recall {}", sum / 40.0);
}

#[test]
fn filters_of_any_size_keep_the_nearest_of_what_they_allow() {
    let built = build(3_000, 128, 100, 11);
    let mut numbers = Numbers(5);
    for every in [2_i64, 10, 60, 1_000] {
        let allowed = set((1..=3_000).filter(|id| id % every == 0));
        let mut sum = 0.0;
        for _ in 0..10 {
            let vector = numbers.clustered(128, 100);
            let found = search(&built, &vector, Some(&allowed), 10);
            assert!(found.hits.iter().all(|hit| hit.document_id % every == 0));
            sum += recall(&ids(&found.hits), &brute_force(&built, &vector, Some(&allowed), 10));
        }
        assert!(sum / 10.0 >= 0.99, "every {every}: recall {}", sum / 10.0);
    }
}

#[test]
fn a3_04_a_filter_that_leaves_five_documents_returns_those_five() {
    let built = build(2_000, 64, 50, 3);
    let rare = [17, 400, 401, 1_500, 1_999];
    // The five farthest there could be: the query is the opposite of one of them.
    let vector: Vec<f32> = built
        .all
        .iter()
        .find(|(id, _, _)| *id == 17)
        .map(|(_, _, stored)| half::decode(stored).iter().map(|v| -v).collect())
        .unwrap();
    let found = search(&built, &vector, Some(&set(rare)), 5);
    assert_eq!(ids(&found.hits).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(rare));
    assert_eq!(found.way, Way::Exact);
    assert!(search(&built, &vector, Some(&[]), 5).hits.is_empty());
    // Enough allowed documents for the scan: all of them are returned, none other.
    let many = set((1..=2_000).filter(|id| id % 5 == 0));
    let found = search(&built, &vector, Some(&many), 2_000);
    assert_eq!((found.hits.len(), found.way), (400, Way::Scan));
}

#[test]
fn a3_02_any_limit_is_answered() {
    let built = build(4_200, 64, 50, 21);
    let vector = Numbers(3).clustered(64, 50);
    for (limit, expected) in [(0, 0), (1, 1), (100, 100), (5_000, 4_200), (usize::MAX, 4_200)] {
        assert_eq!(search(&built, &vector, None, limit).hits.len(), expected, "limit {limit}");
    }
}

#[test]
fn documents_with_many_near_passages_do_not_crowd_out_the_others() {
    let (_dir, store) = store();
    let mut numbers = Numbers(17);
    let near = numbers.clustered(64, 1);
    let identity = store.write(|tx| embeddings::create(tx, &new_identity("h", 64), 0)).unwrap();
    store
        .write(|tx| {
            (1..=20).try_for_each(|iid| add(tx, &identity, iid, 120, || near.clone()))?;
            (21..=240).try_for_each(|iid| add(tx, &identity, iid, 1, || numbers.clustered(64, 40)))
        })
        .unwrap();
    let query = NearestQuery { identity: &identity, vector: &near, allowed: None, limit: 100 };
    let found = store.read(|tx| nearest(tx, &query)).unwrap();
    assert_eq!(found.hits.len(), 100);
    assert_eq!(ids(&found.hits)[..20], (1..=20).collect::<Vec<i64>>(), "equally near ones by id");
}

#[test]
fn the_blobs_of_sqlite_vec_are_laid_out_as_they_are_read() {
    let built = build(1_500, 384, 40, 13);
    built
        .store
        .read(|tx| {
            assert!(is_known_layout(tx, &codes_table(built.identity.id))?, "sqlite-vec changed: check the scan before trusting it");
            let mut statement = tx.sql().prepare(
                "SELECT c.size, length(c.validity), length(c.rowids), length(m.data), length(v.vectors), c.chunk_id = m.rowid AND c.chunk_id = v.rowid
                   FROM chunk_codes_1_chunks c JOIN chunk_codes_1_metadatachunks00 m ON m._rowid_ = c.chunk_id
                   JOIN chunk_codes_1_vector_chunks00 v ON v._rowid_ = c.chunk_id",
            )?;
            let rows: Vec<[i64; 6]> = statement
                .query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?]))?
                .collect::<rusqlite::Result<_>>()?;
            assert_eq!(rows, [[1024, 128, 8192, 8192, 1024 * 48, 1]; 3]);
            Ok(())
        })
        .unwrap();
}

#[test]
fn the_scan_and_sqlite_vec_find_the_same_candidates_with_and_without_a_filter() {
    let built = build(2_500, 96, 60, 29);
    // Holes: what is deleted must not come back.
    built.store.write(|tx| Ok(tx.sql().execute("DELETE FROM documents WHERE id % 7 = 0", [])?)).unwrap();
    let mut numbers = Numbers(31);
    for allowed in [None, Some(set((1..=2_500).filter(|id| id % 3 == 0)))] {
        let vector = numbers.clustered(96, 60);
        let query = NearestQuery {
            identity: &built.identity,
            vector: &vector,
            allowed: allowed.as_deref(),
            limit: 10,
        };
        built
            .store
            .read(|tx| {
                let (mut mine, _) = nearest_codes(tx, &query, 400)?.unwrap();
                mine.iter_mut().for_each(|it| it.slot = 0);
                let mut theirs = ask_sqlite_vec(tx, &query, 400)?;
                theirs.sort_unstable();
                let distances = |list: &[Candidate]| list.iter().map(|it| it.distance).collect::<Vec<_>>();
                assert_eq!(distances(&mine), distances(&theirs));
                // Beyond ties at the edge, the very same passages.
                let edge = mine.last().unwrap().distance;
                let inner = |list: &[Candidate]| {
                    list.iter().copied().filter(|it| it.distance < edge).collect::<Vec<_>>()
                };
                assert_eq!(inner(&mine), inner(&theirs));
                assert!(mine.iter().all(|it| it.document_id % 7 != 0));
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn another_layout_is_answered_by_sqlite_vec() {
    let built = build(1_500, 64, 50, 37);
    let vector = Numbers(41).clustered(64, 50);
    let before = search(&built, &vector, None, 10);
    built
        .store
        .write(|tx| {
            Ok(tx
                .sql()
                .execute("UPDATE chunk_codes_1_info SET value = 'v9' WHERE key = 'CREATE_VERSION'", [])?)
        })
        .unwrap();
    let after = search(&built, &vector, None, 10);
    assert_eq!((before.way, after.way), (Way::Scan, Way::Fallback));
    assert_eq!(before.hits, after.hits);
    let allowed = set((1..=1_500).filter(|id| id % 4 == 0));
    let filtered = search(&built, &vector, Some(&allowed), 300);
    assert_eq!((filtered.hits.len(), filtered.way), (300, Way::Fallback));
    assert!(filtered.hits.iter().all(|hit| hit.document_id % 4 == 0));
}

#[test]
fn a1_19_a_query_of_another_dimension_names_both_sizes() {
    let built = build(10, 64, 5, 43);
    let query = NearestQuery { identity: &built.identity, vector: &[0.1; 32], allowed: None, limit: 5 };
    let error = built.store.read(|tx| nearest(tx, &query)).unwrap_err();
    assert!(error.to_string().contains("32") && error.to_string().contains("64"), "{error}");
    for broken in [vec![0.0; 64], vec![f32::NAN; 64]] {
        let query = NearestQuery { identity: &built.identity, vector: &broken, allowed: None, limit: 5 };
        assert!(built.store.read(|tx| nearest(tx, &query)).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn small_collections_are_searched_exactly(seed in 1_u64.., documents in 1_i64..150, limit in 1_usize..40, keep in 1_i64..6) {
        let built = build(documents, 72, 10, seed);
        let vector = Numbers(seed ^ 0xABCD | 1).clustered(72, 10);
        let allowed = set((1..=documents).filter(|id| id % keep == 0));
        let found = search(&built, &vector, None, limit);
        prop_assert_eq!(ids(&found.hits), brute_force(&built, &vector, None, limit));
        let found = search(&built, &vector, Some(&allowed), limit);
        prop_assert_eq!(ids(&found.hits), brute_force(&built, &vector, Some(&allowed), limit));
    }
}
