//! Makes a project export of any size, shaped like a busy tracker of a programming language:
//! many short comments, few very long ones, code, stack traces, cross-references.
//!
//!     cargo run --release --example gen_export -- OUT [MEGABYTES] [SEED] [tree|legacy]
//!
//! `OUT` ending in `.tar.gz` or `.tar` becomes an archive, anything else a directory. The same
//! arguments give the same bytes. `MEGABYTES` counts the unpacked items; default 110.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

const WORDS: &str = "the a is to of it in that this for we be on not with as are if but can have an \
    or so should which there when would from will just do has by at what some all think also use one \
    like code type error compiler trait lifetime borrow value function macro crate module build test \
    fails panic stack thread memory pointer reference struct enum impl method generic closure iterator \
    string slice vector allocate unsafe inference coherence syntax parser lint warning message issue \
    patch merge review branch rebase commit regression bench slow fast linker target platform windows \
    unicode socket channel mutex buffer overflow integer float cast match pattern guard expression \
    statement block scope hygiene attribute deprecated stable nightly feature gate stabilise document \
    example manual guide wrong missing unexpected output input path file directory cargo version";

const PARTS: [&str; 12] = [
    "resolve", "typeck", "borrowck", "trans", "driver", "metadata", "llvm", "lint", "parse", "fmt", "sync",
    "io",
];

const LABELS: [&str; 16] = [
    "A-typesystem",
    "A-borrowck",
    "A-diagnostics",
    "A-docs",
    "A-libs",
    "A-macros",
    "A-traits",
    "B-unstable",
    "E-easy",
    "E-mentor",
    "I-crash",
    "I-slow",
    "I-wrong",
    "P-high",
    "P-low",
    "regression-from-stable",
];

const USERS: u64 = 600;

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Mostly small, sometimes very large: about `mean` on average.
    fn long_tail(&mut self, mean: u64) -> u64 {
        let uniform = (self.below(1_000_000) + 1) as f64 / 1_000_001.0;
        let scaled = -uniform.ln() * mean as f64;
        if self.chance(1) { scaled as u64 * 8 } else { scaled as u64 }
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        let idx = self.below(from.len() as u64) as usize;
        from[idx % from.len()]
    }

    /// Few users write most, few words are most of the text.
    fn skewed(&mut self, n: u64) -> u64 {
        let (a, b) = (self.below(n), self.below(n));
        a * b / n.max(1)
    }
}

struct Maker {
    random: Random,
    words: Vec<&'static str>,
    next_id: u64,
}

impl Maker {
    fn new(seed: u64) -> Self {
        Self { random: Random(seed), words: WORDS.split_whitespace().collect(), next_id: 1_000 }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1 + self.random.below(9);
        self.next_id
    }

