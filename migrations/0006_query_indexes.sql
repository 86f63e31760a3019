-- Narrow indexes for queries: the rows of documents are wide, and each look at one is a page.

-- What belongs to which item, by document: ranking asks it of every candidate.
CREATE INDEX idx_documents_key ON documents(id, item_type, item_id, source_type);

-- Filters by state alone: is:open, is:merged.
CREATE INDEX idx_documents_state ON documents(state);

-- Moved items stand below what they became; hardly any item was moved.
CREATE INDEX idx_document_refs_moved ON document_refs(document_id) WHERE kind = 'moved';
