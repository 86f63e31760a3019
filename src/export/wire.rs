//! The fields of an export that are used, as they are written there. Everything else is
//! skipped without being built: events, diffs and award emoji are most of the bytes.
//!
//! Reading is tolerant: what can be missing or null is optional, and texts survive lone
//! surrogates and NUL.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, de};

use super::Users;
use crate::clock::{Millis, parse_time};
use crate::content::{DiffPosition, Label, Milestone};

/// Parses one line, or says what is wrong with it and in which column.
pub(super) fn parse<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, String> {
    serde_json::from_slice(json).map_err(|error| {
        let text = error.to_string();
        let problem = text.split_once(" at line ").map_or(text.as_str(), |(problem, _)| problem);
        format!("{problem} (column {})", error.column())
    })
}

/// A text without NUL; what is no Unicode in it became U+FFFD.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Text(pub(super) String);

impl Text {
    fn new(text: &str) -> Self {
        if text.contains('\0') { Self(text.replace('\0', "")) } else { Self(text.to_owned()) }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text::new(text))
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Text, E> {
                Ok(Text::new(&String::from_utf8_lossy(bytes)))
            }
        }
        // As bytes: a text with half a surrogate pair is refused as a string.
        deserializer.deserialize_bytes(TextVisitor)
    }
}

/// Returns the text of an optional field.
pub(super) fn text(field: Option<Text>) -> Option<String> {
    field.map(|text| text.0)
}

/// Returns the text of an optional field that means nothing when it is empty.
pub(super) fn filled(field: Option<Text>) -> Option<String> {
    text(field).filter(|text| !text.trim().is_empty())
}

/// Returns the time of an optional field.
pub(super) fn time(field: Option<&Text>) -> Option<Millis> {
    parse_time(&field?.0)
}

