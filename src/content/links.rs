//! Relations between items as GitLab itself keeps them, beside what texts say.

use super::entities::ItemRef;

/// How an item is related to another; the item is the subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LinkKind {
    /// Was linked to it, without a direction.
    RelatesTo,
    /// Blocks it.
    Blocks,
    /// Waits for it.
    IsBlockedBy,
    /// Closes it: a merge request an issue.
    Closes,
    /// Is closed by it: an issue by a merge request.
    ClosedBy,
    /// Is spoken of there: an issue in a merge request.
    Related,
}

impl LinkKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::RelatesTo, Self::Blocks, Self::IsBlockedBy, Self::Closes, Self::ClosedBy, Self::Related];

    /// Name in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RelatesTo => "relates_to",
            Self::Blocks => "blocks",
            Self::IsBlockedBy => "is_blocked_by",
            Self::Closes => "closes",
            Self::ClosedBy => "closed_by",
            Self::Related => "related",
        }
    }
}

/// One relation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// How.
    pub kind: LinkKind,
    /// To what. It need not be stored.
    pub target: ItemRef,
}
