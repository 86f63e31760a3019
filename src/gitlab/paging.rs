//! Paging: where the next page of a list is.
//!
//! `Link: rel="next"` counts first, then `x-next-page`. Totals are never asked: above 10,000
//! rows they are missing. A short or an empty page is not the end either, since GitLab
//! filters by visibility after it cut the page.

use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::header::HeaderMap;
use url::Url;

use super::address::Address;

/// Rows asked per page: GitLab's maximum.
pub const PER_PAGE: usize = 100;

/// Pages that arrive before a larger one is asked for again.
const PAGES_PER_SIZE: usize = 8;

/// Rows asked per page: fewer after a page that the server could not bring in time, more
/// again as pages arrive.
#[derive(Debug)]
pub(super) struct PageSize {
    rows: AtomicUsize,
    n_arrived: AtomicUsize,
}

impl Default for PageSize {
    fn default() -> Self {
        Self { rows: AtomicUsize::new(PER_PAGE), n_arrived: AtomicUsize::new(0) }
    }
}

impl PageSize {
    /// Rows to ask for now.
    pub(super) fn get(&self) -> usize {
        self.rows.load(Ordering::Relaxed)
    }

    /// A page of `asked` rows was wanted, and one of `got` arrived.
    pub(super) fn arrived(&self, asked: usize, got: usize) {
        let known = self.get();
        if got < asked {
            self.rows.store(got.min(known), Ordering::Relaxed);
            self.n_arrived.store(0, Ordering::Relaxed);
        } else if known < PER_PAGE && self.n_arrived.fetch_add(1, Ordering::Relaxed) + 1 >= PAGES_PER_SIZE {
            self.rows.store(larger(known), Ordering::Relaxed);
            self.n_arrived.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns the URL of the page after `current`, at our own authority, or nothing at the end.
/// `n_rows` is how many rows `current` held.
pub fn next_page(address: &Address, current: &Url, headers: &HeaderMap, n_rows: usize) -> Option<Url> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    // A server that gives fewer rows than asked counts its pages by what it gives.
    let given: Option<u64> = text("x-per-page").and_then(|given| given.parse().ok());
    let sized = |url: Url| match given {
        Some(given) if number(&url, "per_page").is_some_and(|asked| asked > given) => {
            with(&url, "per_page", given)
        }
        Some(_) | None => url,
    };
    if let Some(next) = link_next(headers).and_then(|link| address.own(current, &link)) {
        return Some(sized(next));
    }
    if let Some(next) = text("x-next-page") {
        // Present and empty: the last page.
        let page: u64 = next.parse().ok()?;
        return Some(sized(with_page(current, page)));
    }
    let told = headers.contains_key("link") || headers.contains_key("x-page");
    if !told && n_rows >= per_page(current).unwrap_or(PER_PAGE) {
        // A proxy removed every paging header. A full page may have a successor; asking for
        // one too many costs one request, believing in the end costs the rest of the list.
        let page = number(current, "page").unwrap_or(1);
        return Some(with_page(current, page + 1));
    }
    None
}

fn with_page(current: &Url, page: u64) -> Url {
    with(current, "page", page)
}

/// The URL with another value of one key of its query.
fn with(current: &Url, name: &str, value: u64) -> Url {
    let kept: Vec<(String, String)> = current
        .query_pairs()
        .filter(|(key, _)| key != name)
        .map(|(key, value)| (key.into_owned(), value.into_owned()))
        .collect();
    let mut url = current.clone();
    url.query_pairs_mut().clear().extend_pairs(kept).append_pair(name, &value.to_string());
    url
}

fn number(url: &Url, name: &str) -> Option<u64> {
    url.query_pairs().find(|(key, _)| key == name).and_then(|(_, n)| n.parse().ok())
}

/// Rows that a URL asks for.
pub fn per_page(url: &Url) -> Option<usize> {
    number(url, "per_page").and_then(|n| usize::try_from(n).ok())
}

/// Sizes of pages. Each divides the one before, so that a smaller page starts at exactly the
/// row at which the larger one would have: nothing is lost, nothing comes twice.
const SIZES: [usize; 5] = [PER_PAGE, 50, 25, 5, 1];

/// Returns the URL of the part of a page with which the page begins, or nothing when it is
/// the smallest, or of a size that is not ours. What follows it is told by its answer.
pub fn smaller(url: &Url) -> Option<Url> {
    let size = per_page(url)?;
    let place = SIZES.iter().position(|known| *known == size)?;
    let smaller = *SIZES.get(place + 1)?;
    let (size, small) = (u64::try_from(size).ok()?, u64::try_from(smaller).ok()?);
    let mut out = with(url, "per_page", small);
    // A cursor stands where it stands, whatever the size.
    if let Some(page) = number(url, "page") {
        out = with_page(&out, page.saturating_sub(1).checked_mul(size / small)? + 1);
    }
    Some(out)
}

/// Returns the URL of the single row with which a page begins, and of the row behind it.
/// Nothing when the page is told by a cursor, where the row behind has no address.
pub fn row_and_next(url: &Url, nth: u64) -> Option<(Url, Url)> {
    if url.query_pairs().any(|(key, _)| matches!(&*key, "cursor" | "id_after" | "id_before")) {
        return None;
    }
    let mut row = url.clone();
    while let Some(part) = smaller(&row) {
        row = part;
    }
    let page = number(&row, "page").unwrap_or(1);
    (per_page(&row) == Some(1)).then(|| {
        let next = with_page(&row, page.saturating_add(nth));
        (row, next)
    })
}

/// The next larger size.
pub fn larger(size: usize) -> usize {
    SIZES.iter().rev().copied().find(|known| *known > size).unwrap_or(PER_PAGE)
}

/// Finds the target of `rel="next"` in the `Link` headers.
fn link_next(headers: &HeaderMap) -> Option<String> {
    for value in headers.get_all("link") {
        let Ok(text) = value.to_str() else { continue };
        // A comma may be part of a URL, so entries are cut at their angle brackets.
        for entry in text.split('<').skip(1) {
            let Some((target, parameters)) = entry.split_once('>') else { continue };
            let is_next = parameters.split([';', ',']).any(|parameter| {
                parameter.trim().split_once('=').is_some_and(|(name, relation)| {
                    name.trim().eq_ignore_ascii_case("rel")
                        && relation
                            .trim()
                            .trim_matches('"')
                            .split_ascii_whitespace()
                            .any(|word| word.eq_ignore_ascii_case("next"))
                })
            });
            if is_next {
                return Some(target.trim().to_owned());
            }
        }
    }
    None
}

/// Returns the total that the server tells, for progress only.
pub fn total(headers: &HeaderMap) -> Option<u64> {
    headers.get("x-total")?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    fn next(headers: &[(&str, &str)], n_rows: usize) -> Option<String> {
        let address = Address::parse("https://host/gitlab").unwrap();
        let current = address.url(&["projects", "5", "issues"], &[("per_page", "100"), ("page", "2")]);
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        next_page(&address, &current, &map, n_rows).map(|url| url.to_string())
    }

    const PAGE_3: &str = "https://host/gitlab/api/v4/projects/5/issues?per_page=100&page=3";

    #[test]
    fn a5_03_bugs_8_13_the_link_header_alone_is_enough_in_any_case() {
        let link = "<http://x/api/v4/projects/5/issues?page=1>; rel=\"first\", <http://x/api/v4/projects/5/issues?per_page=100&page=3>; rel=\"next\"";
        assert_eq!(next(&[("LINK", link)], 100).as_deref(), Some(PAGE_3));
        assert_eq!(next(&[("link", link)], 0).as_deref(), Some(PAGE_3), "an empty page is not the end");
        let keyset = "<https://host/gitlab/api/v4/projects?cursor=a,b;c&id_after=42>; rel=next";
        assert_eq!(
            next(&[("Link", keyset)], 1).as_deref(),
            Some("https://host/gitlab/api/v4/projects?cursor=a,b;c&id_after=42")
        );
    }

    #[test]
    fn a5_01_bugs_1_2_totals_are_not_needed() {
        assert_eq!(next(&[("x-next-page", "3"), ("x-page", "2")], 7).as_deref(), Some(PAGE_3));
        assert_eq!(next(&[("x-next-page", ""), ("x-page", "2")], 100), None);
        assert_eq!(next(&[("x-next-page", " ")], 100), None);
        let smaller = next(&[("x-next-page", "3"), ("x-per-page", "20")], 20);
        assert!(smaller.is_some_and(|url| url.ends_with("page=3&per_page=20")), "it counts by twenty");
    }

    #[test]
    fn api_80_a_smaller_page_begins_at_the_same_row() {
        let address = Address::parse("https://host").unwrap();
        for page in [1, 2, 7] {
            let mut url = address
                .url(&["projects", "5", "issues"], &[("per_page", "100"), ("page", &u64::to_string(&page))]);
            let first_row = 100 * (page - 1);
            for size in [50, 25, 5, 1] {
                url = smaller(&url).unwrap();
                assert_eq!(per_page(&url), Some(size));
                assert_eq!((number(&url, "page").unwrap() - 1) * u64::try_from(size).unwrap(), first_row);
            }
            assert_eq!(smaller(&url), None);
        }
        let keyset = address.url(&["projects"], &[("per_page", "100"), ("id_after", "42")]);
        assert_eq!(smaller(&keyset).unwrap().query(), Some("id_after=42&per_page=50"));
        assert_eq!([1, 5, 25, 50, 100].map(larger), [5, 25, 50, 100, 100]);
        assert_eq!(smaller(&address.url(&["version"], &[])), None);
    }

    #[test]
    fn without_any_paging_header_a_full_page_is_followed_and_a_short_one_ends() {
        assert_eq!(next(&[], 100).as_deref(), Some(PAGE_3));
        assert_eq!(next(&[], 99), None);
        assert_eq!(next(&[("link", "<https://x/api/v4/p?page=1>; rel=\"prev\"")], 100), None);
    }
}
