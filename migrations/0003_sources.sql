-- Groups as sources, what became of their projects, and what is gone upstream.

-- Groups that could not be listed: counted, visible, retried with backoff.
CREATE TABLE group_failures (
  source_name      TEXT NOT NULL,
  group_path       TEXT NOT NULL,
  attempt_count    INTEGER NOT NULL CHECK (attempt_count > 0),
  last_attempt_at  INTEGER NOT NULL,
  next_attempt_at  INTEGER,
  error_kind       TEXT NOT NULL,
  last_error       TEXT NOT NULL,
  PRIMARY KEY (source_name, group_path)
) STRICT, WITHOUT ROWID;

-- Which projects a group was seen to hold. A project that is no longer listed stays here
-- with the time, and stays stored.
CREATE TABLE group_projects (
  source_name    TEXT NOT NULL,
  group_path     TEXT NOT NULL,
  project_id     INTEGER NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
  missing_since  INTEGER,                    -- NULL: listed last time
  PRIMARY KEY (source_name, group_path, project_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_group_projects_project ON group_projects(project_id);

-- Paths of the configuration under which a project has another path now.
CREATE TABLE project_aliases (
  source_name  TEXT NOT NULL,
  path         TEXT NOT NULL,
  project_id   INTEGER NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
  PRIMARY KEY (source_name, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_project_aliases_project ON project_aliases(project_id);

-- Projects that are not as usual upstream. None of it removes anything by itself.
CREATE TABLE project_states (
  project_id  INTEGER PRIMARY KEY REFERENCES projects(id) ON DELETE CASCADE,
  state       TEXT NOT NULL CHECK (state IN ('marked_for_deletion', 'missing', 'deleted')),
  since       INTEGER NOT NULL,
  strikes     INTEGER NOT NULL DEFAULT 0 CHECK (strikes >= 0), -- runs that found it missing
  proof       TEXT                           -- which run gave the last strike
) STRICT;

-- The most that a token was seen to have: less of it explains why items vanish.
CREATE TABLE source_access (
  source_name  TEXT PRIMARY KEY,
  user_id      INTEGER,
  scopes       TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(scopes))
) STRICT, WITHOUT ROWID;

CREATE TABLE project_access (
  project_id    INTEGER PRIMARY KEY REFERENCES projects(id) ON DELETE CASCADE,
  access_level  INTEGER NOT NULL             -- GitLab's: 10 guest, 20 reporter, …; 0 none
) STRICT;

-- Items that were found missing, once or more; gone again when the item is seen.
CREATE TABLE item_strikes (
  project_id  INTEGER NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
  item_type   TEXT NOT NULL CHECK (item_type IN ('issue', 'merge_request')),
  iid         INTEGER NOT NULL,
  strikes     INTEGER NOT NULL CHECK (strikes > 0),
  proof       TEXT NOT NULL,                 -- which run or which export gave the last one
  first_at    INTEGER NOT NULL,
  last_at     INTEGER NOT NULL,
  PRIMARY KEY (project_id, item_type, iid)
) STRICT, WITHOUT ROWID;

-- Items that were deleted here because they are gone upstream; nothing of their text.
CREATE TABLE tombstones (
  project_id  INTEGER NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
  item_type   TEXT NOT NULL CHECK (item_type IN ('issue', 'merge_request')),
  iid         INTEGER NOT NULL,
  gitlab_id   INTEGER NOT NULL,
  deleted_at  INTEGER NOT NULL,
  reason      TEXT NOT NULL,
  PRIMARY KEY (project_id, item_type, iid)
) STRICT, WITHOUT ROWID;

-- A copy that arrives makes the documents of the issues that were moved to it again.
CREATE INDEX idx_issues_moved ON issues(moved_to_gitlab_id) WHERE moved_to_gitlab_id IS NOT NULL;
