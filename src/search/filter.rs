//! From what a query asks for to the one filter that every stage obeys: names of projects
//! become ids, and the scope cuts away what may not be seen.

use std::collections::BTreeSet;

use super::literal::is_tail;
use super::stem::fold;
use super::wanted::Wanted;
use crate::content::filter::Filter;
use crate::content::paths::is_project_meant;
use crate::error::{Error, Result};
use crate::store::search::KnownProject;

/// What a query may see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Patterns of project paths (`group/app`, `group/*`, `*`); absent: all projects.
    pub projects: Option<Vec<String>>,
    /// Whether confidential items and internal notes may be seen.
    pub include_restricted: bool,
}

impl Scope {
    /// Whether a project may be seen.
    pub fn allows(&self, path: &str) -> bool {
        self.projects.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| matches(pattern, path)))
    }
}

/// Whether a pattern means a project: its whole path, or everything below `group/*`.
pub fn matches(pattern: &str, path: &str) -> bool {
    is_project_meant(pattern, path)
}

/// What names can mean.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// All projects.
    pub projects: Vec<KnownProject>,
    /// Labels that visible projects define; left empty when none is asked for.
    pub labels: Vec<String>,
    /// Usernames of authors and assignees; left empty when none is asked for.
    pub users: Vec<String>,
}

/// The labels that a name means: itself; else in another case or with other accents (`Bug`,
/// `Café`); else inside of any scope (`type::bug`); else itself, and nothing has it.
fn label(name: &str, known: &[String]) -> Vec<String> {
    if known.iter().any(|label| label == name) {
        return vec![name.to_owned()];
    }
    let folded = fold(name);
    if let Some(scope) = folded.strip_suffix('*').filter(|scope| scope.ends_with("::")) {
        // Any label of a scope, as GitLab writes it.
        let any: Vec<String> = known.iter().filter(|label| fold(label).starts_with(scope)).cloned().collect();
        return if any.is_empty() { vec![name.to_owned()] } else { any };
    }
    let same: Vec<String> = known.iter().filter(|label| fold(label) == folded).cloned().collect();
    if !same.is_empty() {
        return same;
    }
    let tail = format!("::{folded}");
    let scoped: Vec<String> = known.iter().filter(|label| fold(label).ends_with(&tail)).cloned().collect();
    if scoped.is_empty() { vec![name.to_owned()] } else { scoped }
}

/// The usernames that a name means: GitLab's are the same in any case.
fn user(name: &str, known: &[String]) -> Vec<String> {
    let lower = name.to_lowercase();
    let same: Vec<String> = known.iter().filter(|user| user.to_lowercase() == lower).cloned().collect();
    if same.is_empty() { vec![name.to_owned()] } else { same }
}

/// What may be seen, whatever is wanted of it.
pub fn access(scope: &Scope, known: &Known) -> Filter {
    let visible = || known.projects.iter().filter(|project| scope.allows(&project.path));
    Filter {
        projects: scope.projects.is_some().then(|| visible().map(|project| project.id).collect()),
        include_restricted: scope.include_restricted,
        ..Filter::default()
    }
}

/// Resolves what was asked for inside a scope.
///
/// A project that is not known matches nothing and gives a warning that names the nearest known one: a script that asks about a project
/// before its first sync gets an empty list, not a failure.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::error::ErrorKind::Usage) when the last part of a path means
/// several projects.
pub fn resolve(wanted: &Wanted, scope: &Scope, known: &Known, warnings: &mut Vec<String>) -> Result<Filter> {
    let visible: Vec<&KnownProject> =
        known.projects.iter().filter(|project| scope.allows(&project.path)).collect();
    let filter = conditions(wanted, &visible, known, warnings)?;
    let in_scope = || scope.projects.is_some().then(|| visible.iter().map(|project| project.id).collect());
    let not = wanted.not.iter().map(|not| conditions(not, &visible, known, warnings));
    Ok(Filter {
        not: not.collect::<Result<_>>()?,
        projects: filter.projects.clone().or_else(in_scope),
        include_restricted: scope.include_restricted,
        ..filter
    })
}

