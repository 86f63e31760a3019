//! Functions that SQLite lacks, for every connection: `lore_bm25`, a ranking function of the
//! full-text index, `lore_allow`, membership in a bitset, and `lore_ids`, the bitset of a column
//! of ids: handing a row out of SQLite for each of them takes twice as long.
//!
//! `lore_bm25(documents_fts, parameters)` gives the scores of FTS5's own `bm25()` where all
//! columns weigh 1. Where they do not, a word of a column counts its weight in the length of a
//! document as it does among the hits: a title of weight 3 is one that is written three times.
//! (`bm25()` weights the hits alone, so that what has little but a title is scored as if it were
//! short and full of hits. After Robertson, Zaragoza and Taylor, "Simple BM25 extension to
//! multiple weighted fields", 2004; measured in docs/quality.md.) It is
//! faster because it reads the documents' lengths from the blobs of `document_lengths`, 1,024
//! a row, instead of one B-tree row a hit, and because the caller may pass the document
//! frequencies it knows already. `parameters` is a blob of little-endian `f64`: four column
//! weights, the average length to compare with (0: that of the whole index), then for each
//! phrase of the expression its document frequency and a factor. When the number of phrases
//! does not fit, frequencies are counted as `bm25()` counts them and every factor is 1. A
//! length that is missing (0 in every column) or saturated (65,535) is asked of FTS5.
//!
//! `lore_documents(documents_fts)` is the number of documents in the index, and
//! `lore_tokens(documents_fts, column)` that of the words in a column, or with -1 in all.

use std::ffi::{c_int, c_void};

use rusqlite::Connection;
use rusqlite::ffi;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};

use crate::content::filter::Bitset;
use crate::error::{Error, Result};

/// Columns of the full-text index.
pub(super) const COLUMNS: usize = 4;

/// Documents in one row of `document_lengths`.
const BLOCK: i64 = 1024;

/// BM25's constants, as in FTS5.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// The part of a common word's inverse document frequency below which it does not fall.
pub const IDF_FLOOR: f64 = 1e-6;

/// Inverse document frequency as FTS5 computes it.
pub fn idf(documents: f64, frequency: f64) -> f64 {
    let idf = ((documents - frequency + 0.5) / (frequency + 0.5)).ln();
    if idf > 0.0 { idf } else { IDF_FLOOR }
}

/// The greatest score that one phrase can add, as a multiple of its [`idf`].
pub const SATURATION: f64 = K1 + 1.0;

/// Encodes the second argument of `lore_bm25`.
pub(super) fn parameters(
    weights: &[f64; COLUMNS],
    average_length: Option<f64>,
    phrases: Option<&[(f64, f64)]>,
) -> Vec<u8> {
    let phrases = phrases.unwrap_or_default().iter().flat_map(|(frequency, factor)| [*frequency, *factor]);
    let average_length = std::iter::once(average_length.unwrap_or(0.0));
    weights.iter().copied().chain(average_length).chain(phrases).flat_map(f64::to_le_bytes).collect()
}

/// Registers the functions on a connection.
///
/// # Errors
/// When SQLite refuses a registration or is built without FTS5.
pub(super) fn register(connection: &Connection) -> Result<()> {
    connection.create_scalar_function(
        "lore_allow",
        2,
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS,
        |context| {
            let id: i64 = context.get(0)?;
            let Ok(bits) = context.get_raw(1).as_blob() else { return Ok(false) };
            let Ok(id) = usize::try_from(id) else { return Ok(false) };
            Ok(bits.get(id / 8).is_some_and(|byte| byte >> (id % 8) & 1 == 1))
        },
    )?;
    connection.create_aggregate_function(
        "lore_ids",
        1,
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS,
        Ids,
    )?;
    register_auxiliary(connection)
}

/// `lore_ids`.
struct Ids;

impl Aggregate<Bitset, Vec<u8>> for Ids {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Bitset> {
        Ok(Bitset::default())
    }

    fn step(&self, context: &mut Context<'_>, set: &mut Bitset) -> rusqlite::Result<()> {
        set.insert(context.get(0)?);
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, set: Option<Bitset>) -> rusqlite::Result<Vec<u8>> {
        Ok(set.map(Bitset::into_bytes).unwrap_or_default())
    }
}

