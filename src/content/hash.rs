//! Content hashes: SHA-256 over unambiguous encodings.

use sha2::{Digest, Sha256};

/// Raw SHA-256 digest.
pub type Hash = [u8; 32];

/// Feeds fields into one SHA-256, each with its length in front, so that no two lists of
/// fields can meet in one digest.
#[derive(Debug, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Starts an empty hash.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one field.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
        self
    }

    /// Adds an optional field; absent and empty differ.
    pub fn maybe(&mut self, text: Option<&str>) -> &mut Self {
        self.0.update([u8::from(text.is_some())]);
        self.text(text.unwrap_or_default())
    }

    /// Adds an optional number.
    pub fn number(&mut self, number: Option<i64>) -> &mut Self {
        self.0.update([u8::from(number.is_some())]);
        self.0.update(number.unwrap_or_default().to_le_bytes());
        self
    }

    /// Adds a flag.
    pub fn flag(&mut self, flag: bool) -> &mut Self {
        self.0.update([u8::from(flag)]);
        self
    }

    /// Adds a digest or other bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// Adds a list in the order given.
    pub fn list<S: AsRef<str>>(&mut self, items: &[S]) -> &mut Self {
        self.0.update((items.len() as u64).to_le_bytes());
        for item in items {
            self.text(item.as_ref());
        }
        self
    }

    /// Returns the digest.
    pub fn finish(&mut self) -> Hash {
        std::mem::take(&mut self.0).finalize().into()
    }
}

/// SHA-256 of a text, 64 lower-case hexadecimal digits.
pub fn text_hash(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// SHA-256 of bytes.
pub fn bytes_hash(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// SHA-256 over a list whose order does not matter, hexadecimal.
pub fn list_hash<S: AsRef<str>>(items: &[S]) -> String {
    let mut sorted: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    sorted.sort_unstable();
    hex(&Hasher::new().list(&sorted).finish())
}

/// Lower-case hexadecimal digits of bytes.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_run_into_each_other() {
        let left = Hasher::new().text("ab").text("c").finish();
        let right = Hasher::new().text("a").text("bc").finish();
        assert_ne!(left, right);
        assert_ne!(Hasher::new().maybe(None).finish(), Hasher::new().maybe(Some("")).finish());
    }

    #[test]
    fn list_order_does_not_matter_but_content_does() {
        assert_eq!(list_hash(&["b", "a"]), list_hash(&["a", "b"]));
        assert_ne!(list_hash(&["a,b"]), list_hash(&["a", "b"]));
    }

    #[test]
    fn known_digest() {
        assert_eq!(text_hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
