//! What a query asks for beside its words. Operators (`label:bug`) and flags (`--label bug`)
//! fill the same structure through the same function.

use crate::clock::{self, Millis};
use crate::content::SourceType;
use crate::content::filter::PathFilter;
use crate::error::{Error, ErrorKind, Result};

/// Conditions as they were asked for; names are not resolved yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Projects: full paths, last parts, or `group/*`; any of them.
    pub projects: Vec<String>,
    /// Projects that `projects` lie in: a text may narrow what a flag says, never widen it.
    /// Empty: anywhere.
    pub within: Vec<String>,
    /// Types; any of them.
    pub types: Vec<SourceType>,
    /// Usernames; any of them.
    pub authors: Vec<String>,
    /// Labels; all of them.
    pub labels: Vec<String>,
    /// Paths; all of them.
    pub paths: Vec<PathFilter>,
    /// States; any of them.
    pub states: Vec<String>,
    /// Milestone.
    pub milestone: Option<String>,
    /// Username of an assignee.
    pub assignee: Option<String>,
    /// Created at or after.
    pub created_from: Option<Millis>,
    /// Created before.
    pub created_to: Option<Millis>,
    /// Updated at or after.
    pub updated_from: Option<Millis>,
    /// Drafts only.
    pub draft: Option<bool>,
    /// Confidential items only.
    pub confidential: Option<bool>,
    /// Words are looked for in titles only.
    pub in_title: bool,
    /// What is left out, one condition each.
    pub not: Vec<Self>,
}

/// The operators, by name.
pub const OPERATORS: &[&str] = &[
    "author",
    "label",
    "project",
    "type",
    "state",
    "milestone",
    "assignee",
    "path",
    "is",
    "after",
    "before",
    "updated",
    "in",
];

const TYPES: &[&str] = &["issue", "mr", "discussion"];
const STATES: &[&str] = &["open", "closed", "merged", "locked"];
const IS: &[&str] = &["open", "closed", "merged", "draft", "confidential", "issue", "mr", "discussion"];

/// What a time looks like, for error messages.
const TIME_FORM: &str = "a day, month or year (2024-01-31, 2024-01, 2024, today, yesterday; in UTC), an RFC 3339 time, or an age like 12h, 7d, 2w, 3mo, 1y";

const HOUR: Millis = 3_600_000;
const DAY: Millis = 24 * HOUR;

impl Wanted {
    /// Whether anything is asked for.
    pub fn is_empty(&self) -> bool {
        Self { in_title: false, ..self.clone() } == Self::default()
    }

    /// Adds one condition. `shown` is how the user wrote its name (`--type`, `type:`).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidEnumValue`] for a value outside a closed list,
    /// [`ErrorKind::Usage`] for a time that cannot be read; both name what is accepted.
    pub fn set(&mut self, name: &str, value: &str, shown: &str, now: Millis) -> Result<()> {
        let value = value.trim();
        // None of these holds a comma: any of several, as if it were written for each.
        if matches!(name, "type" | "state" | "author" | "project") && value.contains(',') {
            let mut parts = value.split(',').map(str::trim).filter(|part| !part.is_empty());
            return parts.try_for_each(|part| self.set(name, part, shown, now));
        }
        match name {
            "author" => once(&mut self.authors, username(value)),
            // A label holds no comma: several are all wanted, as GitLab has it.
            "label" => {
                let labels: Vec<&str> =
                    value.split(',').map(str::trim).filter(|label| !label.is_empty()).collect();
                let labels = if labels.is_empty() { vec![value] } else { labels };
                labels.iter().for_each(|label| once(&mut self.labels, (*label).to_owned()));
            }
            "project" => once(&mut self.projects, value.trim_matches('/').to_owned()),
            "type" => {
                let kind = SourceType::parse_alias(value).ok_or_else(|| invalid(shown, value, TYPES))?;
                once(&mut self.types, kind);
            }
            "state" => {
                let state = state(value).ok_or_else(|| invalid(shown, value, STATES))?;
                once(&mut self.states, state.to_owned());
            }
            "milestone" => self.milestone = Some(value.trim_start_matches('%').to_owned()),
            "assignee" => self.assignee = Some(username(value)),
            "path" => once(&mut self.paths, PathFilter::parse(value)),
            "after" => self.created_from = Some(time(value, shown, now)?),
            "before" => self.created_to = Some(time(value, shown, now)?),
            "updated" => self.updated_from = Some(time(value, shown, now)?),
            "in" => match value.to_lowercase().as_str() {
                "title" => self.in_title = true,
                _ => return Err(invalid(shown, value, &["title"])),
            },
            "is" => match value.to_lowercase().as_str() {
                "draft" => self.draft = Some(true),
                "confidential" => self.confidential = Some(true),
                "locked" => return Err(invalid(shown, value, IS)),
                other => match (state(other), SourceType::parse_alias(other)) {
                    (Some(state), _) => once(&mut self.states, state.to_owned()),
                    (None, Some(kind)) => once(&mut self.types, kind),
                    (None, None) => return Err(invalid(shown, value, IS)),
                },
            },
            _ => return Err(Error::internal(format!("operator {name} is in the list but not known"))),
        }
        Ok(())
    }

