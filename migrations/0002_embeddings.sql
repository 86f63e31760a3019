-- Chunks of documents and their vectors.
--
-- Vectors belong to an identity: provider, model, dimensions, chunking and prefixes. Those
-- of different identities never mix. A changed identity builds its index beside the old
-- one, which is answered from until the new one covers what it covered.
--
-- A document is written whole: its chunks, their vectors or errors, and the row that says
-- of which text they are, in one transaction. Vectors are kept as half-precision floats;
-- what is scanned are their sign bits, which live in one sqlite-vec table per identity,
-- chunk_codes_<identity>, made with its trigger when the identity is: its width depends
-- on the model.

CREATE TABLE embedding_identities (
  id               INTEGER PRIMARY KEY AUTOINCREMENT,
  hash             TEXT NOT NULL,            -- SHA-256 of everything below but the dimensions, the endpoint and the state
  provider         TEXT NOT NULL CHECK (provider IN ('builtin', 'ollama', 'openai', 'tei')),
  model            TEXT NOT NULL,
  dims             INTEGER NOT NULL CHECK (dims BETWEEN 1 AND 8192),
  chunking         TEXT NOT NULL,            -- name and numbers of the way texts are cut
  query_prefix     TEXT NOT NULL DEFAULT '',
  document_prefix  TEXT NOT NULL DEFAULT '',
  endpoint         TEXT,                     -- where queries are embedded while this is answered from; holds no secret
  state            TEXT NOT NULL CHECK (state IN ('building', 'active', 'retired')),
  created_at       INTEGER NOT NULL,
  activated_at     INTEGER,
  retired_at       INTEGER
) STRICT;
CREATE UNIQUE INDEX idx_identities_live ON embedding_identities(hash, dims) WHERE state <> 'retired';
CREATE UNIQUE INDEX idx_identities_active ON embedding_identities(state) WHERE state = 'active';

-- Which text of a document its chunks are of.
CREATE TABLE chunked_documents (
  document_id   INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
  identity_id   INTEGER NOT NULL REFERENCES embedding_identities(id) ON DELETE CASCADE,
  content_hash  TEXT NOT NULL,               -- the document's, when it was cut
  chunk_count   INTEGER NOT NULL CHECK (chunk_count >= 0),
  is_truncated  INTEGER NOT NULL DEFAULT 0 CHECK (is_truncated IN (0, 1)), -- the end of a very long text has no chunk
  is_stale      INTEGER NOT NULL DEFAULT 0 CHECK (is_stale IN (0, 1)),     -- the text changed since, or a chunk is to be made again
  embedded_at   INTEGER NOT NULL,
  PRIMARY KEY (document_id, identity_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_chunked_identity ON chunked_documents(identity_id, is_stale);

CREATE TABLE chunks (
  id               INTEGER PRIMARY KEY AUTOINCREMENT,
  document_id      INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
  identity_id      INTEGER NOT NULL REFERENCES embedding_identities(id) ON DELETE CASCADE,
  ordinal          INTEGER NOT NULL,         -- order inside the document
  is_title         INTEGER NOT NULL CHECK (is_title IN (0, 1)), -- the title alone
  char_start       INTEGER NOT NULL,         -- characters of content_text
  char_end         INTEGER NOT NULL CHECK (char_end >= char_start),
  content_hash     BLOB NOT NULL CHECK (length(content_hash) = 16), -- SHA-256 of the text that is embedded, cut
  attempt_count    INTEGER NOT NULL DEFAULT 0 CHECK (attempt_count >= 0), -- failures; 0: the chunk has its vector
  last_attempt_at  INTEGER,
  last_error       TEXT,
  next_attempt_at  INTEGER,
  quarantined_at   INTEGER,
  CHECK ((attempt_count = 0) = (last_error IS NULL)),
  UNIQUE (document_id, identity_id, ordinal)
) STRICT;
CREATE INDEX idx_chunks_failing ON chunks(identity_id, document_id, next_attempt_at, quarantined_at) WHERE last_error IS NOT NULL;

CREATE TABLE chunk_vectors (
  chunk_id  INTEGER PRIMARY KEY REFERENCES chunks(id) ON DELETE CASCADE,
  vector    BLOB NOT NULL                    -- unit length, half-precision floats, little-endian
) STRICT;

-- A document whose text changed keeps its old vectors until it is embedded again, and
-- counts as stale at once.
CREATE TRIGGER documents_stale_au AFTER UPDATE OF content_hash ON documents
WHEN old.content_hash <> new.content_hash
BEGIN
  UPDATE chunked_documents SET is_stale = 1 WHERE document_id = new.id;
END;

-- How each document stands, in one row per identity.
CREATE VIEW embedding_metadata AS
  SELECT c.document_id, i.model, i.dims, c.content_hash, c.embedded_at AS created_at, i.id AS identity_id,
         i.state AS identity_state, c.chunk_count, c.is_stale,
         (SELECT max(f.last_error) FROM chunks f WHERE f.identity_id = c.identity_id AND f.document_id = c.document_id AND f.last_error IS NOT NULL) AS last_error,
         (SELECT coalesce(max(f.attempt_count), 0) FROM chunks f WHERE f.identity_id = c.identity_id AND f.document_id = c.document_id AND f.last_error IS NOT NULL) AS attempt_count,
         (SELECT max(f.last_attempt_at) FROM chunks f WHERE f.identity_id = c.identity_id AND f.document_id = c.document_id AND f.last_error IS NOT NULL) AS last_attempt_at
    FROM chunked_documents c JOIN embedding_identities i ON i.id = c.identity_id;

-- Vectors of questions asked before: bounded, oldest use goes first.
CREATE TABLE query_embeddings (
  identity_id  INTEGER NOT NULL REFERENCES embedding_identities(id) ON DELETE CASCADE,
  text_hash    BLOB NOT NULL,
  vector       BLOB NOT NULL,                -- unit length, single-precision floats, little-endian
  used_at      INTEGER NOT NULL,
  PRIMARY KEY (identity_id, text_hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_query_embeddings_used ON query_embeddings(used_at);

-- Services that failed lately, so that the next process knows before it asks.
CREATE TABLE circuit_breakers (
  name        TEXT PRIMARY KEY,
  failures    INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
  open_until  INTEGER,                       -- NULL: closed
  last_error  TEXT,
  changed_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
