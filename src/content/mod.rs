//! What lore knows about: entities as they are read from a source, and the documents made
//! of them. Pure: no input or output, no clock, no logging.

pub mod chunk;
pub mod document;
pub mod entities;
pub mod filter;
pub mod hash;
pub mod paths;
pub mod prose;
pub mod refs;
pub mod render;
pub mod source;
pub mod terms;
pub mod truncate;

pub use document::Document;
pub use entities::{
    Author, DiffPosition, Discussion, Issue, ItemRef, ItemType, Label, MergeRequest, Milestone, Note,
    Project, SourceType,
};