    /// Adds one condition that must not hold.
    ///
    /// # Errors
    /// As [`Wanted::set`]; [`ErrorKind::Usage`] for where words are looked for, which is no
    /// condition.
    pub fn set_not(&mut self, name: &str, value: &str, shown: &str, now: Millis) -> Result<()> {
        let mut not = Self::default();
        not.set(name, value, shown, now)?;
        if not.in_title {
            return Err(Error::usage(format!("{shown} cannot be left out"))
                .hint("leave the dash out to look in titles only"));
        }
        once(&mut self.not, not);
        Ok(())
    }

    /// Itself and what is left out: all of whose names have to be resolved.
    pub fn with_not(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.not)
    }
}

impl Wanted {
    /// Each condition that could be left out, as it could be typed, with what remains.
    pub fn each_left_out(&self) -> Vec<(String, Self)> {
        let mut out = Vec::new();
        let mut without = |shown: String, change: &dyn Fn(&mut Self)| {
            let mut rest = self.clone();
            change(&mut rest);
            out.push((shown, rest));
        };
        let any_of = |name: &str, values: &[String]| format!("{name}:{}", values.join(&format!(" {name}:")));
        if !self.projects.is_empty() {
            without(any_of("project", &self.projects), &|rest| {
                rest.projects = std::mem::take(&mut rest.within);
            });
        }
        if !self.types.is_empty() {
            let names: Vec<String> = self.types.iter().map(|kind| kind.as_str().to_owned()).collect();
            without(any_of("type", &names), &|rest| rest.types.clear());
        }
        if !self.authors.is_empty() {
            without(any_of("author", &self.authors), &|rest| rest.authors.clear());
        }
        for (at, label) in self.labels.iter().enumerate() {
            without(format!("label:{label}"), &|rest| drop(rest.labels.remove(at)));
        }
        for (at, path) in self.paths.iter().enumerate() {
            without(format!("path:{}", path.as_str()), &|rest| drop(rest.paths.remove(at)));
        }
        if !self.states.is_empty() {
            without(any_of("state", &self.states), &|rest| rest.states.clear());
        }
        if let Some(milestone) = &self.milestone {
            without(format!("milestone:{milestone}"), &|rest| rest.milestone = None);
        }
        if let Some(assignee) = &self.assignee {
            without(format!("assignee:{assignee}"), &|rest| rest.assignee = None);
        }
        if let Some(from) = self.created_from {
            without(format!("after:{}", clock::day(from)), &|rest| rest.created_from = None);
        }
        if let Some(to) = self.created_to {
            without(format!("before:{}", clock::day(to)), &|rest| rest.created_to = None);
        }
        if let Some(from) = self.updated_from {
            without(format!("updated:{}", clock::day(from)), &|rest| rest.updated_from = None);
        }
        if self.draft.is_some() {
            without("is:draft".to_owned(), &|rest| rest.draft = None);
        }
        if self.confidential.is_some() {
            without("is:confidential".to_owned(), &|rest| rest.confidential = None);
        }
        if self.in_title {
            without("in:title".to_owned(), &|rest| rest.in_title = false);
        }
        for (at, not) in self.not.iter().enumerate() {
            for (shown, _) in not.each_left_out() {
                without(format!("-{shown}"), &|rest| drop(rest.not.remove(at)));
            }
        }
        out
    }
}

/// Adds a condition that is not there yet: twice the same costs, and says nothing more.
fn once<T: PartialEq>(values: &mut Vec<T>, value: T) {
    if !values.contains(&value) {
        values.push(value);
    }
}

fn username(value: &str) -> String {
    value.trim_start_matches('@').to_owned()
}

/// GitLab's word for a state.
fn state(value: &str) -> Option<&'static str> {
    match value.to_lowercase().as_str() {
        "open" | "opened" => Some("opened"),
        "closed" => Some("closed"),
        "merged" => Some("merged"),
        "locked" => Some("locked"),
        _ => None,
    }
}

fn invalid(shown: &str, value: &str, accepted: &[&str]) -> Error {
    let mut error =
        Error::new(ErrorKind::InvalidEnumValue, format!("{shown} cannot be {:?}", shorten(value)))
            .hint(format!("accepted: {}", accepted.join(", ")))
            .details(serde_json::json!({ "accepted": accepted }));
    let near = accepted.iter().find(|known| strsim::levenshtein(known, &value.to_lowercase()) <= 2);
    if let Some(near) = near {
        error = error.hint(format!("did you mean {near}?"));
    }
    error
}

fn shorten(value: &str) -> String {
    let mut text: String = value.chars().take(60).collect();
    if value.chars().nth(60).is_some() {
        text.push('…');
    }
    text
}

