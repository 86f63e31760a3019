//! What holds an export: an archive, a directory, a file, or the binary. Walks the members
//! and refuses what no export holds.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek};
use std::path::{Component, Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};

use super::Limits;
use super::guard::{Allowance, Bounded, Hashing, read_error};
use crate::content::hash::hex;
use crate::engine::cancel::Cancel;
use crate::error::{Error, ErrorKind, Result, io_error};

/// Member of the legacy layout that holds everything.
pub(super) const LEGACY_PROJECT: &str = "project.json";

/// Member of the tree layout that holds the project's own fields.
pub(super) const TREE_PROJECT: &str = "tree/project.json";

/// Members of a directory or of the binary that are read, in this order. Of an archive,
/// every member is looked at.
const KNOWN: [&str; 7] = [
    LEGACY_PROJECT,
    TREE_PROJECT,
    "tree/project/project_members.ndjson",
    "tree/project/labels.ndjson",
    "tree/project/milestones.ndjson",
    "tree/project/issues.ndjson",
    "tree/project/merge_requests.ndjson",
];

/// Bytes that tar headers between two members may take: long names are read into memory.
const HEADER_BYTES: u64 = 4 << 20;

/// Read buffer in front of the decoder, in bytes.
const FILE_BUFFER: usize = 256 << 10;

/// An export that can be read any number of times.
#[derive(Debug)]
pub struct Export {
    place: Place,
    origin: String,
}

#[derive(Debug)]
enum Place {
    Archive { file: File, gzip: bool },
    ProjectJson(File),
    Directory(PathBuf),
    Embedded(&'static [(&'static str, &'static str)]),
}

/// What tells cheaply that an export is still the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Bytes of the archive, or of the known members of a directory.
    pub size: u64,
    /// Newest time of change, in nanoseconds since the epoch; 0 for the built-in sample.
    pub mtime_ns: i128,
}

/// What a walk does after an error of its visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnError {
    /// Ends at once.
    Stop,
    /// Looks at the other members first: one that is hostile matters more.
    LookOn,
}

/// One member during a walk.
pub(super) struct Member<'a> {
    /// Name without a leading `./`.
    pub(super) name: String,
    /// The export, for messages.
    pub(super) origin: &'a str,
    /// Its bytes.
    pub(super) content: &'a mut dyn Read,
}

impl Export {
    /// Opens an archive, an unpacked directory or a `project.json`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when it is missing, may not be read, or is none of these.
    pub fn open(path: &Path) -> Result<Self> {
        let origin = path.display().to_string();
        let meta = fs::metadata(path).map_err(|error| {
            io_error(format!("open export {origin}"), error)
                .hint("set `path` of the source to a GitLab project export: a .tar.gz file or the unpacked directory")
        })?;
        if meta.is_dir() {
            return Ok(Self { place: Place::Directory(path.to_owned()), origin });
        }
        if !meta.is_file() {
            return Err(Error::new(
                ErrorKind::Io,
                format!("open export {origin}: neither a file nor a directory"),
            ));
        }
        let mut file = File::open(path).map_err(|error| io_error(format!("open export {origin}"), error))?;
        let mut head = [0_u8; 512];
        let n = read_head(&mut file, &mut head)
            .map_err(|error| io_error(format!("read export {origin}"), error))?;
        let head = head.get(..n).unwrap_or_default();
        let place = if head.starts_with(&[0x1f, 0x8b]) {
            Place::Archive { file, gzip: true }
        } else if head.trim_ascii_start().starts_with(b"{") {
            Place::ProjectJson(file)
        } else if n == 512 && head.get(257..262) == Some(b"ustar") {
            Place::Archive { file, gzip: false }
        } else {
            return Err(Error::new(
                ErrorKind::Io,
                format!("open export {origin}: neither a tar archive (plain or gzip) nor a project.json"),
            )
            .hint(
                "GitLab writes project exports as .tar.gz: Settings > General > Advanced > Export project",
            ));
        };
        Ok(Self { place, origin })
    }

    /// An export whose members are compiled in.
    pub fn embedded(origin: &str, members: &'static [(&'static str, &'static str)]) -> Self {
        Self { place: Place::Embedded(members), origin: origin.to_owned() }
    }

