//! URIs of resources.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::{Url, form_urlencoded};

use crate::app::LOG_APP;
use crate::skill;
use sshjobs_wire::{Error, StreamArg};

/// A resource, as identified by its URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResourceUri {
    /// `ssh-job://ID/log{?since,stream}`: a job's lines after `since`.
    Log {
        job_id: String,
        since: i64,
        stream: StreamArg,
    },
    /// `ssh-host://NAME`: a host, as far as it is known without connecting.
    Host(String),
    /// `ssh-tag://TAG`: the hosts with a tag.
    Tag(String),
    /// [`LOG_APP`]: the page that shows a job's log.
    LogApp,
    /// `skill://…`: a file of the served skill.
    Skill(&'static str),
}

/// URI templates of the three (RFC 6570).
pub(crate) const LOG: &str = "ssh-job://{job_id}/log{?since,stream}";
pub(crate) const HOST: &str = "ssh-host://{host}";
pub(crate) const TAG: &str = "ssh-tag://{tag}";

/// Characters that are escaped in a job's id. The id of a fleet's member has a slash.
const IN_AUTHORITY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

impl ResourceUri {
    /// URI of a job's log from its first line on.
    pub(crate) fn of_log(job_id: &str) -> String {
        let job_id = utf8_percent_encode(job_id, IN_AUTHORITY);
        format!("ssh-job://{job_id}/log")
    }

    /// Parses a URI.
    ///
    /// # Errors
    /// `not_found` for a URI of another form.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        Self::read(text).ok_or_else(|| {
            let hint = format!("resources are {LOG}, {HOST}, {TAG} and {LOG_APP}");
            Error::new(
                sshjobs_wire::Code::NotFound,
                "there is no such resource",
                hint,
            )
        })
    }

    fn read(text: &str) -> Option<Self> {
        // Not parsed as a URL: a host's name may contain characters that an authority can't.
        if text == LOG_APP {
            return Some(Self::LogApp);
        }
        if let Some(file) = skill::file(text) {
            return Some(Self::Skill(file));
        }
        let (scheme, rest) = text.split_once("://")?;
        match scheme {
            "ssh-host" => Some(Self::Host(decoded(rest)?)),
            "ssh-tag" => Some(Self::Tag(decoded(rest)?)),
            "ssh-job" => {
                let url = Url::parse(text).ok()?;
                if url.path() != "/log" || url.port().is_some() {
                    return None;
                }
                let job_id = decoded(url.host_str()?)?;
                let mut since = 0;
                let mut stream = StreamArg::Both;
                for (name, value) in url.query_pairs() {
                    match &*name {
                        "since" => since = value.parse().ok()?,
                        "stream" => {
                            stream = serde_json::from_value(value.into_owned().into()).ok()?
                        }
                        _ => return None,
                    }
                }
                Some(Self::Log {
                    job_id,
                    since,
                    stream,
                })
            }
            _ => None,
        }
    }
}

/// A name with its percent escapes decoded.
fn decoded(text: &str) -> Option<String> {
    // Separators of a URI or of a form, which may appear in a name only as escapes.
    if text.contains(['/', '?', '#', '&', '=', '+']) {
        return None;
    }
    let (name, _) = form_urlencoded::parse(text.as_bytes()).next()?;
    Some(name.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_stands_for_a_log_a_host_or_a_tag() {
        let log = |since, stream| ResourceUri::Log {
            job_id: "web1-7f3k9q2m".to_owned(),
            since,
            stream,
        };
        assert_eq!(
            ResourceUri::read("ssh-job://web1-7f3k9q2m/log"),
            Some(log(0, StreamArg::Both))
        );
        assert_eq!(
            ResourceUri::read("ssh-job://web1-7f3k9q2m/log?since=7&stream=stderr"),
            Some(log(7, StreamArg::Stderr))
        );
        let member = "fleet-7f3k9q2m/deploy@web1:22";
        let member_log = ResourceUri::Log {
            job_id: member.to_owned(),
            since: 0,
            stream: StreamArg::Both,
        };
        assert_eq!(
            ResourceUri::read(&ResourceUri::of_log(member)),
            Some(member_log)
        );
        assert_eq!(
            ResourceUri::read("ssh-host://web1"),
            Some(ResourceUri::Host("web1".to_owned()))
        );
        assert_eq!(
            ResourceUri::read("ssh-host://a%2Fb"),
            Some(ResourceUri::Host("a/b".to_owned()))
        );
        assert_eq!(
            ResourceUri::read("ssh-tag://ci"),
            Some(ResourceUri::Tag("ci".to_owned()))
        );
        for text in [
            "",
            "ssh-job://",
            "ssh-job://x",
            "ssh-job://x/y",
            "ssh-job://x/log?since=a",
            "ssh-job://x/log?sinse=1",
            "ssh-job://x:22/log",
            "ssh-host://",
            "ssh-host://a/b",
            "file:///etc/passwd",
        ] {
            assert_eq!(ResourceUri::read(text), None, "{text}");
        }
    }
}