#[expect(unsafe_code, reason = "auxiliary functions of FTS5 exist in C only")]
fn register_auxiliary(connection: &Connection) -> Result<()> {
    let functions: [(&std::ffi::CStr, ffi::fts5_extension_function); 3] =
        [(c"lore_bm25", Some(bm25)), (c"lore_documents", Some(documents)), (c"lore_tokens", Some(tokens))];
    // SAFETY: the handle is that of an open connection and outlives this block. `SELECT
    // fts5(?1)` with a pointer of type "fts5_api_ptr" is the documented way to the table of
    // FTS5's functions; `api` lives until the statement is finalized. The table itself lives
    // as long as the connection.
    unsafe {
        let db = connection.handle();
        let mut api: *mut ffi::fts5_api = std::ptr::null_mut();
        let mut statement: *mut ffi::sqlite3_stmt = std::ptr::null_mut();
        let code = ffi::sqlite3_prepare_v2(
            db,
            c"SELECT fts5(?1)".as_ptr(),
            -1,
            &raw mut statement,
            std::ptr::null_mut(),
        );
        if code == ffi::SQLITE_OK {
            ffi::sqlite3_bind_pointer(
                statement,
                1,
                (&raw mut api).cast::<c_void>(),
                c"fts5_api_ptr".as_ptr(),
                None,
            );
            ffi::sqlite3_step(statement);
        }
        ffi::sqlite3_finalize(statement);
        let create = if api.is_null() { None } else { (*api).xCreateFunction };
        let Some(create) = create else {
            return Err(Error::internal("SQLite is built without FTS5"));
        };
        for (name, function) in functions {
            let code = create(api, name.as_ptr(), std::ptr::null_mut(), function, None);
            if code != ffi::SQLITE_OK {
                return Err(Error::internal(format!("register {name:?} with SQLite: code {code}")));
            }
        }
    }
    Ok(())
}

/// What one execution of a query needs to score its hits; kept by FTS5 with the cursor.
struct Scoring {
    weights: [f64; COLUMNS],
    /// Of each phrase: inverse document frequency times factor.
    phrases: Vec<f64>,
    average_length: f64,
    lengths: Lengths,
}

/// The lengths of the 1,024 documents around the last one: hits come in the order of ids.
struct Lengths {
    /// `SELECT lengths FROM document_lengths WHERE block = ?1`; null when it cannot be prepared.
    statement: *mut ffi::sqlite3_stmt,
    block: i64,
    bytes: Vec<u8>,
}

#[expect(unsafe_code, reason = "the statement is a C object")]
impl Drop for Lengths {
    fn drop(&mut self) {
        // SAFETY: the statement was prepared by `Lengths::new` and is finalized once; null is
        // allowed. FTS5 drops this with the cursor, before the connection closes.
        unsafe {
            ffi::sqlite3_finalize(self.statement);
        }
    }
}

#[expect(unsafe_code, reason = "the statement is a C object")]
impl Lengths {
    fn new(db: *mut ffi::sqlite3) -> Self {
        let mut statement: *mut ffi::sqlite3_stmt = std::ptr::null_mut();
        // SAFETY: `db` is the connection that runs the query. When the statement cannot be
        // prepared it stays null, and every length is asked of FTS5.
        unsafe {
            ffi::sqlite3_prepare_v2(
                db,
                c"SELECT lengths FROM main.document_lengths WHERE block = ?1".as_ptr(),
                -1,
                &raw mut statement,
                std::ptr::null_mut(),
            );
        }
        Self { statement, block: -1, bytes: Vec::new() }
    }

    /// Weighted tokens of a document; none when they are not known here.
    fn of(&mut self, id: i64, weights: &[f64; COLUMNS]) -> Option<f64> {
        let block = id.div_euclid(BLOCK);
        if block != self.block {
            self.load(block);
        }
        let at = usize::try_from(id.rem_euclid(BLOCK)).ok()? * 2 * COLUMNS;
        let (counts, _) = self.bytes.get(at..at + 2 * COLUMNS)?.as_chunks::<2>();
        let (mut length, mut known) = (0.0, false);
        for (count, weight) in counts.iter().zip(weights) {
            let count = u16::from_le_bytes(*count);
            if count == u16::MAX {
                return None;
            }
            known |= count != 0;
            length += weight * f64::from(count);
        }
        known.then_some(length)
    }

    fn load(&mut self, block: i64) {
        self.block = block;
        self.bytes.clear();
        if self.statement.is_null() {
            return;
        }
        // SAFETY: the statement is valid. The blob is copied before the statement is reset.
        unsafe {
            ffi::sqlite3_bind_int64(self.statement, 1, block);
            if ffi::sqlite3_step(self.statement) == ffi::SQLITE_ROW {
                let data = ffi::sqlite3_column_blob(self.statement, 0).cast::<u8>();
                let size = usize::try_from(ffi::sqlite3_column_bytes(self.statement, 0)).unwrap_or(0);
                if !data.is_null() {
                    self.bytes.extend_from_slice(std::slice::from_raw_parts(data, size));
                }
            }
            ffi::sqlite3_reset(self.statement);
        }
    }
}

