-- Entities as GitLab reports them, the queues between the stages, the documents
-- made of them, the full-text index, and the rows of the runner itself.
--
-- Times are integer milliseconds since the Unix epoch, UTC. Ids of documents and of
-- everything that a derived row can point at are AUTOINCREMENT: an id is never reused,
-- so a stale derived row can never attach itself to new text.

-- ---------------------------------------------------------------- entities

CREATE TABLE projects (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  source_name    TEXT NOT NULL,              -- [sources.NAME] of the configuration
  gitlab_id      INTEGER,                    -- NULL: an export archive does not tell it
  path           TEXT NOT NULL,              -- full path with namespace
  name           TEXT,
  web_url        TEXT,
  archived       INTEGER NOT NULL DEFAULT 0 CHECK (archived IN (0, 1)),
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,           -- when this row changed here
  UNIQUE (source_name, path)
) STRICT;
CREATE UNIQUE INDEX idx_projects_gitlab ON projects(source_name, gitlab_id) WHERE gitlab_id IS NOT NULL;
CREATE INDEX idx_projects_path ON projects(path);

CREATE TABLE raw_payloads (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  project_id     INTEGER NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
  resource_type  TEXT NOT NULL CHECK (resource_type IN ('issue', 'merge_request', 'discussion')),
  resource_key   TEXT NOT NULL,              -- iid, or "Issue/12/<discussion id>"
  encoding       TEXT NOT NULL CHECK (encoding IN ('zstd', 'identity')),
  payload        BLOB NOT NULL,
  payload_hash   BLOB NOT NULL,              -- SHA-256 of the payload before encoding
  fetched_at     INTEGER NOT NULL,
  UNIQUE (project_id, resource_type, resource_key)
) STRICT;

CREATE TABLE labels (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  project_id     INTEGER NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
  gitlab_id      INTEGER,
  name           TEXT NOT NULL,
  color          TEXT,
  description    TEXT,
  UNIQUE (project_id, name)
) STRICT;

CREATE TABLE milestones (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  project_id     INTEGER NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
  gitlab_id      INTEGER NOT NULL,
  iid            INTEGER,
  title          TEXT NOT NULL,
  description    TEXT,
  state          TEXT,
  due_date       TEXT,
  web_url        TEXT,
  UNIQUE (project_id, gitlab_id)
) STRICT;

CREATE TABLE issues (
  id                  INTEGER PRIMARY KEY AUTOINCREMENT,
  project_id          INTEGER NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
  gitlab_id           INTEGER NOT NULL,
  iid                 INTEGER NOT NULL,
  state               TEXT NOT NULL,         -- open enum: opened, closed, …
  issue_type          TEXT NOT NULL DEFAULT 'issue',
  confidential        INTEGER NOT NULL DEFAULT 0 CHECK (confidential IN (0, 1)),
  author_username     TEXT,
  author_name         TEXT,
  assignee_usernames  TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(assignee_usernames)),
  label_names         TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(label_names)),
  milestone_title     TEXT,
  web_url             TEXT,
  created_at          INTEGER NOT NULL,
  updated_at          INTEGER NOT NULL,
  closed_at           INTEGER,
  due_date            TEXT,
  user_notes_count    INTEGER,
  moved_to_gitlab_id  INTEGER,
  content_hash        BLOB NOT NULL,         -- SHA-256 of the record without updated_at
  synced_at           INTEGER NOT NULL,
  title               TEXT NOT NULL,
  description         TEXT,
  UNIQUE (project_id, iid)
) STRICT;
CREATE INDEX idx_issues_gitlab ON issues(project_id, gitlab_id);
CREATE INDEX idx_issues_updated ON issues(project_id, updated_at);

CREATE TABLE merge_requests (
  id                  INTEGER PRIMARY KEY AUTOINCREMENT,
  project_id          INTEGER NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
  gitlab_id           INTEGER NOT NULL,
  iid                 INTEGER NOT NULL,
  state               TEXT NOT NULL,         -- open enum: opened, closed, merged, locked, …
  draft               INTEGER NOT NULL DEFAULT 0 CHECK (draft IN (0, 1)),
  author_username     TEXT,
  author_name         TEXT,
  assignee_usernames  TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(assignee_usernames)),
  label_names         TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(label_names)),
  milestone_title     TEXT,
  source_branch       TEXT,
  target_branch       TEXT,
  web_url             TEXT,
  created_at          INTEGER NOT NULL,
  updated_at          INTEGER NOT NULL,
  merged_at           INTEGER,
  closed_at           INTEGER,
  user_notes_count    INTEGER,
  content_hash        BLOB NOT NULL,
  synced_at           INTEGER NOT NULL,
  title               TEXT NOT NULL,
  description         TEXT,
  UNIQUE (project_id, iid)
) STRICT;
CREATE INDEX idx_merge_requests_gitlab ON merge_requests(project_id, gitlab_id);
CREATE INDEX idx_merge_requests_updated ON merge_requests(project_id, updated_at);