/// What was asked for, with names of projects among those that may be seen. No scope is in it.
fn conditions(
    wanted: &Wanted,
    visible: &[&KnownProject],
    known: &Known,
    warnings: &mut Vec<String>,
) -> Result<Filter> {
    let mut all_named = |names: &[String]| -> Result<Option<BTreeSet<i64>>> {
        let mut ids = BTreeSet::new();
        for name in names {
            ids.extend(named(name, visible, warnings)?);
        }
        Ok((!names.is_empty()).then_some(ids))
    };
    let projects = match (all_named(&wanted.projects)?, all_named(&wanted.within)?) {
        (Some(projects), Some(within)) => Some(projects.intersection(&within).copied().collect()),
        (Some(projects), None) | (None, Some(projects)) => Some(projects.into_iter().collect()),
        (None, None) => None,
    };
    Ok(Filter {
        projects,
        types: wanted.types.clone(),
        authors: wanted.authors.iter().flat_map(|name| user(name, &known.users)).collect(),
        labels: wanted.labels.iter().map(|name| label(name, &known.labels)).collect(),
        paths: wanted.paths.clone(),
        states: wanted.states.clone(),
        milestone: wanted.milestone.clone(),
        assignees: wanted.assignee.iter().flat_map(|name| user(name, &known.users)).collect(),
        created_from: wanted.created_from,
        created_to: wanted.created_to,
        updated_from: wanted.updated_from,
        draft: wanted.draft,
        confidential: wanted.confidential,
        ..Filter::default()
    })
}

/// The projects that a name means among those that may be seen.
fn named(name: &str, visible: &[&KnownProject], warnings: &mut Vec<String>) -> Result<Vec<i64>> {
    let exact: Vec<i64> =
        visible.iter().filter(|project| matches(name, &project.path)).map(|project| project.id).collect();
    if !exact.is_empty() {
        return Ok(exact);
    }
    // GitLab's paths are the same in any case.
    let lower = name.to_lowercase();
    let nearly = |project: &&&KnownProject| matches(&lower, &project.path.to_lowercase());
    let same: Vec<i64> = visible.iter().filter(nearly).map(|project| project.id).collect();
    if !same.is_empty() {
        return Ok(same);
    }
    let was_so =
        |project: &&&KnownProject| project.aliases.iter().any(|path| matches(&lower, &path.to_lowercase()));
    let before: Vec<&&KnownProject> = visible.iter().filter(was_so).collect();
    if !before.is_empty() {
        let now: Vec<&str> = before.iter().map(|project| project.path.as_str()).collect();
        warnings.push(format!("{name:?} is {} now", now.join(", ")));
        return Ok(before.iter().map(|project| project.id).collect());
    }
    let is_meant = |project: &&&KnownProject| is_tail(&project.path.to_lowercase(), &lower);
    let tails: Vec<&&KnownProject> = visible.iter().filter(is_meant).collect();
    let mut paths: Vec<&str> = tails.iter().map(|project| project.path.as_str()).collect();
    paths.dedup();
    if paths.len() > 1 {
        return Err(Error::usage(format!("{name:?} means several projects: {}", paths.join(", ")))
            .hint("write the whole path, or group/* for all of a group"));
    }
    if tails.is_empty() {
        warnings.push(unknown(name, visible));
    }
    Ok(tails.iter().map(|project| project.id).collect())
}