/// Calls a function of FTS5's table, or fails with SQLITE_MISUSE when it is not there.
macro_rules! call {
    ($api:expr, $name:ident ( $($argument:expr),* )) => {
        match (*$api).$name {
            Some(function) => function($($argument),*),
            None => return Err(ffi::SQLITE_MISUSE),
        }
    };
}

/// Fails with a code that is not SQLITE_OK.
macro_rules! check {
    ($code:expr) => {{
        let code: c_int = $code;
        if code != ffi::SQLITE_OK {
            return Err(code);
        }
    }};
}

#[expect(unsafe_code, reason = "called by FTS5")]
unsafe extern "C" fn bm25(
    api: *const ffi::Fts5ExtensionApi,
    fts: *mut ffi::Fts5Context,
    context: *mut ffi::sqlite3_context,
    count: c_int,
    values: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: FTS5 passes valid pointers for the duration of the call.
    unsafe {
        let parameters = if count > 0 { *values } else { std::ptr::null_mut() };
        match score(api, fts, context, parameters) {
            Ok(score) => ffi::sqlite3_result_double(context, score),
            Err(code) => ffi::sqlite3_result_error_code(context, code),
        }
    }
}

#[expect(unsafe_code, reason = "called by FTS5")]
unsafe extern "C" fn documents(
    api: *const ffi::Fts5ExtensionApi,
    fts: *mut ffi::Fts5Context,
    context: *mut ffi::sqlite3_context,
    _count: c_int,
    _values: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: FTS5 passes valid pointers for the duration of the call.
    unsafe {
        match row_count(api, fts) {
            Ok(rows) => ffi::sqlite3_result_int64(context, rows),
            Err(code) => ffi::sqlite3_result_error_code(context, code),
        }
    }
}

#[expect(unsafe_code, reason = "called by FTS5")]
unsafe extern "C" fn tokens(
    api: *const ffi::Fts5ExtensionApi,
    fts: *mut ffi::Fts5Context,
    context: *mut ffi::sqlite3_context,
    count: c_int,
    values: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: FTS5 passes valid pointers for the duration of the call.
    unsafe {
        let column = if count > 0 { ffi::sqlite3_value_int(*values) } else { -1 };
        match token_count(api, fts, column) {
            Ok(tokens) => ffi::sqlite3_result_int64(context, tokens),
            Err(code) => ffi::sqlite3_result_error_code(context, code),
        }
    }
}

#[expect(unsafe_code, reason = "calls FTS5")]
unsafe fn token_count(
    api: *const ffi::Fts5ExtensionApi,
    fts: *mut ffi::Fts5Context,
    column: c_int,
) -> Result<i64, c_int> {
    let mut tokens = 0;
    // SAFETY: the caller passes FTS5's own pointers on.
    unsafe { check!(call!(api, xColumnTotalSize(fts, column, &raw mut tokens))) };
    Ok(tokens)
}

#[expect(unsafe_code, reason = "calls FTS5")]
unsafe fn row_count(api: *const ffi::Fts5ExtensionApi, fts: *mut ffi::Fts5Context) -> Result<i64, c_int> {
    let mut rows = 0;
    // SAFETY: the caller passes FTS5's own pointers on.
    unsafe { check!(call!(api, xRowCount(fts, &raw mut rows))) };
    Ok(rows)
}

/// The score of the row that the cursor stands on: smaller is better, as with `bm25()`.
#[expect(unsafe_code, reason = "calls FTS5")]
unsafe fn score(
    api: *const ffi::Fts5ExtensionApi,
    fts: *mut ffi::Fts5Context,
    context: *mut ffi::sqlite3_context,
    parameters: *mut ffi::sqlite3_value,
) -> Result<f64, c_int> {
    // SAFETY: the caller passes FTS5's own pointers on. Auxiliary data of this function is
    // only ever set by `prepare`, to a boxed `Scoring`.
    unsafe {
        let mut scoring = call!(api, xGetAuxdata(fts, 0)).cast::<Scoring>();
        if scoring.is_null() {
            scoring = prepare(api, fts, context, parameters)?;
        }
        let scoring = &mut *scoring;
        let length = match scoring.lengths.of(call!(api, xRowid(fts)), &scoring.weights) {
            Some(length) => length,
            None => {
                let mut length = 0.0;
                for (column, weight) in (0..).zip(&scoring.weights) {
                    let mut tokens: c_int = 0;
                    check!(call!(api, xColumnSize(fts, column, &raw mut tokens)));
                    length += weight * f64::from(tokens);
                }
                length
            }
        };
        let norm = K1 * (1.0 - B + B * length / scoring.average_length);
        let mut total = 0.0;
        for (phrase, idf) in (0..).zip(&scoring.phrases) {
            let mut frequency = 0.0;
            let mut hits = ffi::Fts5PhraseIter { a: std::ptr::null(), b: std::ptr::null() };
            let (mut column, mut offset): (c_int, c_int) = (0, 0);
            check!(call!(api, xPhraseFirst(fts, phrase, &raw mut hits, &raw mut column, &raw mut offset)));
            while column >= 0 {
                let weight = usize::try_from(column).ok().and_then(|column| scoring.weights.get(column));
                frequency += weight.copied().unwrap_or(1.0);
                call!(api, xPhraseNext(fts, &raw mut hits, &raw mut column, &raw mut offset));
            }
            if frequency > 0.0 {
                total += idf * (frequency * SATURATION) / (frequency + norm);
            }
        }
        Ok(-total)
    }
}

