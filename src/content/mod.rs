//! What lore knows about: entities as they are read from a source, and the documents made
//! of them. Pure: no input or output, no clock, no logging.

pub mod entities;
pub mod hash;
pub mod prose;
pub mod refs;
pub mod terms;
pub mod truncate;

pub use entities::{
    Author, DiffPosition, Discussion, Issue, ItemRef, ItemType, Label, MergeRequest, Milestone, Note,
    Project, SourceType,
};