    fn word(&mut self) -> &'static str {
        let n = self.words.len() as u64;
        let idx = self.random.skewed(n) as usize;
        self.words[idx % self.words.len()]
    }

    fn sentence(&mut self, out: &mut String) {
        for idx in 0..4 + self.random.below(16) {
            if idx > 0 {
                out.push(' ');
            }
            let word = self.word();
            match self.random.below(40) {
                0 => out.push_str(&format!("`{word}::{}`", self.word())),
                1 => out.push_str(&format!("#{}", 1 + self.random.below(30_000))),
                2 => out.push_str(&format!("E{:04}", self.random.below(600))),
                3 => out.push_str(&format!("src/lib{}/{}.rs", self.random.pick(&PARTS), word)),
                _ => out.push_str(word),
            }
        }
        out.push_str(". ");
    }

    fn block(&mut self, out: &mut String) {
        out.push_str("\n\n```rust\n");
        if self.random.chance(40) {
            for frame in 0..5 + self.random.below(25) {
                let (part, word, line) = (self.random.pick(&PARTS), self.word(), self.random.below(3_000));
                out.push_str(&format!("{frame:4}: 0x7f{:010x} - {part}::{word}::h{:x}\n", line * 977, line));
                out.push_str(&format!("             at src/lib{part}/{word}.rs:{line}\n"));
            }
        } else {
            for _ in 0..3 + self.random.below(12) {
                let (left, right) = (self.word(), self.word());
                out.push_str(&format!(
                    "    let {left}: &'a {right}<T> = {right}::new({left}.iter().map(|x| x + 1));\n"
                ));
            }
        }
        out.push_str("```\n\n");
    }

    fn text(&mut self, mean_sentences: u64) -> String {
        let mut out = String::new();
        for _ in 0..1 + self.random.long_tail(mean_sentences) {
            self.sentence(&mut out);
            if self.random.chance(6) {
                self.block(&mut out);
            }
        }
        out
    }

    fn time(&mut self, item: u64, note: u64) -> String {
        let seconds = 1_300_000_000 + item * 9_000 + note * 700 + self.random.below(600);
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        // A calendar of twelve months of 28 days is enough, and every date exists.
        let (year, month, day) = (1970 + days / 336, days % 336 / 28 + 1, days % 28 + 1);
        format!(
            "{year}-{month:02}-{day:02}T{:02}:{:02}:{:02}.000Z",
            rest / 3_600,
            rest % 3_600 / 60,
            rest % 60
        )
    }

    fn note(&mut self, item: u64, note: u64, noteable: &str) -> serde_json::Value {
        let (id, user, time) = (self.id(), 1 + self.random.skewed(USERS), self.time(item, note));
        let system = self.random.chance(33);
        let diff = noteable == "MergeRequest" && !system && self.random.chance(12);
        let text = if system {
            format!("mentioned in issue #{}", 1 + self.random.below(30_000))
        } else {
            self.text(4)
        };
        let path = format!("src/lib{}/{}.rs", self.random.pick(&PARTS), self.word());
        let position = diff.then(|| {
            serde_json::json!({"base_sha": format!("{id:040x}"), "start_sha": format!("{id:040x}"),
                "head_sha": format!("{:040x}", id + 1), "old_path": path, "new_path": path,
                "position_type": "text", "old_line": null, "new_line": 1 + id % 900, "line_range": null})
        });
        serde_json::json!({"id": id, "note": text, "noteable_type": noteable, "author_id": user,
            "created_at": time, "updated_at": time, "project_id": 1, "attachment": {"url": null},
            "line_code": null, "commit_id": null, "system": system, "st_diff": null, "updated_by_id": null,
            "type": diff.then_some("DiffNote"), "position": position, "original_position": position,
            "resolved_at": null, "resolved_by_id": null, "discussion_id": format!("{id:040x}"),
            "change_position": null, "resolved_by_push": null, "confidential": null, "last_edited_at": null,
            "author": {"name": format!("User {user}")}, "award_emoji": [], "events": [], "suggestions": []})
    }

    /// One issue (odd numbers) or merge request (even numbers).
    fn item(&mut self, iid: u64) -> serde_json::Value {
        let merge_request = iid.is_multiple_of(2);
        let noteable = if merge_request { "MergeRequest" } else { "Issue" };
        let (id, author, time) = (self.id(), 1 + self.random.skewed(USERS), self.time(iid, 0));
        let notes: Vec<_> =
            (0..self.random.long_tail(12)).map(|note| self.note(iid, note + 1, noteable)).collect();
        let links: Vec<_> = (0..self.random.below(4))
            .map(|_| {
                let (link, label) = (self.id(), self.random.below(LABELS.len() as u64));
                serde_json::json!({"id": link, "target_type": noteable, "created_at": time, "updated_at": time,
                    "label": self::label(label)})
            })
            .collect();
        let mut title = String::new();
        self.sentence(&mut title);
        let state = match (merge_request, self.random.below(10)) {
            (true, 0..8) => "merged",
            (_, 8) => "opened",
            (_, _) => "closed",
        };
        let mut item = serde_json::json!({"id": id, "iid": iid, "title": title.trim_end(), "author_id": author,
            "project_id": 1, "created_at": time, "updated_at": self.time(iid, 99), "description": self.text(8),
            "state": state, "milestone": null, "events": [], "notes": notes, "label_links": links,
            "award_emoji": []});
        if merge_request {
            item["source_branch"] = format!("patch-{iid}").into();
            item["target_branch"] = "master".into();
            item["merge_request_diff"] = serde_json::json!({"merge_request_diff_files": [
                {"relative_order": 0, "utf8_diff": "@@ -1,4 +1,4 @@\n-a\n+b\u{0}\n".repeat(self.random.below(40) as usize)}]});
            item["metrics"] = serde_json::json!({"merged_at": null, "latest_closed_at": null});
        } else {
            item["confidential"] = self.random.chance(1).into();
            item["issue_assignees"] = serde_json::json!([{"user_id": 1 + self.random.skewed(USERS)}]);
            item["work_item_type"] = serde_json::json!({"base_type": "issue"});
        }
        item
    }
}

fn label(idx: u64) -> serde_json::Value {
    serde_json::json!({"id": idx + 1, "title": LABELS[idx as usize % LABELS.len()], "color": "#428bca",
        "project_id": 1, "template": false, "description": "", "type": "ProjectLabel", "priorities": []})
}