/// Reads the parameters and what the whole query shares; hands it to FTS5.
#[expect(unsafe_code, reason = "calls FTS5")]
unsafe fn prepare(
    api: *const ffi::Fts5ExtensionApi,
    fts: *mut ffi::Fts5Context,
    context: *mut ffi::sqlite3_context,
    parameters: *mut ffi::sqlite3_value,
) -> Result<*mut Scoring, c_int> {
    // SAFETY: the caller passes FTS5's own pointers on. The blob is copied at once. FTS5 owns
    // the box from xSetAuxdata on and calls `release` exactly once, also when it fails.
    unsafe {
        let numbers = if parameters.is_null() { Vec::new() } else { blob_numbers(parameters) };
        let (weights, known) = numbers
            .split_first_chunk::<COLUMNS>()
            .map_or(([1.0; COLUMNS], [].as_slice()), |(weights, rest)| (*weights, rest));
        let (wanted_average, known) =
            known.split_first().map_or((0.0, known), |(first, rest)| (*first, rest));
        let rows = row_count(api, fts)?;
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let rows_number = rows as f64;
        let mut own_length = 0.0;
        for (column, weight) in (0..).zip(weights) {
            #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
            let tokens = token_count(api, fts, column)? as f64;
            own_length += weight * tokens;
        }
        let own_average = own_length / rows_number.max(1.0);
        let average_length = if wanted_average > 0.0 { wanted_average } else { own_average };
        let phrase_count = call!(api, xPhraseCount(fts));
        let (pairs, rest) = known.as_chunks::<2>();
        let fits = rest.is_empty() && c_int::try_from(pairs.len()) == Ok(phrase_count);
        let mut phrases = Vec::new();
        for phrase in 0..phrase_count {
            let given = usize::try_from(phrase).ok().filter(|_| fits).and_then(|phrase| pairs.get(phrase));
            phrases.push(match given {
                Some([frequency, factor]) => idf(rows_number, *frequency) * factor,
                None => {
                    let mut hits: i64 = 0;
                    check!(call!(
                        api,
                        xQueryPhrase(fts, phrase, (&raw mut hits).cast::<c_void>(), Some(count_hit))
                    ));
                    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
                    let hits = hits as f64;
                    idf(rows_number, hits)
                }
            });
        }
        let lengths = Lengths::new(ffi::sqlite3_context_db_handle(context));
        let scoring = Box::into_raw(Box::new(Scoring {
            weights,
            phrases,
            average_length: if average_length > 0.0 { average_length } else { 1.0 },
            lengths,
        }));
        check!(call!(api, xSetAuxdata(fts, scoring.cast::<c_void>(), Some(release))));
        Ok(scoring)
    }
}

#[expect(unsafe_code, reason = "reads an SQLite value")]
unsafe fn blob_numbers(value: *mut ffi::sqlite3_value) -> Vec<f64> {
    // SAFETY: the value is an argument of the running call; data and size belong together.
    unsafe {
        let data = ffi::sqlite3_value_blob(value).cast::<u8>();
        let size = usize::try_from(ffi::sqlite3_value_bytes(value)).unwrap_or(0);
        if data.is_null() {
            return Vec::new();
        }
        let (numbers, _) = std::slice::from_raw_parts(data, size).as_chunks::<8>();
        numbers.iter().copied().map(f64::from_le_bytes).collect()
    }
}

#[expect(unsafe_code, reason = "called by FTS5")]
unsafe extern "C" fn count_hit(
    _api: *const ffi::Fts5ExtensionApi,
    _fts: *mut ffi::Fts5Context,
    counter: *mut c_void,
) -> c_int {
    // SAFETY: `counter` is the i64 that `prepare` passed to xQueryPhrase.
    unsafe { *counter.cast::<i64>() += 1 };
    ffi::SQLITE_OK
}

#[expect(unsafe_code, reason = "called by FTS5")]
unsafe extern "C" fn release(scoring: *mut c_void) {
    // SAFETY: `scoring` is the box that `prepare` gave away, and FTS5 releases it once.
    drop(unsafe { Box::from_raw(scoring.cast::<Scoring>()) });
}

#[cfg(test)]
mod tests;
