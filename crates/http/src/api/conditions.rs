//! Conditions of requests on the content of a file (RFC 9110, section 13).

use axum::http::{HeaderMap, HeaderName, header};

/// The entity tags of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tags {
    /// `*`: any content.
    Any,
    /// These contents.
    Listed(Vec<String>),
}

/// The conditions of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    /// If-Match: the content must be one of these.
    pub(crate) matches: Option<Tags>,
    /// If-None-Match: the content must be none of these.
    pub(crate) matches_none: Option<Tags>,
}

impl Conditions {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self {
            matches: tags(headers, &header::IF_MATCH),
            matches_none: tags(headers, &header::IF_NONE_MATCH),
        }
    }

    /// Whether If-Match allows the file with this tag. `None` stands for no file.
    pub(super) fn allows(&self, found: Option<&str>) -> bool {
        match (&self.matches, found) {
            (None, _) | (Some(Tags::Any), Some(_)) => true,
            // Compared strongly: a weak tag matches nothing.
            (Some(Tags::Listed(tags)), Some(found)) => {
                !found.starts_with("W/") && tags.iter().any(|tag| tag == found)
            }
            (Some(_), None) => false,
        }
    }

    /// Whether If-None-Match excludes the file with this tag.
    pub(crate) fn excludes(&self, found: Option<&str>) -> bool {
        match (&self.matches_none, found) {
            (None, _) | (_, None) => false,
            (Some(Tags::Any), Some(_)) => true,
            (Some(Tags::Listed(tags)), Some(found)) => {
                tags.iter().any(|tag| without_weakness(tag) == without_weakness(found))
            }
        }
    }
}

/// Whether a Range applies: If-Range is absent, or has the tag of the content.
pub(super) fn range_applies(headers: &HeaderMap, found: &str) -> bool {
    match headers.get(header::IF_RANGE) {
        None => true,
        Some(tag) => !found.starts_with("W/") && tag.as_bytes() == found.as_bytes(),
    }
}

fn tags(headers: &HeaderMap, name: &HeaderName) -> Option<Tags> {
    let mut listed = Vec::new();
    for value in headers.get_all(name) {
        // A tag that is not ASCII matches no file.
        let value = value.to_str().unwrap_or("?");
        if value.trim() == "*" {
            return Some(Tags::Any);
        }
        listed.extend(value.split(',').map(|tag| tag.trim().to_owned()));
    }
    (!listed.is_empty()).then_some(Tags::Listed(listed))
}

fn without_weakness(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(name: HeaderName, value: &'static str) -> Conditions {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        Conditions::of(&headers)
    }

    #[test]
    fn if_match_compares_strongly() {
        let one_of_two = conditions(header::IF_MATCH, "\"a\", \"b\"");
        assert!(one_of_two.allows(Some("\"b\"")));
        assert!(!one_of_two.allows(Some("\"c\"")));
        assert!(!one_of_two.allows(None));
        assert!(!conditions(header::IF_MATCH, "W/\"a\"").allows(Some("W/\"a\"")));
        let any = conditions(header::IF_MATCH, "*");
        assert!(any.allows(Some("W/\"a\"")) && !any.allows(None));
    }

    #[test]
    fn if_none_match_compares_weakly() {
        let weak = conditions(header::IF_NONE_MATCH, "W/\"a\"");
        assert!(weak.excludes(Some("\"a\"")) && !weak.excludes(Some("\"b\"")));
        let any = conditions(header::IF_NONE_MATCH, "*");
        assert!(any.excludes(Some("\"b\"")) && !any.excludes(None));
    }
}
