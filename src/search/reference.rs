//! Finds the one item that a reference means, among those that may be seen.

use super::filter::Scope;
use super::literal::{self, Reference};
use super::snippet::printable;
use crate::content::{ItemRef, ItemType};
use crate::error::{Error, ErrorKind, Result};
use crate::store::ReadTx;
use crate::store::search::{self, KnownProject};
use crate::store::show::{self as sql, Candidate};

/// Near numbers that are named when an item is not there.
const NEAR: i64 = 3;

/// Reads a reference as people write it.
///
/// # Errors
/// [`ErrorKind::Usage`] when it is none.
pub fn read(text: &str) -> Result<Reference> {
    literal::reference(text.trim()).ok_or_else(|| {
        Error::usage(format!("{text:?} is no reference"))
            .hint("write group/project#12 for an issue, group/project!34 for a merge request, or its address")
    })
}

/// The one item that a reference means; `shown` is what was written.
///
/// # Errors
/// [`ErrorKind::Usage`] when it means several items, [`ErrorKind::ReferenceNotFound`] when it
/// is not stored or may not be seen.
pub fn find(tx: &ReadTx<'_>, reference: &Reference, shown: &str, scope: &Scope) -> Result<Candidate> {
    let visible = |candidate: &Candidate| {
        scope.allows(&candidate.project_path) && (scope.include_restricted || !candidate.confidential)
    };
    let known = search::projects(tx)?;
    let meant = reference.projects(known.iter().filter(|project| scope.allows(&project.path)));
    let mut found: Vec<Candidate> = sql::candidates(tx, reference.item_type, reference.iid)?
        .into_iter()
        .filter(|candidate| meant.contains(&candidate.project_id) && visible(candidate))
        .collect();
    let is_exact =
        |candidate: &Candidate| reference.project.as_deref() == Some(candidate.project_path.as_str());
    if found.iter().any(is_exact) {
        found.retain(is_exact);
    }
    if found.len() > 1 {
        let all: Vec<String> = found
            .iter()
            .map(|candidate| {
                let host = known.iter().find(|project| project.id == candidate.project_id);
                let host = host.and_then(|project| project.host.as_deref());
                let at = host.map_or_else(String::new, |host| format!(" at {host}"));
                format!("{}{at}", name(reference.item_type, candidate))
            })
            .collect();
        return Err(Error::usage(format!("{shown} means several items: {}", all.join(", ")))
            .hint("write the project's whole path in front, or the address of the item"));
    }
    found.pop().map_or_else(|| Err(not_found(tx, reference, shown, &known, &visible)?), Ok)
}

/// Says what is near. What may not be seen is as if it were not there.
fn not_found(
    tx: &ReadTx<'_>,
    reference: &Reference,
    shown: &str,
    known: &[KnownProject],
    visible: &dyn Fn(&Candidate) -> bool,
) -> Result<Error> {
    let mut error = Error::new(ErrorKind::ReferenceNotFound, format!("{shown} is not stored"));
    let mut near = Vec::new();
    let meant = reference.projects(known.iter());
    for project in known {
        if reference.project.is_some() && meant.contains(&project.id) {
            near.extend(sql::nearest(tx, &project.path, reference.item_type, reference.iid, NEAR)?);
        }
    }
    near.retain(|candidate| visible(candidate));
    for candidate in near.iter().take(5) {
        let title = printable(&candidate.title);
        error = error.hint(format!("near: {} {title}", name(reference.item_type, candidate)));
    }
    if near.is_empty() {
        error = error.hint("`lore query` finds items by their words; `lore run sync` brings new ones in");
    }
    Ok(error.hint("confidential items are shown with --include-confidential, inside the scope"))
}

/// The whole reference of an item.
pub fn name(item_type: ItemType, candidate: &Candidate) -> String {
    ItemRef { project_path: candidate.project_path.clone(), item_type, iid: candidate.iid }.to_string()
}