/// Reads a point in time: a day, a time, or an age before `now`.
fn time(value: &str, shown: &str, now: Millis) -> Result<Millis> {
    let midnight = now - now.rem_euclid(DAY);
    let named = || match value.to_lowercase().as_str() {
        "today" => Some(midnight),
        "yesterday" => midnight.checked_sub(DAY),
        _ => None,
    };
    let month = || is_month(value).then(|| clock::parse_time(&format!("{value}-01"))).flatten();
    let year = || is_year(value).then(|| clock::parse_time(&format!("{value}-01-01"))).flatten();
    let ago = || age(value).and_then(|age| now.checked_sub(age));
    clock::parse_time(value).or_else(named).or_else(month).or_else(year).or_else(ago).ok_or_else(|| {
        Error::usage(format!("{shown} cannot be {:?}", shorten(value))).hint(format!("write {TIME_FORM}"))
    })
}

/// Whether a text reads like `2024-01`.
fn is_month(value: &str) -> bool {
    let parts: Vec<&str> = value.split('-').collect();
    let digits = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    parts.iter().all(digits) && parts.iter().map(|part| part.len()).collect::<Vec<_>>() == [4, 2]
}

/// Whether a text reads like a year in which there may be something.
fn is_year(value: &str) -> bool {
    value.len() == 4
        && (value.starts_with("19") || value.starts_with("20"))
        && value.bytes().all(|b| b.is_ascii_digit())
}

/// Reads an age in milliseconds.
fn age(value: &str) -> Option<Millis> {
    let digits = value.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = value.split_at_checked(digits)?;
    let unit = match unit.trim().to_lowercase().as_str() {
        "h" | "hour" | "hours" => HOUR,
        "d" | "day" | "days" => DAY,
        "w" | "week" | "weeks" => 7 * DAY,
        "mo" | "month" | "months" => 30 * DAY,
        "y" | "year" | "years" => 365 * DAY,
        _ => return None,
    };
    number.parse::<Millis>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_is_repeated_is_kept_once() {
        let mut wanted = Wanted::default();
        for _ in 0..3 {
            for (name, value) in [
                ("author", "ann"),
                ("label", "bug"),
                ("project", "a/b"),
                ("type", "mr"),
                ("state", "open"),
                ("is", "open"),
                ("path", "src/"),
            ] {
                wanted.set(name, value, name, 0).unwrap();
            }
        }
        assert_eq!(wanted.each_left_out().len(), 6, "{wanted:?}");
    }

    fn set(name: &str, value: &str) -> Result<Wanted> {
        let mut wanted = Wanted::default();
        wanted.set(name, value, &format!("{name}:"), 1_000_000_000_000)?;
        Ok(wanted)
    }

    #[test]
    fn every_operator_is_known() {
        for name in OPERATORS {
            if let Err(error) = set(name, "x") {
                assert_ne!(error.kind(), ErrorKind::Internal, "{name}");
            }
        }
    }

    #[test]
    fn times_are_days_times_or_ages() {
        assert_eq!(set("after", "1970-01-02").unwrap().created_from, Some(86_400_000));
        assert_eq!(set("after", "7d").unwrap().created_from, Some(1_000_000_000_000 - 7 * 86_400_000));
        assert_eq!(set("updated", "2w").unwrap().updated_from, Some(1_000_000_000_000 - 14 * 86_400_000));
        assert_eq!(set("updated", "2 weeks").unwrap(), set("updated", "2W").unwrap());
        assert_eq!(set("before", "1970-02").unwrap().created_to, Some(31 * 86_400_000));
        assert_eq!(set("before", "1971").unwrap().created_to, Some(365 * 86_400_000));
        // 2001-09-09 01:46:40
        assert_eq!(set("after", "Today").unwrap(), set("after", "2001-09-09").unwrap());
        assert_eq!(set("after", "yesterday").unwrap(), set("after", "2001-09-08T02:00:00+02:00").unwrap());
        for bad in [
            "someday",
            "7",
            "7m",
            "d",
            "-7d",
            "99999999999999999999d",
            "9223372036854775807y",
            "2024-13-01",
            "2024-13",
            "２０２４-01",
        ] {
            let error = set("before", bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{bad}");
            assert!(error.hints().iter().any(|hint| hint.contains("7d")), "{bad}");
        }
    }

    #[test]
    fn a_value_outside_the_list_names_the_accepted_ones() {
        let error = set("type", "isue").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidEnumValue);
        assert!(error.hints().iter().any(|hint| hint.contains("issue, mr, discussion")));
        assert!(error.hints().iter().any(|hint| hint == "did you mean issue?"));
        assert_eq!(set("is", "open").unwrap().states, ["opened"]);
        assert_eq!(set("is", "MR").unwrap(), set("type", "merge_requests").unwrap());
        assert_eq!(set("label", "a , b,,").unwrap().labels, ["a", "b"]);
        assert_eq!(set("label", ",").unwrap().labels, [","]);
        assert_eq!(set("type", "issue, MR").unwrap().types, [SourceType::Issue, SourceType::MergeRequest]);
        assert_eq!(set("author", "@ann,bob").unwrap().authors, ["ann", "bob"]);
        assert_eq!(set("state", "open,ajar").unwrap_err().kind(), ErrorKind::InvalidEnumValue);
        assert_eq!(set("type", "MRs").unwrap().types, [SourceType::MergeRequest]);
        assert_eq!(set("author", "@alice").unwrap().authors, ["alice"]);
    }
}