    /// Path or name, for messages.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns size and time of change, without reading any content.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when the file system does not answer.
    pub fn stamp(&self) -> Result<Stamp> {
        let doing = || format!("look at export {}", self.origin);
        match &self.place {
            Place::Archive { file, .. } | Place::ProjectJson(file) => {
                let meta = file.metadata().map_err(|error| io_error(doing(), error))?;
                Ok(Stamp { size: meta.len(), mtime_ns: mtime_ns(&meta) })
            }
            Place::Directory(root) => {
                let mut stamp = Stamp { size: 0, mtime_ns: 0 };
                for (_, path) in known_files(root, &self.origin)? {
                    let meta = fs::metadata(&path).map_err(|error| io_error(doing(), error))?;
                    stamp.size += meta.len();
                    stamp.mtime_ns = stamp.mtime_ns.max(mtime_ns(&meta));
                }
                Ok(stamp)
            }
            Place::Embedded(members) => {
                Ok(Stamp { size: members.iter().map(|(_, text)| text.len() as u64).sum(), mtime_ns: 0 })
            }
        }
    }

    /// Walks all members and returns the SHA-256 of what was read, hexadecimal.
    ///
    /// `visit` is not called again after its first error. Every header is checked on the
    /// way, and the check sum at the end.
    ///
    /// # Errors
    /// Those of `visit`, of reading, of the limits, and of members that no export holds.
    pub(super) fn walk(
        &self,
        limits: &Limits,
        cancel: &Cancel,
        on_error: OnError,
        visit: &mut dyn FnMut(&mut Member<'_>) -> Result<()>,
    ) -> Result<String> {
        let mut hash = Sha256::new();
        match &self.place {
            Place::Archive { file, gzip } => {
                let mut failed = None;
                let mut careful = |member: &mut Member<'_>| {
                    if failed.is_none() {
                        failed = visit(member).err();
                    }
                    match (&failed, on_error) {
                        (Some(_), OnError::LookOn) | (None, _) => cancel.check(),
                        (Some(_), OnError::Stop) => Err(Error::internal("stopped")),
                    }
                };
                let walked = self.walk_archive(file, *gzip, limits, cancel, &mut hash, &mut careful);
                match (failed, walked, on_error) {
                    (Some(error), _, OnError::Stop) | (Some(error), Ok(()), OnError::LookOn) => {
                        return Err(error);
                    }
                    (_, walked, _) => walked?,
                }
            }
            Place::ProjectJson(file) => {
                self.rewind(file)?;
                self.visit_file(LEGACY_PROJECT, file, limits, cancel, &mut hash, visit)?;
            }
            Place::Directory(root) => {
                for (name, path) in known_files(root, &self.origin)? {
                    let file = File::open(&path)
                        .map_err(|error| io_error(format!("open {name} of {}", self.origin), error))?;
                    self.visit_file(name, &file, limits, cancel, &mut hash, visit)?;
                }
            }
            Place::Embedded(members) => {
                for (name, text) in *members {
                    self.visit_file(name, text.as_bytes(), limits, cancel, &mut hash, visit)?;
                }
            }
        }
        Ok(hex(&hash.finalize()))
    }

    fn rewind(&self, mut file: &File) -> Result<()> {
        file.rewind().map_err(|error| io_error(format!("read export {}", self.origin), error))
    }

