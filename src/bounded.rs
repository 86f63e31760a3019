//! Files that people write, read whole: never more than such a file can hold.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Bytes of the largest file that is read whole: configuration, job files, secrets. The
/// largest that anybody wrote has some thousand; what is larger is another kind of file.
pub const MAX_BYTES: u64 = 4 << 20;

/// Reads a file whole.
///
/// # Errors
/// Those of the file system, and [`io::ErrorKind::FileTooLarge`] above [`MAX_BYTES`]: a
/// device that never ends must not fill the memory.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("larger than {} MiB", MAX_BYTES >> 20),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.toml");
        let largest = usize::try_from(MAX_BYTES).unwrap();
        std::fs::write(&path, vec![b'#'; largest]).unwrap();
        assert_eq!(read(&path).unwrap().len(), largest);
        std::fs::write(&path, vec![b'#'; largest + 1]).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
