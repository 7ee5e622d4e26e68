use bytes::{Buf, Bytes, BytesMut};

use crate::output::Stream;

/// What a follower says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpoolFrame {
    /// `D JOB STREAM OFFSET LENGTH`, then the bytes: output of a job, or the part of it that has come.
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
    /// What has come and is not looked at yet.
    input: Bytes,
    /// The beginning of a header that has not come whole.
    header: BytesMut,
    /// Where the data that come next belong.
    data: Option<Data>,
}

/// Data of which the header has come.
#[derive(Debug)]
struct Data {
    job: String,
    stream: Stream,
    offset: u64,
    left: usize,
}

/// The longest header that is believed.
const LONGEST_HEADER: usize = 512;
/// The longest piece of output that is.
const LONGEST_DATA: usize = 8 << 20;

impl Frames {
    /// Takes bytes in, once there is no [next frame](Self::next_frame) in those before.
    pub fn push(&mut self, bytes: Bytes) {
        debug_assert!(self.input.is_empty(), "what came before is taken first");
        self.input = bytes;
    }

    /// The next frame; none when more has to come first. Data are told as they come, in as many frames. What is no frame is passed
    /// over, line by line.
    pub fn next_frame(&mut self) -> Option<SpoolFrame> {
        while !self.input.is_empty() {
            if let Some(data) = &mut self.data {
                let bytes = self.input.split_to(self.input.len().min(data.left));
                let (offset, length) = (data.offset, bytes.len());
                let frame = SpoolFrame::Data { job: data.job.clone(), stream: data.stream, offset, bytes };
                (data.offset, data.left) = (offset + length as u64, data.left - length);
                if data.left == 0 {
                    self.data = None;
                }
                return Some(frame);
            }
            match Header::parse(&self.take_header()?) {
                Some(Header::Data(data)) => self.data = Some(data).filter(|data| data.left > 0),
                Some(Header::Other(frame)) => return Some(frame),
                None => {}
            }
        }
        None
    }

    /// The next line, if it has come whole.
    fn take_header(&mut self) -> Option<String> {
        let end = memchr::memchr(b'\n', &self.input);
        self.header.extend_from_slice(&self.input.split_to(end.unwrap_or(self.input.len())));
        if end.is_none() {
            if self.header.len() > LONGEST_HEADER {
                self.header.clear();
            }
            return None;
        }
        self.input.advance(1);
        Some(String::from_utf8_lossy(&self.header.split()).into_owned())
    }
}

enum Header {
    Data(Data),
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
                let left: usize = length.parse().ok().filter(|length| *length <= LONGEST_DATA)?;
                let offset: u64 = offset.parse().ok()?;
                offset.checked_add(left as u64)?;
                Some(Self::Data(Data { job: job.to_owned(), stream, offset, left }))
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
            frames.push(Bytes::copy_from_slice(chunk));
            found.extend(std::iter::from_fn(|| frames.next_frame()));
        }
        found
    }

    /// The same with data byte by byte.
    fn in_bytes(frame: SpoolFrame) -> Vec<SpoolFrame> {
        let SpoolFrame::Data { job, stream, offset, bytes } = frame else { return vec![frame] };
        let piece = |(at, byte)| (offset + at, Bytes::copy_from_slice(&[byte]));
        let pieces = (0..).zip(bytes).map(piece);
        pieces.map(|(offset, bytes)| SpoolFrame::Data { job: job.clone(), stream, offset, bytes }).collect()
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
            let told = |chunks: &[&[u8]]| all(chunks).into_iter().flat_map(in_bytes).collect::<Vec<_>>();
            prop_assert_eq!(told(&chunks), told(&[TRANSCRIPT]));
        }

        #[test]
        fn whatever_comes_it_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let _frames = all(&[&bytes]);
        }
    }
}
