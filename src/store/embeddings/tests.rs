use super::*;
use crate::error::Result;
use crate::store::{OpenOptions, Store, WriteTx};

pub(crate) fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
    store
        .write(|tx| {
            tx.sql().execute(
                "INSERT INTO projects(id, source_name, path, created_at, updated_at) VALUES (1, 's', 'group/app', 0, 0)",
                [],
            )?;
            Ok(())
        })
        .unwrap();
    (dir, store)
}

/// Writes the document of an issue; the same iid again changes it.
pub(crate) fn put(tx: &WriteTx<'_>, iid: i64, title: &str, body: &str) -> Result<i64> {
    let text = format!("[[Issue]] #{iid}: {title}\n{body}");
    let start = text.chars().count() - body.chars().count();
    tx.sql().prepare_cached(
        "INSERT INTO documents(source_type, source_id, project_id, item_type, item_id, item_iid, state, title, body_start, content_hash, content_text)
         VALUES ('issue', ?1, 1, 'issue', ?1, ?1, 'opened', ?2, ?3, ?4, ?5)
         ON CONFLICT(source_type, source_id) DO UPDATE SET title = excluded.title, content_hash = excluded.content_hash,
           content_text = excluded.content_text, body_start = excluded.body_start",
    )?
    .execute((iid, title, number(start), crate::content::hash::text_hash(&text), &text))?;
    Ok(tx.sql().query_row("SELECT id FROM documents WHERE source_id = ?1", [iid], |row| row.get(0))?)
}

pub(crate) fn set_labels(tx: &WriteTx<'_>, id: i64) -> Result<()> {
    tx.sql()
        .execute("UPDATE documents SET label_names = '[\"bug\"]', labels_hash = 'x' WHERE id = ?1", [id])?;
    Ok(())
}

pub(crate) fn new_identity(hash: &str, dims: usize) -> NewIdentity<'_> {
    NewIdentity {
        hash,
        provider: "ollama",
        model: "m",
        dims,
        chunking: "c",
        query_prefix: "",
        document_prefix: "",
        endpoint: None,
    }
}

pub(crate) fn unit(values: &[f32]) -> Vec<f32> {
    let norm = values.iter().map(|value| value * value).sum::<f32>().sqrt();
    values.iter().map(|value| value / norm).collect()
}

fn vector(seed: u8) -> Vec<f32> {
    unit(&(0..8).map(|idx| f32::from((seed.wrapping_mul(31) >> idx) & 3) - 1.3).collect::<Vec<_>>())
}

fn chunk(text: &str, vector: ChunkVector) -> NewChunk {
    let hash = crate::content::hash::bytes_hash(text.as_bytes());
    NewChunk { hash: *hash.first_chunk().unwrap(), is_title: false, char_start: 0, char_end: 1, vector }
}

fn hash_of(tx: &ReadTx<'_>, id: i64) -> Result<String> {
    Ok(tx.sql().query_row("SELECT content_hash FROM documents WHERE id = ?1", [id], |row| row.get(0))?)
}

use crate::store::ReadTx;

fn embed(tx: &WriteTx<'_>, identity: &Identity, id: i64, chunks: &[NewChunk]) -> Result<Written> {
    let hash = hash_of(tx, id)?;
    write_document(tx, identity, (id, &hash), chunks, false, 1)
}