CREATE TABLE discussions (
  id                    INTEGER PRIMARY KEY AUTOINCREMENT,
  project_id            INTEGER NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
  noteable_type         TEXT NOT NULL CHECK (noteable_type IN ('Issue', 'MergeRequest')),
  issue_id              INTEGER REFERENCES issues(id) ON DELETE CASCADE,
  merge_request_id      INTEGER REFERENCES merge_requests(id) ON DELETE CASCADE,
  gitlab_discussion_id  TEXT NOT NULL,
  individual_note       INTEGER NOT NULL DEFAULT 0 CHECK (individual_note IN (0, 1)),
  resolvable            INTEGER NOT NULL DEFAULT 0 CHECK (resolvable IN (0, 1)),
  resolved              INTEGER NOT NULL DEFAULT 0 CHECK (resolved IN (0, 1)),
  first_note_at         INTEGER,
  last_note_at          INTEGER,
  content_hash          BLOB NOT NULL,
  CHECK ((noteable_type = 'Issue') = (issue_id IS NOT NULL)),
  CHECK ((noteable_type = 'MergeRequest') = (merge_request_id IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX idx_discussions_issue ON discussions(issue_id, gitlab_discussion_id) WHERE issue_id IS NOT NULL;
CREATE UNIQUE INDEX idx_discussions_mr ON discussions(merge_request_id, gitlab_discussion_id) WHERE merge_request_id IS NOT NULL;
CREATE INDEX idx_discussions_project ON discussions(project_id);

CREATE TABLE notes (
  id                 INTEGER PRIMARY KEY AUTOINCREMENT,
  discussion_id      INTEGER NOT NULL REFERENCES discussions(id) ON DELETE CASCADE,
  gitlab_id          INTEGER NOT NULL,
  position           INTEGER NOT NULL,       -- order inside the discussion, from 0
  note_type          TEXT,                   -- NULL, DiscussionNote, DiffNote, … (open enum)
  is_system          INTEGER NOT NULL DEFAULT 0 CHECK (is_system IN (0, 1)),
  is_internal        INTEGER NOT NULL DEFAULT 0 CHECK (is_internal IN (0, 1)),
  author_username    TEXT,
  author_name        TEXT,
  created_at         INTEGER NOT NULL,
  updated_at         INTEGER NOT NULL,
  resolvable         INTEGER NOT NULL DEFAULT 0 CHECK (resolvable IN (0, 1)),
  resolved           INTEGER NOT NULL DEFAULT 0 CHECK (resolved IN (0, 1)),
  resolved_by        TEXT,
  position_type      TEXT,
  old_path           TEXT,
  new_path           TEXT,
  old_line           INTEGER,
  new_line           INTEGER,
  body               TEXT NOT NULL,
  UNIQUE (discussion_id, position)
) STRICT;

-- Where each stream of each project stands. Committed with the rows it speaks of.
CREATE TABLE cursors (
  project_id     INTEGER NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
  stream         TEXT NOT NULL CHECK (stream IN ('issues', 'merge_requests', 'archive')),
  updated_at     INTEGER,                    -- greatest updated_at stored
  tie_id         INTEGER,                    -- GitLab id of the row that holds it
  fingerprint    TEXT,                       -- archives: size, mtime and digest of the file read
  saved_at       INTEGER NOT NULL,
  PRIMARY KEY (project_id, stream)
) STRICT, WITHOUT ROWID;

-- Streams that could not be read, by project: counted, visible, retried with backoff.
CREATE TABLE stream_failures (
  project_id       INTEGER NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
  stream           TEXT NOT NULL,
  attempt_count    INTEGER NOT NULL CHECK (attempt_count > 0),
  last_attempt_at  INTEGER NOT NULL,
  next_attempt_at  INTEGER,
  error_kind       TEXT NOT NULL,
  last_error       TEXT NOT NULL,
  PRIMARY KEY (project_id, stream)
) STRICT, WITHOUT ROWID;

-- ---------------------------------------------------------------- queues

CREATE TABLE dirty_sources (
  source_type      TEXT NOT NULL CHECK (source_type IN ('issue', 'merge_request', 'discussion')),
  source_id        INTEGER NOT NULL,
  queued_at        INTEGER NOT NULL,
  generation       INTEGER NOT NULL DEFAULT 1, -- raised by every new mark; an entry is removed only at the generation that was processed
  attempt_count    INTEGER NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
  last_attempt_at  INTEGER,
  last_error       TEXT,
  next_attempt_at  INTEGER,                  -- NULL: ready at once
  quarantined_at   INTEGER,
  PRIMARY KEY (source_type, source_id),
  CHECK ((attempt_count = 0) = (last_attempt_at IS NULL))
) STRICT, WITHOUT ROWID;
-- In the order in which entries are taken: a batch reads its own entries and no more, also
-- when a whole project was queued in the same millisecond.
CREATE INDEX idx_dirty_sources_ready ON dirty_sources(attempt_count, queued_at, source_type, source_id);

CREATE TABLE pending_discussion_fetches (
  project_id       INTEGER NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
  noteable_type    TEXT NOT NULL CHECK (noteable_type IN ('Issue', 'MergeRequest')),
  noteable_iid     INTEGER NOT NULL,
  queued_at        INTEGER NOT NULL,
  generation       INTEGER NOT NULL DEFAULT 1,
  attempt_count    INTEGER NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
  last_attempt_at  INTEGER,
  last_error       TEXT,
  next_attempt_at  INTEGER,
  quarantined_at   INTEGER,
  PRIMARY KEY (project_id, noteable_type, noteable_iid),
  CHECK ((attempt_count = 0) = (last_attempt_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_pending_discussions_ready ON pending_discussion_fetches(attempt_count, queued_at, project_id, noteable_type, noteable_iid);

-- ---------------------------------------------------------------- documents

CREATE TABLE documents (
  id               INTEGER PRIMARY KEY AUTOINCREMENT,
  source_type      TEXT NOT NULL CHECK (source_type IN ('issue', 'merge_request', 'discussion')),
  source_id        INTEGER NOT NULL,
  project_id       INTEGER NOT NULL REFERENCES projects(id),
  item_type        TEXT NOT NULL CHECK (item_type IN ('issue', 'merge_request')),
  item_id          INTEGER NOT NULL,         -- the issue or merge request itself, or the one discussed
  item_iid         INTEGER NOT NULL,
  author_username  TEXT,                     -- discussions: author of the first note
  created_at       INTEGER,
  updated_at       INTEGER,
  state            TEXT NOT NULL,            -- of the item
  is_draft         INTEGER NOT NULL DEFAULT 0 CHECK (is_draft IN (0, 1)),
  is_confidential  INTEGER NOT NULL DEFAULT 0 CHECK (is_confidential IN (0, 1)),
  is_internal      INTEGER NOT NULL DEFAULT 0 CHECK (is_internal IN (0, 1)),
  milestone_title  TEXT,
  label_names      TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(label_names)),
  url              TEXT,
  source_hash      BLOB NOT NULL DEFAULT x'', -- SHA-256 of the hashes of all that it was made of: equal, and nothing has to be read
  content_hash     TEXT NOT NULL,            -- SHA-256 of content_text, hex
  labels_hash      TEXT NOT NULL DEFAULT '',
  paths_hash       TEXT NOT NULL DEFAULT '',
  meta_hash        TEXT NOT NULL DEFAULT '', -- SHA-256 of everything else that is shown or filtered
  is_truncated     INTEGER NOT NULL DEFAULT 0 CHECK (is_truncated IN (0, 1)),
  truncated_reason TEXT CHECK (truncated_reason IN ('token_limit_middle_drop', 'single_note_oversized', 'first_last_oversized')),
  body_start       INTEGER NOT NULL DEFAULT 0 CHECK (body_start >= 0), -- characters of content_text that are header
  title            TEXT,                     -- NULL for discussions
  terms_text       TEXT NOT NULL DEFAULT '', -- synthetic search terms: see content::terms
  content_text     TEXT NOT NULL,
  thread_text      TEXT NOT NULL DEFAULT '', -- text of the item's public threads, bounded; '' for discussions
  UNIQUE (source_type, source_id),
  CHECK ((truncated_reason IS NULL) = (is_truncated = 0))
) STRICT;
-- Covering: each query filter becomes one index scan that yields document ids.
CREATE INDEX idx_documents_filter ON documents(project_id, source_type, state, is_draft, is_confidential, is_internal, updated_at, created_at, author_username, item_type, item_id);
CREATE INDEX idx_documents_author ON documents(author_username);
CREATE INDEX idx_documents_updated ON documents(updated_at);
CREATE INDEX idx_documents_created ON documents(created_at);
CREATE INDEX idx_documents_item ON documents(item_type, item_id, source_type);
CREATE INDEX idx_documents_milestone ON documents(milestone_title) WHERE milestone_title IS NOT NULL;
CREATE INDEX idx_documents_truncated ON documents(source_type) WHERE is_truncated = 1;
CREATE INDEX idx_documents_restricted ON documents(is_confidential, is_internal) WHERE is_confidential = 1 OR is_internal = 1;

CREATE TABLE document_labels (
  document_id  INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
  label_name   TEXT NOT NULL,
  PRIMARY KEY (document_id, label_name)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_document_labels_label ON document_labels(label_name);

CREATE TABLE document_paths (
  document_id  INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
  path         TEXT NOT NULL,
  PRIMARY KEY (document_id, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_document_paths_path ON document_paths(path);

CREATE TABLE document_assignees (
  document_id  INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
  username     TEXT NOT NULL,
  PRIMARY KEY (document_id, username)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_document_assignees_username ON document_assignees(username);

-- References found in the text of a document. The target is named, not resolved: it may
-- not be ingested yet, and resolving it is one indexed look-up at query time.
CREATE TABLE document_refs (
  document_id   INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
  kind          TEXT NOT NULL CHECK (kind IN ('mentions', 'closes', 'related', 'moved', 'duplicates')),
  target_type   TEXT NOT NULL CHECK (target_type IN ('issue', 'merge_request')),
  target_path   TEXT NOT NULL,               -- full path of the project that holds the target
  target_iid    INTEGER NOT NULL,
  PRIMARY KEY (document_id, target_type, target_path, target_iid, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_document_refs_target ON document_refs(target_path, target_type, target_iid);

-- ---------------------------------------------------------------- full-text index

-- The index reads documents through this view, so that a document's header (which names
-- fields that every document has) is neither indexed nor shown in a snippet.
CREATE VIEW documents_fts_source AS
  SELECT id,
         COALESCE(title, '') AS title,
         substr(content_text, body_start + 1) AS content_text,
         thread_text,
         terms_text
    FROM documents;

CREATE VIRTUAL TABLE documents_fts USING fts5(
  title, content_text, thread_text, terms_text,
  content = 'documents_fts_source', content_rowid = 'id',
  tokenize = 'porter unicode61 remove_diacritics 2'
);

-- Memory for the words of one transaction: a batch of documents becomes one segment.
INSERT INTO documents_fts(documents_fts, rank) VALUES ('hashsize', 8388608);

-- An external-content index is told the old values to remove them: COALESCE keeps the
-- values told equal to the values indexed.
CREATE TRIGGER documents_ai AFTER INSERT ON documents BEGIN
  INSERT INTO documents_fts(rowid, title, content_text, thread_text, terms_text)
  VALUES (new.id, COALESCE(new.title, ''), substr(new.content_text, new.body_start + 1), new.thread_text, new.terms_text);
END;
CREATE TRIGGER documents_ad AFTER DELETE ON documents BEGIN
  INSERT INTO documents_fts(documents_fts, rowid, title, content_text, thread_text, terms_text)
  VALUES ('delete', old.id, COALESCE(old.title, ''), substr(old.content_text, old.body_start + 1), old.thread_text, old.terms_text);
END;
CREATE TRIGGER documents_au AFTER UPDATE ON documents
WHEN old.title IS NOT new.title OR old.content_text <> new.content_text OR old.body_start <> new.body_start
  OR old.thread_text <> new.thread_text OR old.terms_text <> new.terms_text
BEGIN
  INSERT INTO documents_fts(documents_fts, rowid, title, content_text, thread_text, terms_text)
  VALUES ('delete', old.id, COALESCE(old.title, ''), substr(old.content_text, old.body_start + 1), old.thread_text, old.terms_text);
  INSERT INTO documents_fts(rowid, title, content_text, thread_text, terms_text)
  VALUES (new.id, COALESCE(new.title, ''), substr(new.content_text, new.body_start + 1), new.thread_text, new.terms_text);
END;

-- A source that is deleted takes its document with it: nothing that is gone upstream can
-- be found, whoever deleted the row.
CREATE TRIGGER issues_ad AFTER DELETE ON issues BEGIN
  DELETE FROM documents WHERE source_type = 'issue' AND source_id = old.id;
  DELETE FROM dirty_sources WHERE source_type = 'issue' AND source_id = old.id;
  DELETE FROM pending_discussion_fetches WHERE project_id = old.project_id AND noteable_type = 'Issue' AND noteable_iid = old.iid;
END;
CREATE TRIGGER merge_requests_ad AFTER DELETE ON merge_requests BEGIN
  DELETE FROM documents WHERE source_type = 'merge_request' AND source_id = old.id;
  DELETE FROM dirty_sources WHERE source_type = 'merge_request' AND source_id = old.id;
  DELETE FROM pending_discussion_fetches WHERE project_id = old.project_id AND noteable_type = 'MergeRequest' AND noteable_iid = old.iid;
END;
CREATE TRIGGER discussions_ad AFTER DELETE ON discussions BEGIN
  DELETE FROM documents WHERE source_type = 'discussion' AND source_id = old.id;
  DELETE FROM dirty_sources WHERE source_type = 'discussion' AND source_id = old.id;
END;

-- Token counts of documents, 1,024 a block, two bytes little-endian each (saturating):
-- the ranking function reads them instead of one B-tree row a hit.
CREATE TABLE document_lengths (
  block    INTEGER PRIMARY KEY,              -- document id / 1024
  lengths  BLOB NOT NULL CHECK (length(lengths) = 2048)
) STRICT;

-- ---------------------------------------------------------------- runner

CREATE TABLE app_lock (
  name          TEXT PRIMARY KEY,
  token         INTEGER NOT NULL DEFAULT 0,  -- fencing token: grows with every acquisition, never reused
  owner         TEXT,                        -- NULL: free
  acquired_at   INTEGER,
  heartbeat_at  INTEGER,                     -- for people; staleness is judged by (token, beat) alone
  beat          INTEGER NOT NULL DEFAULT 0,
  lease_ms      INTEGER NOT NULL DEFAULT 60000 CHECK (lease_ms > 0),
  host          TEXT,
  pid           INTEGER,
  pid_start     TEXT,
  pid_namespace TEXT,
  boot_id       TEXT,
  job           TEXT,
  run_id        INTEGER,
  takeovers     INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO app_lock(name) VALUES ('main');

CREATE TABLE runs (
  id            INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid          TEXT NOT NULL UNIQUE,
  job           TEXT NOT NULL,
  job_hash      TEXT NOT NULL,
  options       TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(options)),
  state         TEXT NOT NULL CHECK (state IN ('running', 'succeeded', 'failed', 'interrupted', 'cancelled', 'abandoned')),
  exit_code     INTEGER,
  started_at    INTEGER NOT NULL,
  finished_at   INTEGER,
  token         INTEGER NOT NULL,
  owner         TEXT NOT NULL,
  host          TEXT,
  pid           INTEGER,
  version       TEXT NOT NULL,
  resumed_from  INTEGER REFERENCES runs(id) ON DELETE SET NULL,
  cancel_requested_at INTEGER,
  error_code    TEXT,
  error         TEXT,
  CHECK ((finished_at IS NULL) = (state = 'running'))
) STRICT;
CREATE INDEX idx_runs_job ON runs(job, started_at);
CREATE INDEX idx_runs_state ON runs(state) WHERE state = 'running';

CREATE TABLE step_attempts (
  run_id        INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  step          TEXT NOT NULL,
  attempt       INTEGER NOT NULL CHECK (attempt >= 0), -- 0: skipped without an attempt
  kind          TEXT NOT NULL,
  state         TEXT NOT NULL CHECK (state IN ('running', 'succeeded', 'failed', 'skipped', 'cancelled', 'timed_out', 'abandoned')),
  conclusion    TEXT CHECK (conclusion IN ('ok', 'failed')), -- what the run makes of it: a failure that is allowed concludes ok
  started_at    INTEGER NOT NULL,
  finished_at   INTEGER,
  reason        TEXT,                        -- why it was skipped, cancelled or will be retried
  error_code    TEXT,
  error         TEXT,
  report        TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(report)),
  PRIMARY KEY (run_id, step, attempt),
  CHECK ((finished_at IS NULL) = (state = 'running'))
) STRICT, WITHOUT ROWID;

-- Counters that must grow across short-lived processes.
CREATE TABLE counters (
  name    TEXT NOT NULL,
  labels  TEXT NOT NULL DEFAULT '',          -- sorted, "key=value" joined by commas
  value   REAL NOT NULL CHECK (value >= 0),
  PRIMARY KEY (name, labels)
) STRICT, WITHOUT ROWID;

-- What the last integrity check found.
CREATE TABLE integrity_findings (
  check_name  TEXT NOT NULL,
  subject     TEXT NOT NULL,
  detail      TEXT NOT NULL,
  found_at    INTEGER NOT NULL,
  PRIMARY KEY (check_name, subject)
) STRICT, WITHOUT ROWID;
