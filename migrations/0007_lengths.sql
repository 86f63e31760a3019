-- Token counts of documents by column: 1,024 documents a block, and of each of them the words of
-- title, text, threads and terms, two bytes little-endian each (saturating). The ranking function
-- reads them instead of one B-tree row a hit. The counts of an older database are made right after this.
DROP TABLE document_lengths;
CREATE TABLE document_lengths (
  block    INTEGER PRIMARY KEY,              -- document id / 1024
  lengths  BLOB NOT NULL CHECK (length(lengths) = 8192)
) STRICT;