#[derive(Debug, Deserialize)]
pub(super) struct WireIssue {
    pub(super) id: Option<i64>,
    pub(super) iid: i64,
    pub(super) title: Option<Text>,
    pub(super) description: Option<Text>,
    pub(super) state: Option<Text>,
    pub(super) state_id: Option<i64>,
    pub(super) issue_type: Option<Text>,
    pub(super) work_item_type: Option<WireWorkItemType>,
    pub(super) confidential: Option<bool>,
    pub(super) author_id: Option<i64>,
    pub(super) author: Option<WireAuthor>,
    pub(super) assignee_id: Option<i64>,
    pub(super) issue_assignees: Option<Vec<WireAssignee>>,
    pub(super) label_links: Option<Vec<WireLabelLink>>,
    pub(super) milestone: Option<WireMilestone>,
    pub(super) created_at: Option<Text>,
    pub(super) updated_at: Option<Text>,
    pub(super) closed_at: Option<Text>,
    pub(super) due_date: Option<Text>,
    pub(super) moved_to_id: Option<i64>,
    pub(super) notes: Option<Vec<WireNote>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireMergeRequest {
    pub(super) id: Option<i64>,
    pub(super) iid: i64,
    pub(super) title: Option<Text>,
    pub(super) description: Option<Text>,
    pub(super) state: Option<Text>,
    pub(super) state_id: Option<i64>,
    pub(super) draft: Option<bool>,
    pub(super) work_in_progress: Option<bool>,
    pub(super) author_id: Option<i64>,
    pub(super) author: Option<WireAuthor>,
    pub(super) assignee_id: Option<i64>,
    pub(super) merge_request_assignees: Option<Vec<WireAssignee>>,
    pub(super) label_links: Option<Vec<WireLabelLink>>,
    pub(super) milestone: Option<WireMilestone>,
    pub(super) source_branch: Option<Text>,
    pub(super) target_branch: Option<Text>,
    pub(super) created_at: Option<Text>,
    pub(super) updated_at: Option<Text>,
    pub(super) merged_at: Option<Text>,
    pub(super) closed_at: Option<Text>,
    pub(super) metrics: Option<WireMetrics>,
    pub(super) notes: Option<Vec<WireNote>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireMetrics {
    pub(super) merged_at: Option<Text>,
    pub(super) latest_closed_at: Option<Text>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireWorkItemType {
    pub(super) base_type: Option<Text>,
    pub(super) name: Option<Text>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireAuthor {
    pub(super) name: Option<Text>,
    pub(super) username: Option<Text>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireAssignee {
    pub(super) user_id: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireLabelLink {
    pub(super) label: Option<WireLabel>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireLabel {
    id: Option<i64>,
    title: Option<Text>,
    color: Option<Text>,
    description: Option<Text>,
}

impl WireLabel {
    /// The label, when it has a name.
    pub(super) fn label(self) -> Option<Label> {
        Some(Label {
            gitlab_id: self.id,
            name: filled(self.title)?,
            color: filled(self.color),
            description: filled(self.description),
        })
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireMilestone {
    id: Option<i64>,
    iid: Option<i64>,
    title: Option<Text>,
    description: Option<Text>,
    state: Option<Text>,
    due_date: Option<Text>,
}

impl WireMilestone {
    /// The milestone, when it has a title and an id.
    pub(super) fn milestone(self) -> Option<Milestone> {
        Some(Milestone {
            gitlab_id: self.id?,
            iid: self.iid,
            title: filled(self.title)?,
            description: filled(self.description),
            state: filled(self.state),
            due_date: filled(self.due_date),
            web_url: None,
        })
    }

    /// The title alone: an item names its milestone even when the id is missing.
    pub(super) fn title(&self) -> Option<String> {
        filled(self.title.clone())
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireMember {
    user_id: Option<i64>,
    user: Option<WireUser>,
}

#[derive(Debug, Deserialize)]
struct WireUser {
    id: Option<i64>,
    username: Option<Text>,
}

impl WireMember {
    /// Id and user name; an invitation by e-mail has neither.
    pub(super) fn user(self) -> Option<(i64, String)> {
        let user = self.user?;
        Some((user.id.or(self.user_id)?, filled(user.username)?))
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireNote {
    pub(super) id: Option<i64>,
    pub(super) note: Option<Text>,
    #[serde(rename = "type")]
    pub(super) note_type: Option<Text>,
    pub(super) system: Option<bool>,
    pub(super) confidential: Option<bool>,
    pub(super) internal: Option<bool>,
    pub(super) author_id: Option<i64>,
    pub(super) author: Option<WireAuthor>,
    pub(super) created_at: Option<Text>,
    pub(super) updated_at: Option<Text>,
    pub(super) discussion_id: Option<Text>,
    pub(super) resolved_at: Option<Text>,
    pub(super) resolved_by_id: Option<i64>,
    #[serde(default, deserialize_with = "position")]
    pub(super) position: Option<DiffPosition>,
}

#[derive(Debug, Deserialize)]
struct WirePosition {
    position_type: Option<Text>,
    old_path: Option<Text>,
    new_path: Option<Text>,
    #[serde(default, deserialize_with = "line_number")]
    old_line: Option<i64>,
    #[serde(default, deserialize_with = "line_number")]
    new_line: Option<i64>,
}

impl From<WirePosition> for DiffPosition {
    fn from(wire: WirePosition) -> Self {
        Self {
            position_type: filled(wire.position_type),
            old_path: filled(wire.old_path),
            new_path: filled(wire.new_path),
            old_line: wire.old_line,
            new_line: wire.new_line,
        }
    }
}

/// Reads a position: an object, the same as a JSON text, or something older that is dropped.
fn position<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DiffPosition>, D::Error> {
    struct PositionVisitor;
    impl<'de> Visitor<'de> for PositionVisitor {
        type Value = Option<DiffPosition>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a position in a diff")
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(serde_json::from_str::<WirePosition>(text).ok().map(Into::into))
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            WirePosition::deserialize(MapAccessDeserializer::new(map)).map(|wire| Some(wire.into()))
        }
    }
    deserializer.deserialize_any(PositionVisitor)
}

/// Reads a line number: a number, a text that holds one, or nothing.
fn line_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(value.as_i64().or_else(|| value.as_str()?.trim().parse().ok()))
}

/// Looks up a user name.
pub(super) fn username(users: &Users, id: Option<i64>) -> Option<String> {
    users.get(&id?).cloned()
}
