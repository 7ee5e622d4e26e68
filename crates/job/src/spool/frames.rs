//! Parses the output of a follower. Malformed input never panics and never blocks.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

use crate::UsageSample;
use sshjobs_output::Stream;

/// A frame sent by a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpoolFrame {
    /// `D JOB STREAM OFFSET LENGTH`, then the bytes: output of a job, or the part that has arrived.
    Data {
        /// The job.
        job: String,
        /// The stream.
        stream: Stream,
        /// Offset in the stream.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// `P JOB PGID ATTEMPT`: the job's process group. ATTEMPT is `-` if it can't be started again.
    ProcessGroup {
        /// The job.
        job: String,
        /// Its id.
        pgid: u32,
        /// How often the command was started, if it can be started again.
        attempt: Option<u32>,
    },
    /// `M JOB AT CPU MEMORY GPU…`: the job's use of resources.
    Usage {
        /// The job.
        job: String,
        /// The sample.
        sample: UsageSample,
    },
    /// `X JOB OUT ERR …`: the job has ended, and all of its output was sent.
    End {
        /// The job.
        job: String,
        /// Bytes of stdout on the host.
        stdout: u64,
        /// Bytes of stderr on the host.
        stderr: u64,
        /// The job's end.
        end: SpoolEnd,
    },
    /// `H`: the follower is alive.
    Alive,
    /// `C`: everything that existed at its start was sent.
    CaughtUp,
}

/// End of a durable job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpoolEnd {
    /// The command exited with this status, as reported by its shell.
    Exited {
        /// The status.
        status: u32,
        /// The signal that was sent to it, if any.
        sent: Option<String>,
        /// The limit because of which the supervisor ended it, if it did.
        limit: Option<SpoolLimit>,
        /// Measurements by the host.
        measured: EndFigures,
    },
    /// The host was rebooted.
    HostRebooted,
    /// The supervisor was killed before it reported how the job ended.
    SupervisorDied,
    /// The spool was deleted.
    SpoolGone,
}

/// A limit of a durable job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpoolLimit {
    /// Its time limit.
    Time,
    /// Maximum bytes of its output on the host.
    Quota,
}

/// Figures of a job that has ended. `None` if its host does not measure them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndFigures {
    /// Number of processes that the kernel killed in the supervisor's control group while the job ran,
    /// because memory ran out.
    pub kills_in_cgroup: Option<u64>,
    /// The same on the whole host.
    pub kills_on_host: Option<u64>,
    /// Processor time of the job's processes.
    pub cpu: Option<Duration>,
    /// The most memory that one of its processes used, in bytes.
    pub peak_memory: Option<u64>,
    /// Whether a signal ended the command. Otherwise it exited, perhaps with a status by which a shell reports
    /// a signal.
    pub by_signal: Option<bool>,
    /// Time of the end, in seconds since 1970 by the host's clock.
    pub ended_at: Option<u64>,
    /// How often the command was started, if it could be started again.
    pub attempts: Option<u32>,
}

impl EndFigures {
    /// Parses the words from the time of the end on. Earlier versions of the supervisor note only that.
    fn parse(words: &[&str]) -> Self {
        let ended_at = words.first().and_then(|word| word.parse().ok());
        let [
            _,
            kills_in_cgroup,
            kills_on_host,
            user,
            system,
            peak_kib,
            how,
            ref rest @ ..,
        ] = *words
        else {
            return Self {
                ended_at,
                ..Self::default()
            };
        };
        let cpu = shell_time(user).zip(shell_time(system));
        let peak_kib: Option<u64> = peak_kib.parse().ok();
        Self {
            kills_in_cgroup: kills_in_cgroup.parse().ok(),
            kills_on_host: kills_on_host.parse().ok(),
            cpu: cpu.map(|(user, system)| user.saturating_add(system)),
            peak_memory: peak_kib.map(|kib| kib.saturating_mul(1024)),
            by_signal: match how {
                "signal" => Some(true),
                "exit" => Some(false),
                _ => None,
            },
            ended_at,
            attempts: rest.first().and_then(|word| word.parse().ok()),
        }
    }
}