fn count(tx: &ReadTx<'_>, sql: &str) -> i64 {
    tx.sql().query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn a4_15_a_deleted_document_takes_its_vectors_and_ids_are_not_reused() {
    let (_dir, store) = store();
    store
        .write(|tx| {
            let identity = create(tx, &new_identity("h", 8), 0)?;
            let id = put(tx, 1, "kerberos", "text")?;
            embed(
                tx,
                &identity,
                id,
                &[chunk("a", ChunkVector::New(vector(1))), chunk("b", ChunkVector::New(vector(2)))],
            )?;
            assert_eq!(count(tx, "SELECT count(*) FROM chunk_codes_1"), 2);
            tx.sql().execute("DELETE FROM documents WHERE id = ?1", [id])?;
            for table in
                ["chunks", "chunk_vectors", "chunked_documents", "chunk_codes_1", "chunk_codes_1_rowids"]
            {
                assert_eq!(count(tx, &format!("SELECT count(*) FROM {table}")), 0, "{table}");
            }
            assert!(put(tx, 2, "invoice", "text")? > id);
            assert_eq!(findings(tx)?, []);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a3_01_writing_a_document_again_leaves_one_vector_a_chunk() {
    let (_dir, store) = store();
    store
        .write(|tx| {
            let identity = create(tx, &new_identity("h", 8), 0)?;
            let id = put(tx, 1, "t", "text")?;
            for round in 0..3 {
                let chunks =
                    [chunk("a", ChunkVector::New(vector(round))), chunk("b", ChunkVector::New(vector(9)))];
                assert_eq!(embed(tx, &identity, id, &chunks)?, Written::Stored);
                assert_eq!(count(tx, "SELECT count(*) FROM chunk_vectors"), 2);
                assert_eq!(count(tx, "SELECT count(*) FROM chunk_codes_1"), 2);
            }
            assert_eq!(findings(tx)?, []);
            Ok(())
        })
        .unwrap();
}

#[test]
fn chunks_with_the_same_text_keep_their_vectors_when_they_move() {
    let (_dir, store) = store();
    store
        .write(|tx| {
            let identity = create(tx, &new_identity("h", 8), 0)?;
            let id = put(tx, 1, "t", "text")?;
            embed(
                tx,
                &identity,
                id,
                &[chunk("a", ChunkVector::New(vector(1))), chunk("b", ChunkVector::New(vector(2)))],
            )?;
            let known = read_document(tx, identity.id, id, 0)?.unwrap().known;
            let keep = |idx: usize| ChunkVector::Keep(known[idx].id);
            embed(
                tx,
                &identity,
                id,
                &[chunk("new", ChunkVector::New(vector(3))), chunk("b", keep(1)), chunk("a", keep(0))],
            )?;
            let after = read_document(tx, identity.id, id, 0)?.unwrap().known;
            assert_eq!([after[1].id, after[2].id], [known[1].id, known[0].id]);
            assert_eq!(findings(tx)?, []);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a1_21_a_changed_text_counts_as_stale_at_once_and_its_late_vector_is_refused() {
    let (_dir, store) = store();
    store
        .write(|tx| {
            let identity = create(tx, &new_identity("h", 8), 0)?;
            let id = put(tx, 1, "printer", "printer jam")?;
            let old = hash_of(tx, id)?;
            embed(tx, &identity, id, &[chunk("a", ChunkVector::New(vector(1)))])?;
            assert_eq!(coverage(tx)?.coverage_pct, 100.0);
            put(tx, 1, "printer", "kerberos ticket expired")?;
            assert_eq!((coverage(tx)?.embedded, coverage(tx)?.pending), (0, 1));
            assert_eq!(pending(tx, identity.id, 0)?, [id]);
            let late = write_document(tx, &identity, (id, &old), &[], false, 2)?;
            assert_eq!(late, Written::Changed);
            assert_eq!(
                count(tx, "SELECT count(*) FROM chunk_vectors"),
                1,
                "answered from until there is a new one"
            );
            assert_eq!(write_document(tx, &identity, (99, "h"), &[], false, 2)?, Written::Gone);
            Ok(())
        })
        .unwrap();
}

#[test]
fn failures_back_off_are_counted_and_can_be_retried() {
    let (_dir, store) = store();
    store
        .write(|tx| {
            let identity = create(tx, &new_identity("h", 8), 0)?;
            let id = put(tx, 1, "t", "text")?;
            let failed = |earlier| chunk("bad", ChunkVector::Failed { error: "NaN".to_owned(), earlier });
            embed(tx, &identity, id, &[chunk("a", ChunkVector::New(vector(1))), failed(0)])?;
            let now = coverage(tx)?;
            assert_eq!((now.embedded, now.failed, now.pending, now.chunks), (0, 1, 0, 1));
            assert!(pending(tx, identity.id, 2)?.is_empty(), "not before its time");
            assert_eq!(pending(tx, identity.id, 1_000_000)?, [id]);
            embed(tx, &identity, id, &[failed(11)])?;
            assert_eq!(coverage(tx)?.quarantined, 1);
            assert!(pending(tx, identity.id, i64::MAX)?.is_empty());
            assert_eq!(retry_failed(tx)?, 1);
            assert_eq!(pending(tx, identity.id, 2)?, [id]);
            assert_eq!(findings(tx)?, []);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_new_identity_takes_over_when_it_covers_as_much_and_the_old_one_is_dropped_in_slices() {
    let (_dir, store) = store();
    store
        .write(|tx| {
            let old = create(tx, &new_identity("old", 8), 0)?;
            let ids = (1..=5).map(|iid| put(tx, iid, "t", "text")).collect::<Result<Vec<_>>>()?;
            for id in &ids {
                embed(tx, &old, *id, &[chunk("a", ChunkVector::New(vector(1)))])?;
            }
            let new = create(tx, &new_identity("new", 16), 0)?;
            assert_eq!((old.state, new.state), (IdentityState::Active, IdentityState::Building));
            for (idx, id) in ids.iter().enumerate() {
                assert!(!settle(tx, &new, 1)?);
                assert_eq!(active(tx)?.unwrap().id, old.id);
                assert_eq!(coverage(tx)?.building.unwrap().coverage_pct, idx as f64 * 20.0);
                embed(tx, &new, *id, &[chunk("a", ChunkVector::New(vec![0.25; 16]))])?;
            }
            assert!(settle(tx, &new, 1)?);
            assert_eq!(active(tx)?.unwrap().id, new.id);
            let mut slices = 0;
            while drop_retired(tx, 2)? {
                slices += 1;
            }
            assert!(slices >= 5, "{slices}");
            assert_eq!(count(tx, "SELECT count(*) FROM chunks"), 5);
            assert_eq!(count(tx, "SELECT count(*) FROM embedding_identities"), 1);
            assert_eq!(count(tx, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'chunk_codes_1%'"), 0);
            assert_eq!(findings(tx)?, []);
            // And back: the old configuration is a new identity.
            let back = create(tx, &new_identity("old", 8), 2)?;
            assert_ne!(back.id, old.id);
            assert_eq!(retire_other_builds(tx, new.id, 3)?, 1);
            Ok(())
        })
        .unwrap();
}

#[test]
fn texts_that_cannot_be_embedded_do_not_keep_the_old_index_for_ever() {
    let (_dir, store) = store();
    store
        .write(|tx| {
            let old = create(tx, &new_identity("old", 8), 0)?;
            let ids = (1..=3).map(|iid| put(tx, iid, "t", "text")).collect::<Result<Vec<_>>>()?;
            for id in &ids {
                embed(tx, &old, *id, &[chunk("a", ChunkVector::New(vector(1)))])?;
            }
            let new = create(tx, &new_identity("new", 8), 0)?;
            embed(tx, &new, ids[0], &[chunk("a", ChunkVector::New(vector(1)))])?;
            embed(tx, &new, ids[1], &[chunk("a", ChunkVector::New(vector(1)))])?;
            assert!(!settle(tx, &new, 1)?, "one document was never tried");
            embed(
                tx,
                &new,
                ids[2],
                &[chunk("a", ChunkVector::Failed { error: "no".to_owned(), earlier: 0 })],
            )?;
            assert!(settle(tx, &new, 1)?);
            Ok(())
        })
        .unwrap();
}

#[test]
fn repair_clears_every_finding_and_queues_what_is_lost() {
    let (_dir, store) = store();
    store
        .write(|tx| {
            let identity = create(tx, &new_identity("h", 8), 0)?;
            let ids = (1..=6).map(|iid| put(tx, iid, "t", "text")).collect::<Result<Vec<_>>>()?;
            for id in &ids {
                embed(tx, &identity, *id, &[chunk("a", ChunkVector::New(vector(1)))])?;
            }
            for sql in [
                "DELETE FROM chunk_vectors WHERE chunk_id = 1",
                "DELETE FROM chunk_codes_1 WHERE chunk_id = 2",
                "INSERT INTO chunk_codes_1(chunk_id, document_id, code) VALUES (99, 1, vec_bit(zeroblob(8)))",
                "UPDATE chunk_vectors SET vector = x'0000' WHERE chunk_id = 3",
                "DELETE FROM chunked_documents WHERE document_id = 4",
                "UPDATE chunked_documents SET content_hash = 'other' WHERE document_id = 5",
            ] {
                tx.sql().execute(sql, [])?;
            }
            let names: Vec<_> =
                findings(tx)?.into_iter().map(|finding| (finding.check, finding.count)).collect();
            assert_eq!(
                names,
                [
                    ("vectors_missing", 1),
                    ("vectors_wrong_dimension", 1),
                    ("chunks_orphaned", 1),
                    ("embeddings_stale", 1),
                    ("codes_missing", 1),
                    ("codes_orphaned", 1),
                ]
            );
            let repaired = repair(tx)?;
            assert_eq!((repaired.orphaned_embeddings_deleted, repaired.stale_embeddings_cleared), (2, 3));
            assert_eq!(findings(tx)?, []);
            assert_eq!(pending(tx, identity.id, 0)?, [ids[0], ids[2], ids[3], ids[4]]);
            assert_eq!(repair(tx)?.stale_embeddings_cleared, 0);
            Ok(())
        })
        .unwrap();
}

#[test]
fn questions_are_remembered_within_a_bound() {
    let (_dir, store) = store();
    store
        .write(|tx| {
            let identity = create(tx, &new_identity("h", 8), 0)?;
            for n in 0..MAX_CACHED_QUERIES + 5 {
                remember_query(tx, identity.id, &format!("question {n}"), &[n as f32], n)?;
            }
            assert_eq!(count(tx, "SELECT count(*) FROM query_embeddings"), MAX_CACHED_QUERIES);
            assert_eq!(cached_query(tx, identity.id, "question 4")?, None);
            assert_eq!(cached_query(tx, identity.id, "question 5")?, Some(vec![5.0]));
            assert_eq!(cached_query(tx, identity.id + 1, "question 5")?, None);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a3_06_the_database_does_not_grow_with_re_embedding() {
    let (_dir, store) = store();
    let pages = |tx: &ReadTx<'_>| {
        count(tx, "SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count")
    };
    store
        .write(|tx| {
            let identity = create(tx, &new_identity("h", 384), 0)?;
            let ids = (1..=1_500).map(|iid| put(tx, iid, "t", "text")).collect::<Result<Vec<_>>>()?;
            let all = |tx: &WriteTx<'_>, ids: &[i64]| {
                ids.iter().try_for_each(|id| {
                    embed(tx, &identity, *id, &[chunk("a", ChunkVector::New(vec![0.051; 384]))]).map(drop)
                })
            };
            all(tx, &ids)?;
            tx.sql().execute("DELETE FROM documents WHERE id > ?1", [ids[49]])?;
            let before = pages(tx);
            for _ in 0..20 {
                all(tx, &ids[..50])?;
            }
            assert!(pages(tx) <= before + 64, "{before} pages grew to {}", pages(tx));
            Ok(())
        })
        .unwrap();
}
