-- Entries of a queue that a careful step works on, one at a time: whoever is still under way when
-- the next run begins was there when the process died.
CREATE TABLE suspects (
  step          TEXT NOT NULL,               -- kind of the step
  entry         TEXT NOT NULL,
  crashes       INTEGER NOT NULL DEFAULT 0 CHECK (crashes >= 0),
  is_under_way  INTEGER NOT NULL CHECK (is_under_way IN (0, 1)),
  noted_at      INTEGER NOT NULL,
  PRIMARY KEY (step, entry)
) STRICT, WITHOUT ROWID;
