//! Readers that bound what is read, hash it, and stop when the step stops.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use sha2::{Digest, Sha256};

use crate::engine::cancel::Cancel;
use crate::error::{Error, ErrorKind, io_error};

/// Bytes that may still be read before a limit is exceeded; shared between a reader and the
/// code that knows what comes next.
#[derive(Debug, Clone)]
pub(super) struct Allowance {
    left: Rc<Cell<u64>>,
}

impl Allowance {
    /// Allows `bytes`.
    pub(super) fn new(bytes: u64) -> Self {
        Self { left: Rc::new(Cell::new(bytes)) }
    }

    /// Allows `bytes` from here on.
    pub(super) fn set(&self, bytes: u64) {
        self.left.set(bytes);
    }
}

/// Refuses to read past an allowance, and stops when the step stops.
pub(super) struct Bounded<'a, R> {
    inner: R,
    allowance: Allowance,
    cancel: Option<&'a Cancel>,
    exceeded: String,
}

impl<'a, R: Read> Bounded<'a, R> {
    /// Wraps `inner`; `exceeded` is the error's message when the allowance is used up.
    pub(super) fn new(inner: R, allowance: Allowance, cancel: Option<&'a Cancel>, exceeded: String) -> Self {
        Self { inner, allowance, cancel, exceeded }
    }

    /// The reader inside.
    pub(super) fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(cancel) = self.cancel {
            cancel.check().map_err(io::Error::other)?;
        }
        let n = self.inner.read(buffer)?;
        let left = self.allowance.left.get();
        let Some(left) = left.checked_sub(n as u64) else {
            return Err(io::Error::other(Error::new(ErrorKind::Io, self.exceeded.clone())));
        };
        self.allowance.left.set(left);
        Ok(n)
    }
}

/// Hashes what passes.
pub(super) struct Hashing<'a, R> {
    inner: R,
    hash: Option<&'a mut Sha256>,
}

impl<'a, R: Read> Hashing<'a, R> {
    /// Wraps `inner`; without a hash, bytes just pass.
    pub(super) fn new(inner: R, hash: Option<&'a mut Sha256>) -> Self {
        Self { inner, hash }
    }
}

impl<R: Read> Read for Hashing<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        if let (Some(hash), Some(read)) = (&mut self.hash, buffer.get(..n)) {
            hash.update(read);
        }
        Ok(n)
    }
}

/// Maps an I/O error of reading an export; an error that one of our readers put into it
/// comes out again as it was.
pub(super) fn read_error(doing: impl std::fmt::Display, error: io::Error) -> Error {
    let error = match error.downcast::<Error>() {
        Ok(ours) => return ours,
        Err(error) => error,
    };
    let damaged = matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::InvalidData
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Other
    );
    let error = io_error(doing, error);
    if damaged {
        error.hint("the file is damaged or was not copied whole: export the project again, or copy it again")
    } else {
        error
    }
}
