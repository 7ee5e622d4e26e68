use bytes::{Buf, Bytes, BytesMut};

use crate::output::Stream;

/// What a follower says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpoolFrame {
    /// `D JOB STREAM OFFSET LENGTH`, then the bytes: output of a job.
    Data {
        /// The job.
        job: String,
        /// The stream.
        stream: Stream,
        /// Where in the stream.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// `P JOB PGID`: the job's process group.
    ProcessGroup {
        /// The job.
        job: String,
        /// Its id.
        pgid: u32,
    },
    /// `X JOB OUT ERR …`: the job is over, and all of its output was sent.
    End {
        /// The job.
        job: String,
        /// What became of it.
        end: SpoolEnd,
    },
    /// `H`: it still is there.
    Alive,
    /// `C`: what there was when it began has been sent.
    CaughtUp,
}

/// What became of a durable job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpoolEnd {
    /// The command exited with this status, as its shell tells it.
    Exited {
        /// The status.
        status: u32,
        /// The signal that was sent to it, if one was.
        sent: Option<String>,
        /// The supervisor ended it because of its time limit.
        timed_out: bool,
    },
    /// The host was restarted.
    HostRebooted,
    /// The supervisor is gone, and has not said how the job ended.
    SupervisorDied,
    /// The spool is gone.
    SpoolGone,
}

/// Divides what a follower prints into frames. What stands before the first frame, as startup files print it, passes unseen.
#[derive(Debug, Default)]
pub struct Frames {
    buffer: BytesMut,
}

/// The longest header that is believed.
const LONGEST_HEADER: usize = 512;
/// The longest piece of output that is.
const LONGEST_DATA: usize = 8 << 20;

impl Frames {
    /// Takes bytes in.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame; none when more has to come first. What is no frame is passed over, line by line.
    pub fn next_frame(&mut self) -> Option<SpoolFrame> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &self.buffer) else {
                if self.buffer.len() > LONGEST_HEADER {
                    self.buffer.clear();
                }
                return None;
            };
            let header = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
            match Header::parse(&header) {
                Some(Header::Data { length, .. }) if self.buffer.len() < end + 1 + length => return None,
                Some(Header::Data { job, stream, offset, length }) => {
                    self.buffer.advance(end + 1);
                    let bytes = self.buffer.split_to(length).freeze();
                    return Some(SpoolFrame::Data { job, stream, offset, bytes });
                }
                Some(Header::Other(frame)) => {
                    self.buffer.advance(end + 1);
                    return Some(frame);
                }
                None => self.buffer.advance(end + 1),
            }
        }
    }
}

enum Header {
    Data { job: String, stream: Stream, offset: u64, length: usize },
    Other(SpoolFrame),
}

impl Header {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        match *words.as_slice() {
            ["D", job, stream, offset, length] => {
                let stream = match stream {
                    "1" => Stream::Stdout,
                    "2" => Stream::Stderr,
                    _ => return None,
                };
                let length = length.parse().ok().filter(|length| *length <= LONGEST_DATA)?;
                Some(Self::Data { job: job.to_owned(), stream, offset: offset.parse().ok()?, length })
            }
            ["P", job, pgid] => {
                Some(Self::Other(SpoolFrame::ProcessGroup { job: job.to_owned(), pgid: pgid.parse().ok()? }))
            }
            ["X", job, _, _, "exited", status, sent, why, ..] => {
                // A job over its quota is ended by SIGTERM.
                let sent = if why == "quota" { "TERM" } else { sent };
                let sent = Some(sent).filter(|sent| *sent != "-").map(str::to_owned);
                let end =
                    SpoolEnd::Exited { status: status.parse().ok()?, sent, timed_out: why == "timeout" };
                Some(Self::Other(SpoolFrame::End { job: job.to_owned(), end }))
            }
            ["X", job, _, _, "lost", why] => {
                let end = match why {
                    "host_rebooted" => SpoolEnd::HostRebooted,
                    "supervisor_died" => SpoolEnd::SupervisorDied,
                    "spool_gone" => SpoolEnd::SpoolGone,
                    _ => return None,
                };
                Some(Self::Other(SpoolFrame::End { job: job.to_owned(), end }))
            }
            ["H"] => Some(Self::Other(SpoolFrame::Alive)),
            ["C"] => Some(Self::Other(SpoolFrame::CaughtUp)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(chunks: &[&[u8]]) -> Vec<SpoolFrame> {
        let (mut frames, mut found) = (Frames::default(), Vec::new());
        for chunk in chunks {
            frames.push(chunk);
            found.extend(std::iter::from_fn(|| frames.next_frame()));
        }
        found
    }

    const TRANSCRIPT: &[u8] = b"welcome!\nP web1-a 42\nD web1-a 1 0 6\none\ntwD web1-b 2 7 3\nD x\nX web1-a 6 0 exited 3 TERM - 1700000000 \nX web1-b 0 10 lost spool_gone\n";

    #[test]
    fn output_may_look_like_frames() {
        let frames = all(&[TRANSCRIPT]);
        assert_eq!(frames.len(), 5, "{frames:?}");
        assert_eq!(
            frames[2],
            SpoolFrame::Data { job: "web1-b".into(), stream: Stream::Stderr, offset: 7, bytes: "D x".into() }
        );
        let end = SpoolEnd::Exited { status: 3, sent: Some("TERM".into()), timed_out: false };
        assert_eq!(frames[3], SpoolFrame::End { job: "web1-a".into(), end });
    }

    proptest! {
        #[test]
        fn frames_do_not_depend_on_how_they_are_cut(cuts in prop::collection::vec(0..TRANSCRIPT.len(), 0..20)) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let (mut chunks, mut from) = (Vec::new(), 0);
            for cut in cuts {
                chunks.push(&TRANSCRIPT[from..cut]);
                from = cut;
            }
            chunks.push(&TRANSCRIPT[from..]);
            prop_assert_eq!(all(&chunks), all(&[TRANSCRIPT]));
        }

        #[test]
        fn whatever_comes_it_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let _frames = all(&[&bytes]);
        }
    }
}
