-- Links between items as GitLab keeps them, and payloads that go with what they describe.

-- What the API says about relations of an item (step fetch-links). Kept beside what its text
-- says, because a text that is rendered again must not lose it.
CREATE TABLE item_links (
  project_id   INTEGER NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
  item_type    TEXT NOT NULL CHECK (item_type IN ('issue', 'merge_request')),
  item_iid     INTEGER NOT NULL,
  kind         TEXT NOT NULL CHECK (kind IN ('relates_to', 'blocks', 'is_blocked_by', 'closes', 'closed_by', 'related')),
  target_type  TEXT NOT NULL CHECK (target_type IN ('issue', 'merge_request')),
  target_path  TEXT NOT NULL,                -- full path of the project that holds the target
  target_iid   INTEGER NOT NULL,
  PRIMARY KEY (project_id, item_type, item_iid, kind, target_type, target_path, target_iid)
) STRICT, WITHOUT ROWID;

-- When the links of an item were last looked at: they are looked at again when the item moved.
CREATE TABLE link_looks (
  project_id       INTEGER NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
  item_type        TEXT NOT NULL CHECK (item_type IN ('issue', 'merge_request')),
  item_iid         INTEGER NOT NULL,
  seen_updated_at  INTEGER,                  -- updated_at of the item that was looked at; NULL: never with success
  attempt_count    INTEGER NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
  next_attempt_at  INTEGER,
  last_error       TEXT,
  PRIMARY KEY (project_id, item_type, item_iid)
) STRICT, WITHOUT ROWID;

-- References of a document to other items. A row says: this document refers to that item, in
-- this way. `origin` says who told: 'text' is read out of the text and its system notes and is
-- replaced whenever the document is made again; 'api' is GitLab's own record (item_links) and
-- stands only where the text does not say the same. So a (document, target, kind) is there
-- once, and a reader that does not care who told can leave `origin` out. Direction: the
-- document is the subject ('blocks' = it blocks the target, 'closed_by' = the target closes
-- it). The target is named, not resolved: it may not be ingested yet, and resolving it is one
-- indexed look-up when asked.
CREATE TABLE document_refs_new (
  document_id   INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
  kind          TEXT NOT NULL CHECK (kind IN ('mentions', 'closes', 'related', 'moved', 'duplicates',
                                              'relates_to', 'blocks', 'is_blocked_by', 'closed_by')),
  target_type   TEXT NOT NULL CHECK (target_type IN ('issue', 'merge_request')),
  target_path   TEXT NOT NULL,               -- full path of the project that holds the target
  target_iid    INTEGER NOT NULL,
  origin        TEXT NOT NULL DEFAULT 'text' CHECK (origin IN ('text', 'api')),
  PRIMARY KEY (document_id, target_type, target_path, target_iid, kind)
) STRICT, WITHOUT ROWID;
INSERT INTO document_refs_new(document_id, kind, target_type, target_path, target_iid)
  SELECT document_id, kind, target_type, target_path, target_iid FROM document_refs;
DROP TABLE document_refs;
ALTER TABLE document_refs_new RENAME TO document_refs;
CREATE INDEX idx_document_refs_target ON document_refs(target_path, target_type, target_iid);

-- What describes an item goes with it: a rebuild must not bring back what is gone upstream.
CREATE TRIGGER issues_payloads_ad AFTER DELETE ON issues BEGIN
  DELETE FROM raw_payloads WHERE project_id = old.project_id AND resource_type = 'issue' AND resource_key = CAST(old.iid AS TEXT);
  DELETE FROM raw_payloads WHERE project_id = old.project_id AND resource_type = 'discussion'
    AND resource_key >= 'Issue/' || old.iid || '/' AND resource_key < 'Issue/' || old.iid || '0';
  DELETE FROM item_links WHERE project_id = old.project_id AND item_type = 'issue' AND item_iid = old.iid;
  DELETE FROM link_looks WHERE project_id = old.project_id AND item_type = 'issue' AND item_iid = old.iid;
END;
CREATE TRIGGER merge_requests_payloads_ad AFTER DELETE ON merge_requests BEGIN
  DELETE FROM raw_payloads WHERE project_id = old.project_id AND resource_type = 'merge_request' AND resource_key = CAST(old.iid AS TEXT);
  DELETE FROM raw_payloads WHERE project_id = old.project_id AND resource_type = 'discussion'
    AND resource_key >= 'MergeRequest/' || old.iid || '/' AND resource_key < 'MergeRequest/' || old.iid || '0';
  DELETE FROM item_links WHERE project_id = old.project_id AND item_type = 'merge_request' AND item_iid = old.iid;
  DELETE FROM link_looks WHERE project_id = old.project_id AND item_type = 'merge_request' AND item_iid = old.iid;
END;
CREATE TRIGGER discussions_payloads_ad AFTER DELETE ON discussions BEGIN
  DELETE FROM raw_payloads WHERE project_id = old.project_id AND resource_type = 'discussion'
    AND resource_key = old.noteable_type || '/' ||
        coalesce((SELECT iid FROM issues WHERE id = old.issue_id), (SELECT iid FROM merge_requests WHERE id = old.merge_request_id), '')
        || '/' || old.gitlab_discussion_id;
END;