/// A time in the form of a shell's `times`: `1m2.345s`. Some shells use the decimal separator of the locale.
fn shell_time(text: &str) -> Option<Duration> {
    let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
    let minutes: u64 = minutes.parse().ok()?;
    let seconds: f64 = seconds.replace(',', ".").parse().ok()?;
    let seconds = Duration::try_from_secs_f64(seconds).ok()?;
    Some(Duration::from_secs(minutes.checked_mul(60)?).saturating_add(seconds))
}

impl SpoolEnd {
    /// Parses the words after the sizes. The follower sends them only once, so malformed words
    /// still end the job: its outcome can't be found out any more.
    fn parse(words: &[&str]) -> Self {
        match *words {
            ["exited", status, sent, why, ref rest @ ..] => match status.parse() {
                Ok(status) => Self::exited(status, sent, why, rest),
                Err(_) => Self::SupervisorDied,
            },
            ["lost", "host_rebooted"] => Self::HostRebooted,
            ["lost", "spool_gone"] => Self::SpoolGone,
            _ => Self::SupervisorDied,
        }
    }

    /// When the command ended, by the host's clock, in seconds since 1970. `None` if the host recorded no time.
    pub fn ended_at(&self) -> Option<u64> {
        let Self::Exited { measured, .. } = self else { return None };
        measured.ended_at
    }

    /// `rest` is the time of the end and the figures.
    fn exited(status: u32, sent: &str, why: &str, rest: &[&str]) -> Self {
        let was_sent = sent != "-";
        Self::Exited {
            status,
            sent: was_sent.then(|| sent.to_owned()),
            limit: match why {
                "timeout" => Some(SpoolLimit::Time),
                "quota" => Some(SpoolLimit::Quota),
                _ => None,
            },
            measured: EndFigures::parse(rest),
        }
    }
}

/// Divides a follower's output into frames. Skips text before the first frame, which startup files
/// may print.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// Input that was not examined yet.
    input: Bytes,
    /// The start of an incomplete header.
    header: BytesMut,
    /// Destination of the following data.
    data: Option<Data>,
}

/// Data whose header has arrived.
#[derive(Debug)]
struct Data {
    job: String,
    stream: Stream,
    offset: u64,
    left: usize,
}

/// Longest plausible header.
const LONGEST_HEADER: usize = 512;
/// Longest plausible piece of output. spool.sh sends at most 4 MiB at once, follow.pl 256 KiB.
const LONGEST_DATA: usize = 8 << 20;

impl FrameReader {
    /// Adds bytes, once there is no [next frame](Self::next_frame) in the previous ones.
    pub fn push(&mut self, bytes: Bytes) {
        debug_assert!(
            self.input.is_empty(),
            "the previous bytes are consumed first"
        );
        self.input = bytes;
    }

    /// The next frame. `None` if more bytes are needed. Data is returned as it arrives, in any
    /// number of frames. Lines that are not frames are skipped.
    pub fn next_frame(&mut self) -> Option<SpoolFrame> {
        while !self.input.is_empty() {
            if let Some(data) = &mut self.data {
                let bytes = self.input.split_to(self.input.len().min(data.left));
                let offset = data.offset;
                let length = bytes.len();
                let frame = SpoolFrame::Data {
                    job: data.job.clone(),
                    stream: data.stream,
                    offset,
                    bytes,
                };
                data.offset += length as u64;
                data.left -= length;
                if data.left == 0 {
                    self.data = None;
                }
                return Some(frame);
            }
            match FrameHeader::parse(&self.take_header()?) {
                Some(FrameHeader::Data(data)) => self.data = (data.left > 0).then_some(data),
                Some(FrameHeader::Other(frame)) => return Some(frame),
                None => {}
            }
        }
        None
    }

    /// The next line, if it is complete.
    fn take_header(&mut self) -> Option<String> {
        let end = memchr::memchr(b'\n', &self.input);
        self.header
            .extend_from_slice(&self.input.split_to(end.unwrap_or(self.input.len())));
        if end.is_none() {
            if self.header.len() > LONGEST_HEADER {
                // Text without a line end, as startup files may print, must not fill the memory.
                self.header.clear();
            }
            return None;
        }
        self.input.advance(1);
        Some(String::from_utf8_lossy(&self.header.split()).into_owned())
    }
}