    fn visit_file(
        &self,
        name: &str,
        content: impl Read,
        limits: &Limits,
        cancel: &Cancel,
        hash: &mut Sha256,
        visit: &mut dyn FnMut(&mut Member<'_>) -> Result<()>,
    ) -> Result<()> {
        hash.update(name.as_bytes());
        hash.update([0]);
        let hashing = Hashing::new(content, Some(hash));
        let allowance = Allowance::new(limits.unpacked_bytes);
        let mut content = Bounded::new(hashing, allowance, Some(cancel), too_large(&self.origin, limits));
        visit(&mut Member { name: name.to_owned(), origin: &self.origin, content: &mut content })?;
        drain(&mut content).map_err(|error| read_error(format!("read {name} of {}", self.origin), error))
    }

    fn walk_archive(
        &self,
        file: &File,
        gzip: bool,
        limits: &Limits,
        cancel: &Cancel,
        hash: &mut Sha256,
        visit: &mut dyn FnMut(&mut Member<'_>) -> Result<()>,
    ) -> Result<()> {
        let doing = || format!("read export {}", self.origin);
        self.rewind(file)?;
        let raw = BufReader::with_capacity(FILE_BUFFER, Hashing::new(file, Some(hash)));
        let plain: Box<dyn Read + '_> = if gzip { Box::new(MultiGzDecoder::new(raw)) } else { Box::new(raw) };
        let total = Bounded::new(
            plain,
            Allowance::new(limits.unpacked_bytes),
            Some(cancel),
            too_large(&self.origin, limits),
        );
        // What comes between two members are headers; a name of gigabytes would fill memory.
        let next = Allowance::new(HEADER_BYTES);
        let headers = format!("{}: headers of more than {HEADER_BYTES} bytes in front of a member", doing());
        let mut archive = tar::Archive::new(Bounded::new(total, next.clone(), None, headers));
        for entry in archive.entries().map_err(|error| read_error(doing(), error))? {
            let mut entry = entry.map_err(|error| read_error(doing(), error))?;
            next.set(entry.size().saturating_add(HEADER_BYTES));
            let name = member_name(&entry).map_err(|problem| self.refused(&entry, problem))?;
            if let Some(name) = name {
                visit(&mut Member { name, origin: &self.origin, content: &mut entry })?;
            }
        }
        next.set(u64::MAX);
        // To the very end: the check sum of gzip is behind the last block.
        let mut rest = archive.into_inner().into_inner();
        drain(&mut rest).map_err(|error| read_error(doing(), error))
    }

    fn refused(&self, entry: &tar::Entry<'_, impl Read>, problem: &str) -> Error {
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        Error::new(ErrorKind::Io, format!("refuse export {}: member {name:?} is {problem}", self.origin))
            .hint("GitLab's exports hold plain files and directories only: do not use this archive, and find out where it comes from")
    }
}

fn too_large(origin: &str, limits: &Limits) -> String {
    format!("read export {origin}: more than {} bytes unpacked", limits.unpacked_bytes)
}

fn read_head(file: &mut File, head: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while let Some(rest) = head.get_mut(n..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => break,
            read => n += read,
        }
    }
    file.rewind()?;
    Ok(n)
}

fn drain(reader: &mut impl Read) -> io::Result<()> {
    io::copy(reader, &mut io::sink()).map(|_| ())
}

fn mtime_ns(meta: &fs::Metadata) -> i128 {
    let Ok(time) = meta.modified() else { return 0 };
    match time.duration_since(std::time::UNIX_EPOCH) {
        Ok(after) => i128::try_from(after.as_nanos()).unwrap_or(i128::MAX),
        Err(before) => i128::try_from(before.duration().as_nanos()).map_or(0, |ns| -ns),
    }
}

/// Returns the name of a regular file, nothing for a directory, and what is wrong with
/// everything else.
fn member_name(entry: &tar::Entry<'_, impl Read>) -> Result<Option<String>, &'static str> {
    use tar::EntryType;
    let is_file = match entry.header().entry_type() {
        EntryType::Regular | EntryType::Continuous => true,
        EntryType::Directory => false,
        // Settings for all later members; the reader of tar files applies what matters.
        EntryType::XGlobalHeader => return Ok(None),
        EntryType::Symlink => return Err("a symbolic link"),
        EntryType::Link => return Err("a hard link"),
        EntryType::Char | EntryType::Block => return Err("a device"),
        EntryType::Fifo => return Err("a named pipe"),
        EntryType::GNUSparse => return Err("a sparse file"),
        _ => return Err("of a kind that is not known"),
    };
    let path = entry.path().map_err(|_| "named by what is no path")?;
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => parts.push(part.to_string_lossy()),
            Component::CurDir => {}
            Component::ParentDir => return Err("outside the archive (\"..\" in its path)"),
            Component::RootDir | Component::Prefix(_) => {
                return Err("outside the archive (an absolute path)");
            }
        }
    }
    Ok(is_file.then(|| parts.join("/")))
}

/// Returns the known members that a directory holds, with their paths. A link among them or
/// above them is refused, as in an archive.
fn known_files(root: &Path, origin: &str) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut files = Vec::new();
    for name in KNOWN {
        let mut path = root.to_owned();
        let mut meta = None;
        for part in name.split('/') {
            path.push(part);
            meta = match fs::symlink_metadata(&path) {
                Ok(found) if found.is_symlink() => {
                    return Err(Error::new(
                        ErrorKind::Io,
                        format!("refuse export {origin}: {} is a symbolic link", path.display()),
                    )
                    .hint("unpack the export again, without links"));
                }
                Ok(found) => Some(found),
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    None
                }
                Err(error) => return Err(io_error(format!("look at {}", path.display()), error)),
            };
            if meta.is_none() {
                break;
            }
        }
        match meta {
            Some(meta) if meta.is_file() => files.push((name, path)),
            Some(_) | None => {}
        }
    }
    Ok(files)
}
