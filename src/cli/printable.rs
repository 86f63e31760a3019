//! Text from outside, made safe for a terminal.

use std::borrow::Cow;

/// Replaces what would move the cursor, change the window or reorder what is read: control
/// characters other than the tab and the end of a line, and marks of writing direction that
/// stay open. Colours are kept where they are wanted.
pub(super) fn printable(text: &str, colours: bool) -> Cow<'_, str> {
    if !text.contains(harms) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let colour = if colours && c == '\u{1b}' { colour_at(rest) } else { None };
        let (taken, shown) = match colour {
            Some(code) => (code.len(), code),
            None => {
                (c.len_utf8(), if harms(c) { "\u{fffd}" } else { rest.get(..c.len_utf8()).unwrap_or("") })
            }
        };
        out.push_str(shown);
        rest = rest.get(taken..).unwrap_or_default();
    }
    Cow::Owned(out)
}

fn harms(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The colour code that a text begins with: `ESC [ numbers m`.
fn colour_at(text: &str) -> Option<&str> {
    let numbers = text.strip_prefix("\u{1b}[")?;
    let end = numbers.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    if !numbers.get(end..)?.starts_with('m') {
        return None;
    }
    text.get(..end + "\u{1b}[m".len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_cannot_drive_the_terminal() {
        let title = "a\u{1b}]0;owned\u{7}b\u{1b}[2Jc\u{202e}d\re";
        for colours in [false, true] {
            let shown = printable(title, colours);
            assert!(!shown.contains(harms), "{shown:?}");
            assert!(shown.ends_with('e'));
        }
    }

    #[test]
    fn colours_are_kept_only_where_they_are_wanted() {
        let painted = "\u{1b}[1;31mred\u{1b}[0m \u{1b}[31";
        assert_eq!(printable(painted, true), "\u{1b}[1;31mred\u{1b}[0m \u{fffd}[31");
        assert_eq!(printable("\u{1b}[1mx", false), "\u{fffd}[1mx");
        assert_eq!(printable("plain\n\tüñ 日本", false), "plain\n\tüñ 日本");
    }
}