fn unknown(name: &str, visible: &[&KnownProject]) -> String {
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_lowercase();
    let near = visible
        .iter()
        .map(|project| {
            let whole =
                strsim::normalized_damerau_levenshtein(&name.to_lowercase(), &project.path.to_lowercase());
            let tail = strsim::normalized_damerau_levenshtein(&last(name), &last(&project.path));
            (whole.max(tail), project.path.as_str())
        })
        .filter(|(similarity, _)| *similarity >= 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)));
    match near {
        Some((_, path)) => format!("no project {name:?} is stored; did you mean {path}?"),
        None if visible.is_empty() => format!("no project {name:?} is stored"),
        None => {
            let some: Vec<&str> = visible.iter().take(5).map(|project| project.path.as_str()).collect();
            format!("no project {name:?} is stored; known are {}", some.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        let projects = [(1, "group/app"), (2, "group/lib"), (3, "other/app"), (4, "groupie/x")]
            .into_iter()
            .map(|(id, path)| KnownProject { id, path: path.to_owned(), ..KnownProject::default() })
            .collect();
        let labels =
            ["Café", "Regression", "bug", "kind::feature", "type::feature"].map(str::to_owned).to_vec();
        Known { projects, labels, ..Known::default() }
    }

    #[test]
    fn labels_are_named_exactly_or_nearly() {
        let means = |name: &str| label(name, &known().labels);
        assert_eq!(means("bug"), ["bug"]);
        assert_eq!(means("regression"), ["Regression"]);
        assert_eq!((means("cafe\u{301}"), means("CAFE")), (vec!["Café".to_owned()], vec!["Café".to_owned()]));
        assert_eq!(means("feature"), ["kind::feature", "type::feature"]);
        assert_eq!(means("type::feature"), ["type::feature"]);
        assert_eq!(means("unknown"), ["unknown"]);
        assert_eq!(
            (means("TYPE::*"), means("none::*")),
            (vec!["type::feature".to_owned()], vec!["none::*".to_owned()])
        );
    }

    #[test]
    fn projects_of_a_text_lie_within_those_of_a_flag() {
        let both = |projects: &[&str], within: &[&str]| {
            let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let wanted = Wanted { projects: list(projects), within: list(within), ..Wanted::default() };
            resolve(&wanted, &Scope::default(), &known(), &mut Vec::new()).unwrap().projects
        };
        assert_eq!(both(&["other/app"], &["group/*"]), Some(vec![]));
        assert_eq!(both(&["group/lib", "other/app"], &["group/*"]), Some(vec![2]));
    }

    #[test]
    fn projects_are_the_same_in_any_case() {
        let all = Scope::default();
        assert_eq!(ids(&["Group/APP"], &all).0, Some(vec![1]));
        assert_eq!(ids(&["GROUP/*"], &all).0, Some(vec![1, 2]));
        assert_eq!(ids(&["LIB"], &all).0, Some(vec![2]));
    }

    fn ids(names: &[&str], scope: &Scope) -> (Option<Vec<i64>>, Vec<String>) {
        let wanted =
            Wanted { projects: names.iter().map(|name| (*name).to_owned()).collect(), ..Wanted::default() };
        let mut warnings = Vec::new();
        let filter = resolve(&wanted, scope, &known(), &mut warnings).unwrap();
        (filter.projects, warnings)
    }

    #[test]
    fn projects_are_named_by_path_group_or_tail() {
        let all = Scope::default();
        assert_eq!(ids(&["group/app"], &all).0, Some(vec![1]));
        assert_eq!(ids(&["group/*"], &all).0, Some(vec![1, 2]));
        assert_eq!(ids(&["lib"], &all).0, Some(vec![2]));
        assert_eq!(ids(&["lib", "other/app"], &all).0, Some(vec![2, 3]));
        assert_eq!(ids(&[], &all).0, None);
    }

    #[test]
    fn a_tail_that_means_several_projects_is_refused() {
        let wanted = Wanted { projects: vec!["app".to_owned()], ..Wanted::default() };
        let error = resolve(&wanted, &Scope::default(), &known(), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("group/app, other/app"), "{error}");
    }

    #[test]
    fn an_unknown_project_matches_nothing_and_says_which_is_near() {
        let (projects, warnings) = ids(&["group/ap"], &Scope::default());
        assert_eq!(projects, Some(vec![]));
        assert!(warnings[0].contains("did you mean group/app?"), "{warnings:?}");
    }

    #[test]
    fn nothing_outside_the_scope_is_reached_or_named() {
        let scope = Scope { projects: Some(vec!["group/*".to_owned()]), include_restricted: false };
        assert_eq!(ids(&[], &scope).0, Some(vec![1, 2]));
        let (projects, warnings) = ids(&["other/app"], &scope);
        assert_eq!(projects, Some(vec![]));
        assert!(!warnings[0].contains("mean other/app"), "{warnings:?}");
        assert_eq!(ids(&["*"], &scope).0, Some(vec![1, 2]));
        assert_eq!(ids(&["app"], &scope).0, Some(vec![1]), "the other app is not seen");
        let nothing = Scope { projects: Some(vec![]), include_restricted: true };
        assert_eq!(ids(&[], &nothing).0, Some(vec![]));
    }
}