enum FrameHeader {
    Data(Data),
    Other(SpoolFrame),
}

impl FrameHeader {
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
                // So that `next_frame` can't overflow when it advances the offset.
                offset.checked_add(left as u64)?;
                Some(Self::Data(Data {
                    job: job.to_owned(),
                    stream,
                    offset,
                    left,
                }))
            }
            ["P", job, pgid, ref attempt @ ..] => Some(Self::Other(SpoolFrame::ProcessGroup {
                job: job.to_owned(),
                pgid: pgid.parse().ok()?,
                attempt: attempt.first().and_then(|number| number.parse().ok()),
            })),
            ["M", job, ref figures @ ..] => Some(Self::Other(SpoolFrame::Usage {
                job: job.to_owned(),
                sample: UsageSample::parse(figures)?,
            })),
            ["X", job, stdout, stderr, ref end @ ..] => Some(Self::Other(SpoolFrame::End {
                job: job.to_owned(),
                stdout: stdout.parse().ok()?,
                stderr: stderr.parse().ok()?,
                end: SpoolEnd::parse(end),
            })),
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
        let mut frames = FrameReader::default();
        let mut found = Vec::new();
        for chunk in chunks {
            frames.push(Bytes::copy_from_slice(chunk));
            found.extend(std::iter::from_fn(|| frames.next_frame()));
        }
        found
    }

    /// The same with data byte by byte.
    fn in_bytes(frame: SpoolFrame) -> Vec<SpoolFrame> {
        let SpoolFrame::Data {
            job,
            stream,
            offset,
            bytes,
        } = frame
        else {
            return vec![frame];
        };
        let piece = |(at, byte)| (offset + at, Bytes::copy_from_slice(&[byte]));
        let pieces = (0..).zip(bytes).map(piece);
        pieces
            .map(|(offset, bytes)| SpoolFrame::Data {
                job: job.clone(),
                stream,
                offset,
                bytes,
            })
            .collect()
    }

    const TRANSCRIPT: &[u8] = b"welcome!\nP web1-a 42\nD web1-a 1 0 6\none\ntwD web1-b 2 7 3\nD x\nX web1-a 6 0 exited 3 TERM - 1700000000 - 2 1m0.5s 0m1,000s 2 signal\nX web1-b 0 10 lost spool_gone\n";

    #[test]
    fn output_may_look_like_frames() {
        let frames = all(&[TRANSCRIPT]);
        assert_eq!(frames.len(), 5, "{frames:?}");
        assert_eq!(
            frames[2],
            SpoolFrame::Data {
                job: "web1-b".into(),
                stream: Stream::Stderr,
                offset: 7,
                bytes: "D x".into()
            }
        );
        let end = SpoolEnd::Exited {
            status: 3,
            sent: Some("TERM".into()),
            limit: None,
            measured: EndFigures {
                kills_in_cgroup: None,
                kills_on_host: Some(2),
                cpu: Some(Duration::from_millis(61_500)),
                peak_memory: Some(2048),
                by_signal: Some(true),
                ended_at: Some(1_700_000_000),
                attempts: None,
            },
        };
        assert_eq!(
            frames[3],
            SpoolFrame::End {
                job: "web1-a".into(),
                stdout: 6,
                stderr: 0,
                end
            }
        );
    }

    #[test]
    fn an_end_that_makes_no_sense_still_ends_the_job() {
        for words in [
            "exited",
            "exited - - -",
            "exited x - - 17",
            "lost",
            "lost marbles",
            "walked away",
        ] {
            let line = format!("X web1-a 6 0 {words}\n");

            let frames = all(&[line.as_bytes()]);

            let end = SpoolEnd::SupervisorDied;
            assert_eq!(
                frames,
                [SpoolFrame::End {
                    job: "web1-a".into(),
                    stdout: 6,
                    stderr: 0,
                    end
                }],
                "{words}"
            );
        }
    }

    proptest! {
        #[test]
        fn frames_do_not_depend_on_how_they_are_cut(cuts in prop::collection::vec(0..TRANSCRIPT.len(), 0..20)) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
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
