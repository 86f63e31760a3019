//! Answers a query.

pub mod literal;
pub mod parse;
pub mod stem;
pub mod wanted;
pub mod words;
