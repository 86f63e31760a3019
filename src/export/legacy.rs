//! Streams a legacy `project.json`: one object of many megabytes whose arrays are read
//! element by element.

use std::cell::RefCell;
use std::fmt;
use std::io::{BufReader, Read};

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::container::Member;
use super::convert::Converter;
use super::guard::{Allowance, Bounded, read_error};
use super::{Limits, Read as Found, Relation};
use crate::error::{Error, ErrorKind, Result};

/// Size of the read buffer, in bytes.
const READ_BUFFER: usize = 128 << 10;

/// What is done with the parts of the object.
pub(super) trait Parts {
    /// Whether the array under `key` is wanted, element by element.
    fn wants(&self, key: &str) -> bool;
    /// Uses one element of a wanted array; `index` counts from 0.
    fn element(&mut self, key: &str, index: u64, json: &str) -> Result<()>;
    /// Uses a value that is true or false.
    fn flag(&mut self, _key: &str, _value: bool) {}
}

/// Reads the object and hands out its parts.
///
/// # Errors
/// [`ErrorKind::Io`] when it is no JSON object; those of `parts`.
pub(super) fn each(member: &mut Member<'_>, limits: &Limits, parts: &mut dyn Parts) -> Result<()> {
    let doing = format!("read {} of {}", member.name, member.origin);
    let allowance = Allowance::new(u64::MAX);
    let exceeded = format!("{doing}: an element is longer than {} bytes", limits.line_bytes);
    let bounded = Bounded::new(&mut member.content as &mut dyn Read, allowance.clone(), None, exceeded);
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(READ_BUFFER, bounded));
    let walk =
        Walk { parts: RefCell::new(parts), failed: RefCell::new(None), allowance, limit: limits.line_bytes };
    let outcome = (&walk).deserialize(&mut json).and_then(|()| json.end());
    match (walk.failed.into_inner(), outcome) {
        (Some(error), _) => Err(error),
        (None, Ok(())) => Ok(()),
        (None, Err(error)) if error.is_io() => Err(read_error(doing, error.into())),
        (None, Err(error)) => Err(Error::new(ErrorKind::Io, doing)
            .because(error)
            .hint("the file is damaged or was not copied whole: export the project again, or copy it again")),
    }
}

/// Hands every issue and merge request to `sink`.
///
/// # Errors
/// Those of [`each`] and of `sink`.
pub(super) fn items(
    member: &mut Member<'_>,
    limits: &Limits,
    converter: &Converter<'_>,
    sink: &mut dyn FnMut(Found) -> Result<()>,
) -> Result<()> {
    struct Items<'a> {
        name: String,
        converter: &'a Converter<'a>,
        sink: &'a mut dyn FnMut(Found) -> Result<()>,
    }
    impl Parts for Items<'_> {
        fn wants(&self, key: &str) -> bool {
            relation(key).is_some()
        }
        fn element(&mut self, key: &str, index: u64, json: &str) -> Result<()> {
            let Some(relation) = relation(key) else { return Ok(()) };
            let place = format!("{}: {key}[{index}]", self.name);
            (self.sink)(self.converter.read(relation, &place, json.as_bytes()))
        }
    }
    let mut items = Items { name: member.name.clone(), converter, sink };
    each(member, limits, &mut items)
}

/// Returns which items an array of the legacy layout holds.
pub(super) fn relation(key: &str) -> Option<Relation> {
    match key {
        "issues" => Some(Relation::Issues),
        "merge_requests" => Some(Relation::MergeRequests),
        _ => None,
    }
}

struct Walk<'p> {
    parts: RefCell<&'p mut dyn Parts>,
    failed: RefCell<Option<Error>>,
    allowance: Allowance,
    limit: u64,
}

impl<'de> DeserializeSeed<'de> for &Walk<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &Walk<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the object of a project export")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            map.next_value_seed(Value { walk: self, key: &key })?;
        }
        Ok(())
    }
}

/// One value of the object.
struct Value<'w, 'p, 'k> {
    walk: &'w Walk<'p>,
    key: &'k str,
}

impl<'de> DeserializeSeed<'de> for Value<'_, '_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.walk.parts.borrow().wants(self.key) {
            deserializer.deserialize_any(self)
        } else if self.key == "archived" {
            let flag: Option<bool> = serde::Deserialize::deserialize(deserializer)?;
            self.walk.parts.borrow_mut().flag(self.key, flag.unwrap_or(false));
            Ok(())
        } else {
            deserializer.deserialize_ignored_any(IgnoredAny).map(|_| ())
        }
    }
}

impl<'de> Visitor<'de> for Value<'_, '_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array under {:?}", self.key)
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let budget = self.walk.limit.saturating_add(READ_BUFFER as u64);
        let mut index = 0;
        loop {
            self.walk.allowance.set(budget);
            let Some(element) = seq.next_element::<Box<RawValue>>()? else { break };
            let used = self.walk.parts.borrow_mut().element(self.key, index, element.get());
            if let Err(error) = used {
                *self.walk.failed.borrow_mut() = Some(error);
                return Err(A::Error::custom("stopped"));
            }
            index += 1;
        }
        self.walk.allowance.set(u64::MAX);
        Ok(())
    }
}
