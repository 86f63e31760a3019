//! Where entities are kept: names of tables and columns by type.

use crate::content::{ItemType, SourceType};

/// Table of an item type.
pub(super) const fn of_item(item_type: ItemType) -> &'static str {
    match item_type {
        ItemType::Issue => "issues",
        ItemType::MergeRequest => "merge_requests",
    }
}

/// Column of `discussions` that points to an item.
pub(super) const fn item_column(item_type: ItemType) -> &'static str {
    match item_type {
        ItemType::Issue => "issue_id",
        ItemType::MergeRequest => "merge_request_id",
    }
}

/// Table of what a document is made from.
pub(super) const fn of_source(source_type: SourceType) -> &'static str {
    match source_type {
        SourceType::Issue => "issues",
        SourceType::MergeRequest => "merge_requests",
        SourceType::Discussion => "discussions",
    }
}