fn member(id: u64) -> serde_json::Value {
    serde_json::json!({"id": id, "access_level": 30, "user_id": id, "user": {"id": id, "username": format!("user-{id}")}})
}

/// Counts what is written.
struct Counter<W> {
    inner: W,
    bytes: u64,
}

impl<W: Write> Write for Counter<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buffer)?;
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes the items of one kind until `bytes` are written; returns the bytes.
fn write_items(out: impl Write, seed: u64, first: u64, bytes: u64, between: &str) -> io::Result<u64> {
    let mut maker = Maker::new(seed ^ first);
    let mut out = Counter { inner: out, bytes: 0 };
    let mut iid = first;
    while out.bytes < bytes {
        if iid > first {
            out.write_all(between.as_bytes())?;
        }
        serde_json::to_writer(&mut out, &maker.item(iid))?;
        iid += 2;
    }
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(out.bytes)
}

/// A member: its name, its size, and what writes it.
type Member = (String, u64, Box<dyn Fn(&mut dyn Write) -> io::Result<u64>>);

fn fixed(name: &str, text: String) -> Member {
    let bytes = text.len() as u64;
    (name.to_owned(), bytes, Box::new(move |out| out.write_all(text.as_bytes()).map(|()| bytes)))
}

fn members(seed: u64, bytes: u64, legacy: bool) -> io::Result<Vec<Member>> {
    let lines = |items: &mut dyn Iterator<Item = serde_json::Value>, end: &str| -> String {
        items.map(|item| item.to_string()).collect::<Vec<_>>().join(end)
    };
    let mut members = vec![fixed("VERSION", "0.2.4\n".to_owned())];
    let labels = &mut (0..LABELS.len() as u64).map(label);
    let users = &mut (1..=USERS).map(member);
    if legacy {
        let (labels, users) = (lines(labels, ","), lines(users, ","));
        let write = move |out: &mut dyn Write| -> io::Result<u64> {
            let mut out = Counter { inner: out, bytes: 0 };
            write!(out, "{{\"description\":\"\",\"labels\":[{labels}],\"issues\":[")?;
            write_items(&mut out, seed, 1, bytes / 2, ",")?;
            write!(out, "],\"merge_requests\":[")?;
            write_items(&mut out, seed, 2, bytes / 2, ",")?;
            write!(out, "],\"project_members\":[{users}]}}")?;
            Ok(out.bytes)
        };
        let size = write(&mut io::sink())?;
        members.push(("project.json".to_owned(), size, Box::new(write)));
        return Ok(members);
    }
    members.push(fixed("tree/project.json", "{\"description\":\"\",\"archived\":false}\n".to_owned()));
    for (name, first) in [("issues", 1), ("merge_requests", 2)] {
        let write = move |out: &mut dyn Write| write_items(out, seed, first, bytes / 2, "\n");
        let size = write(&mut io::sink())?;
        members.push((format!("tree/project/{name}.ndjson"), size, Box::new(write)));
    }
    members.push(fixed("tree/project/labels.ndjson", lines(labels, "\n")));
    members.push(fixed("tree/project/project_members.ndjson", lines(users, "\n")));
    Ok(members)
}

fn write_tar(out: impl Write, members: &[Member]) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    for (name, size, write) in members {
        let mut header = tar::Header::new_ustar();
        header.set_path(name)?;
        header.set_mode(0o644);
        header.set_size(*size);
        header.set_cksum();
        out.write_all(header.as_bytes())?;
        let written = write(&mut out)?;
        out.write_all(&vec![0; (512 - (written % 512) as usize) % 512])?;
    }
    out.write_all(&[0; 1_024])?;
    out.flush()
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(out) = args.first() else {
        return Err("usage: gen_export OUT [MEGABYTES] [SEED] [tree|legacy]".into());
    };
    let megabytes: u64 = args.get(1).map_or(Ok(110), |text| text.parse())?;
    let seed: u64 = args.get(2).map_or(Ok(1), |text| text.parse())?;
    let legacy = args.get(3).is_some_and(|layout| layout == "legacy");
    let members = members(seed, megabytes * 1_000_000, legacy)?;
    let path = Path::new(out);
    if out.ends_with(".tar.gz") {
        let mut encoder = flate2::write::GzEncoder::new(File::create(path)?, flate2::Compression::fast());
        write_tar(&mut encoder, &members)?;
        encoder.finish()?;
    } else if out.ends_with(".tar") {
        write_tar(File::create(path)?, &members)?;
    } else {
        for (name, _, write) in &members {
            let path = path.join(name);
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            let mut file = BufWriter::new(File::create(path)?);
            write(&mut file)?;
            file.flush()?;
        }
    }
    Ok(())
}
