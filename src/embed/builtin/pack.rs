//! Reads the packed model: a header, a table of named sections, and the sections.
//!
//! models/README.md describes the format, models/pack.py writes it. Nothing of weight is
//! copied: sections are slices of the bytes given.

use crate::error::{Error, Result};

const MAGIC: &[u8] = b"LOREPACK";
const VERSION: u32 = 1;
const HEADER: usize = 40;
const ENTRY: usize = 32;
const NAME: usize = 16;

/// Sizes of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub hidden: usize,
    pub n_layers: usize,
    pub n_heads: usize,
    pub inner: usize,
    pub n_pieces: usize,
    pub n_positions: usize,
}

/// The bytes of a packed model, whose header has been read.
#[derive(Debug)]
pub(super) struct Pack {
    pub sizes: Sizes,
    bytes: &'static [u8],
    n_sections: usize,
}

impl Pack {
    pub(super) fn read(bytes: &'static [u8]) -> Result<Self> {
        if bytes.get(..MAGIC.len()) != Some(MAGIC) {
            return Err(broken("it does not start with its magic bytes"));
        }
        let number = |at: usize| u32_at(bytes, MAGIC.len() + at * 4).ok_or_else(|| broken("it is cut short"));
        let version = number(0)?;
        if version != VERSION {
            return Err(broken(&format!("it has version {version}, want {VERSION}")));
        }
        let size = |at: usize| number(at).map(|value| value as usize);
        let sizes = Sizes {
            hidden: size(1)?,
            n_layers: size(2)?,
            n_heads: size(3)?,
            inner: size(4)?,
            n_pieces: size(5)?,
            n_positions: size(6)?,
        };
        Ok(Self { sizes, bytes, n_sections: size(7)? })
    }

    /// The section of this name, which must be `len` bytes long when a length is given.
    pub(super) fn section(&self, name: &str, len: Option<usize>) -> Result<&'static [u8]> {
        let mut padded = [0; NAME];
        let start = padded.get_mut(..name.len()).ok_or_else(|| broken(&format!("no section {name}")))?;
        start.copy_from_slice(name.as_bytes());
        let table = self.bytes.get(HEADER..HEADER + self.n_sections * ENTRY).unwrap_or_default();
        let entry = table
            .chunks_exact(ENTRY)
            .find(|entry| entry.starts_with(&padded))
            .ok_or_else(|| broken(&format!("it has no section {name}")))?;
        let number = |at: usize| u32_at(entry, at).map_or(0, |value| value as usize);
        // Positions and lengths are stored in 64 bits; the file is far smaller than 4 GiB.
        let (at, found) = (number(NAME), number(NAME + 8));
        let section = at.checked_add(found).and_then(|end| self.bytes.get(at..end));
        match section {
            Some(section) if len.is_none_or(|len| len == found) => Ok(section),
            Some(_) | None => Err(broken(&format!("section {name} has a wrong length of {found} bytes"))),
        }
    }

    /// A section of `len` floats.
    pub(super) fn floats(&self, name: &str, len: usize) -> Result<Vec<f32>> {
        let section = self.section(name, Some(len * 4))?;
        Ok(section.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}

/// The number at a place, little endian.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes))
}

fn broken(what: &str) -> Error {
    Error::internal(format!("read the builtin model: {what}"))
        .hint("write models/minilm-l6-int8.bin again with models/pack.py and rebuild")
}

#[cfg(test)]
mod tests {
    use super::Pack;

    fn message(bytes: &'static [u8]) -> String {
        Pack::read(bytes).unwrap_err().full_message()
    }

    #[test]
    fn a_file_of_another_kind_or_version_is_refused() {
        assert!(message(b"").contains("magic"));
        assert!(message(b"LOREPACK\x01").contains("cut short"));
        assert!(message(b"LOREPACK\x02\0\0\0").contains("version 2, want 1"));
    }

    #[test]
    fn a_section_outside_the_file_is_refused() {
        let mut bytes = b"LOREPACK\x01\0\0\0".to_vec();
        bytes.extend([0; 24]);
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(b"positions\0\0\0\0\0\0\0");
        bytes.extend(72_u64.to_le_bytes());
        bytes.extend(4_u64.to_le_bytes());
        bytes.extend([0; 3]);
        let pack = Pack::read(bytes.leak()).unwrap();
        assert!(pack.section("positions", None).unwrap_err().full_message().contains("wrong length"));
        assert!(pack.section("words", None).unwrap_err().full_message().contains("no section words"));
    }
}
