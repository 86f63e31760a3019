//! Cuts what was typed into tokens. Pure.

/// A piece of a line: what stands before a quoted part, and that part.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Token {
    pub(super) bare: String,
    pub(super) quoted: Option<String>,
}

/// Cuts a line at white space and at quotation marks. A mark without its partner is a space.
pub(super) fn tokens(line: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut current = Token::default();
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        let ends_bare = c.is_whitespace() || c.is_control();
        if !ends_bare && !matches!(c, '"' | '“' | '”') {
            current.bare.push(c);
            continue;
        }
        let opens = !ends_bare && opens_quote(&current.bare);
        let quoted: Option<String> = opens.then(|| closed_part(rest.as_str())).flatten();
        if let Some(quoted) = quoted {
            for _ in 0..=quoted.chars().count() {
                rest.next();
            }
            current.quoted = Some(quoted);
        }
        if current != Token::default() {
            out.push(std::mem::take(&mut current));
        }
    }
    if current != Token::default() {
        out.push(current);
    }
    out
}

/// A token without what nobody sees, its full-width signs as plain ones: another way in which
/// it may be written.
pub(super) fn plainly(token: &str) -> String {
    let narrow = |c: char| match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        c => c,
    };
    token.chars().filter(|c| !is_invisible(*c)).map(narrow).collect()
}

/// Characters that are pasted along and seen by nobody.
pub(super) fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | '\u{ad}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A mark inside a word (`5"`, `a"b`) opens nothing.
fn opens_quote(bare: &str) -> bool {
    matches!(bare, "" | "+" | "-") || bare.ends_with(':')
}

/// The text up to the closing mark.
fn closed_part(rest: &str) -> Option<String> {
    let end = rest.find(['"', '“', '”'])?;
    Some(rest.split_at_checked(end)?.0.to_owned())
}
