//! The format of stored logs. Parsing trusts no length, and rejects frames of another file.

use sshjobs_job::JobId;
use sshjobs_output::{
    Checkpoint, LineNo, MemberNo, OpenEscape, OutputSource, Position, RingOrigin, Stream,
    Timestamp, Unfinished,
};

/// One entry of a stored log: an event of the job's output, with its time.
///
/// On disk: CRC-32 of the [seal](Seal) and of everything after it (4 bytes), length of the payload
/// (4), time (8), kind (1), payload; integers in little-endian order. A file may end within a frame
/// if its writer was killed; [`parse`] detects that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Time of the event.
    pub at: Timestamp,
    /// The event.
    pub body: Body<'a>,
}

/// An event of a job's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// State of the log. A replay can start here. If a replay that started earlier has a different
    /// state here, output before this frame is missing.
    Checkpoint {
        /// Longest line, which determines where lines are cut.
        line_bytes: u64,
        /// The rest of a ring's state.
        checkpoint: Box<Checkpoint>,
    },
    /// Bytes of a stream. In the log of a fleet, bytes of one member's stream.
    Data(OutputSource, &'a [u8]),
    /// Both streams have ended: unfinished lines become lines.
    FinishStreams,
    /// The job has ended; the payload is its outcome.
    End(&'a [u8]),
}

/// Result of parsing the start of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A frame, and its length in bytes.
    Whole(Frame<'a>, usize),
    /// The start of a frame of at least this length.
    Short(usize),
    /// Not a frame: its checksum is wrong, or it is malformed.
    Torn,
}

/// Start value of a frame's checksum, derived from job and segment, so that frames in the wrong
/// file are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal(u32);

impl Seal {
    /// The seal of all frames of a segment.
    pub fn new(job: &JobId, segment: u64) -> Self {
        let mut sum = crc32fast::Hasher::new();
        sum.update(job.as_str().as_bytes());
        sum.update(&segment.to_le_bytes());
        Self(sum.finalize())
    }

    pub(super) fn sum(self, bytes: &[u8]) -> u32 {
        let mut sum = crc32fast::Hasher::new_with_initial(self.0);
        sum.update(bytes);
        sum.finalize()
    }
}

/// Bytes before the payload.
pub(super) const HEADER: usize = 17;
/// Longest plausible payload.
const LONGEST: usize = 64 << 20;

const CHECKPOINT: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const FINISH: u8 = 3;
const END: u8 = 4;
/// Output of a fleet's member: its number (4 bytes), then the bytes. Logs of earlier versions have
/// the member's name in the text instead.
const MEMBER_STDOUT: u8 = 5;
const MEMBER_STDERR: u8 = 6;

impl Frame<'_> {
    /// Appends it to a buffer.
    pub(super) fn write_to(&self, seal: Seal, buffer: &mut Vec<u8>) {
        let start = buffer.len();
        buffer.extend([0; 8]);
        buffer.extend(self.at.to_le_bytes());
        match &self.body {
            Body::Checkpoint {
                line_bytes,
                checkpoint,
            } => {
                buffer.push(CHECKPOINT);
                write_checkpoint(*line_bytes, checkpoint, buffer);
            }
            Body::Data(source, bytes) => {
                buffer.push(match (source.stream, source.member) {
                    (Stream::Stdout, None) => STDOUT,
                    (Stream::Stderr, None) => STDERR,
                    (Stream::Stdout, Some(_)) => MEMBER_STDOUT,
                    (Stream::Stderr, Some(_)) => MEMBER_STDERR,
                });
                if let Some(member) = source.member {
                    buffer.extend(member.value().to_le_bytes());
                }
                buffer.extend_from_slice(bytes);
            }
            Body::FinishStreams => buffer.push(FINISH),
            Body::End(outcome) => {
                buffer.push(END);
                buffer.extend_from_slice(outcome);
            }
        }
        // Filled in last, because length and checksum depend on the payload.
        let length = u32::try_from(buffer.len() - start - HEADER).expect("a frame is short");
        buffer[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
        let sum = seal.sum(&buffer[start + 4..]);
        buffer[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Parses the frame at the start of `bytes`. For any input it neither panics nor allocates more
/// than the input's size.
pub fn parse(bytes: &[u8], seal: Seal) -> Parsed<'_> {
    let length = match measure(bytes, seal) {
        FrameLength::Whole(length) => length,
        FrameLength::Short(length) => return Parsed::Short(length),
        FrameLength::Torn => return Parsed::Torn,
    };
    match read(&bytes[..length]) {
        Some(frame) => Parsed::Whole(frame, length),
        None => Parsed::Torn,
    }
}

/// Length of the frame at the start of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameLength {
    /// It is complete, and its checksum is correct.
    Whole(usize),
    Short(usize),
    Torn,
}

pub(super) fn measure(bytes: &[u8], seal: Seal) -> FrameLength {
    let mut fields = Fields(bytes);
    let Some(sum) = fields.u32() else { return FrameLength::Short(HEADER) };
    let Some(length) = fields.u32() else { return FrameLength::Short(HEADER) };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    // A wrong length could claim 4 GiB, and a replay would allocate them.
    if length > LONGEST {
        return FrameLength::Torn;
    }
    let end = HEADER + length;
    match bytes.get(4..end) {
        None => FrameLength::Short(end),
        // Logs of earlier versions have no seal.
        Some(summed) if seal.sum(summed) == sum || crc32fast::hash(summed) == sum => {
            FrameLength::Whole(end)
        }
        Some(_) => FrameLength::Torn,
    }
}

/// Reads a frame that was [measured](measure). `None` if it is malformed.
pub(super) fn read(whole: &[u8]) -> Option<Frame<'_>> {
    let at = Fields(whole.get(8..)?).u64()?;
    let body = body(*whole.get(HEADER - 1)?, whole.get(HEADER..)?)?;
    Some(Frame { at, body })
}

fn body(kind: u8, payload: &[u8]) -> Option<Body<'_>> {
    match kind {
        CHECKPOINT => read_checkpoint(payload),
        STDOUT => Some(Body::Data(Stream::Stdout.into(), payload)),
        STDERR => Some(Body::Data(Stream::Stderr.into(), payload)),
        MEMBER_STDOUT => member_data(Stream::Stdout, payload),
        MEMBER_STDERR => member_data(Stream::Stderr, payload),
        FINISH => Some(Body::FinishStreams),
        END => Some(Body::End(payload)),
        _ => None,
    }
}

fn member_data(stream: Stream, payload: &[u8]) -> Option<Body<'_>> {
    let mut fields = Fields(payload);
    let member = MemberNo::new(fields.u32()?)?;
    Some(Body::Data(
        OutputSource::of_member(Some(member), stream),
        fields.0,
    ))
}

/// Length of an encoded origin.
pub(super) const ORIGIN: usize = 11 * 8;

pub(super) fn write_origin(origin: &RingOrigin, buffer: &mut Vec<u8>) {
    buffer.extend(origin.newest.value().to_le_bytes());
    for position in [&origin.stdout, &origin.stderr] {
        let Position {
            last_line,
            lines,
            bytes,
            raw_chars,
            clean_chars,
        } = *position;
        for number in [last_line.value(), lines, bytes, raw_chars, clean_chars] {
            buffer.extend(number.to_le_bytes());
        }
    }
}

fn write_checkpoint(line_bytes: u64, checkpoint: &Checkpoint, buffer: &mut Vec<u8>) {
    buffer.extend(line_bytes.to_le_bytes());
    write_origin(&checkpoint.origin, buffer);
    for unfinished in [&checkpoint.stdout, &checkpoint.stderr] {
        // 0 means not cut. Codes are shifted by one, because `OpenEscape::None` has the code 0.
        buffer.push(unfinished.cut.map_or(0, |escape| escape.code() + 1));
        buffer.extend((unfinished.bytes.len() as u64).to_le_bytes());
        buffer.extend_from_slice(&unfinished.bytes);
    }
}

fn read_checkpoint(payload: &[u8]) -> Option<Body<'static>> {
    let mut fields = Fields(payload);
    let line_bytes = fields.u64()?;
    let origin = fields.origin()?;
    let stdout = fields.unfinished()?;
    let stderr = fields.unfinished()?;
    let checkpoint = Box::new(Checkpoint {
        origin,
        stdout,
        stderr,
    });
    fields.0.is_empty().then_some(Body::Checkpoint {
        line_bytes,
        checkpoint,
    })
}

/// Reads fields from the front of some bytes.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*array)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u64()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn origin(&mut self) -> Option<RingOrigin> {
        let newest = LineNo::new(self.u64()?);
        Some(RingOrigin {
            newest,
            stdout: self.position()?,
            stderr: self.position()?,
        })
    }

    fn position(&mut self) -> Option<Position> {
        let position = Position {
            last_line: LineNo::new(self.u64()?),
            lines: self.u64()?,
            bytes: self.u64()?,
            raw_chars: self.u64()?,
            clean_chars: self.u64()?,
        };
        // `Track::resumed` subtracts both from the bytes.
        let is_possible =
            position.raw_chars <= position.bytes && position.clean_chars <= position.bytes;
        is_possible.then_some(position)
    }

    fn unfinished(&mut self) -> Option<Unfinished> {
        let cut = match self.u8()? {
            0 => None,
            code => Some(OpenEscape::of_code(code - 1)?),
        };
        Some(Unfinished {
            bytes: self.bytes()?.to_vec(),
            cut,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seal() -> Seal {
        Seal::new(&"web1-aaaaaaaa".into(), 1)
    }

    fn checkpoint() -> Checkpoint {
        let position = |n| Position {
            last_line: LineNo::new(n),
            lines: n,
            bytes: 10 * n,
            raw_chars: 9 * n,
            clean_chars: n,
        };
        Checkpoint {
            origin: RingOrigin {
                newest: LineNo::new(7),
                stdout: position(7),
                stderr: position(4),
            },
            stdout: Unfinished {
                bytes: b"half a li".to_vec(),
                cut: Some(OpenEscape::Osc),
            },
            stderr: Unfinished::default(),
        }
    }

    fn transcript() -> (Vec<u8>, Vec<usize>) {
        let bodies = [
            Body::Checkpoint {
                line_bytes: 65536,
                checkpoint: Box::new(checkpoint()),
            },
            Body::Data(Stream::Stdout.into(), b"one\ntwo\n"),
            Body::Data(Stream::Stderr.into(), b""),
            Body::Data(
                OutputSource::of_member(MemberNo::at(1), Stream::Stderr),
                b"of a member\n",
            ),
            Body::FinishStreams,
            Body::End(b"{}"),
        ];
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for (at, body) in (1000..).zip(bodies) {
            Frame { at, body }.write_to(seal(), &mut bytes);
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    /// The whole frames at the beginning, and where they end.
    fn whole(bytes: &[u8]) -> (usize, usize) {
        let mut frames = 0;
        let mut at = 0;
        while let Parsed::Whole(_, length) = parse(&bytes[at..], seal()) {
            (frames, at) = (frames + 1, at + length);
        }
        (frames, at)
    }

    #[test]
    fn what_is_written_is_read() {
        let (bytes, _) = transcript();
        let Parsed::Whole(first, length) = parse(&bytes, seal()) else {
            panic!("no frame")
        };
        assert_eq!(
            first.body,
            Body::Checkpoint {
                line_bytes: 65536,
                checkpoint: Box::new(checkpoint())
            }
        );
        let Parsed::Whole(second, _) = parse(&bytes[length..], seal()) else {
            panic!("no frame")
        };
        assert_eq!(
            second,
            Frame {
                at: 1001,
                body: Body::Data(Stream::Stdout.into(), b"one\ntwo\n")
            }
        );
        assert_eq!(whole(&bytes), (6, bytes.len()));
    }

    #[test]
    fn a_transcript_torn_at_any_byte_keeps_its_whole_frames() {
        let (bytes, ends) = transcript();
        for cut in 0..bytes.len() {
            let frames = ends.iter().filter(|end| **end <= cut).count() - 1;
            assert_eq!(whole(&bytes[..cut]), (frames, ends[frames]), "cut at {cut}");
            assert!(matches!(
                parse(&bytes[ends[frames]..cut], seal()),
                Parsed::Short(_)
            ));
        }
    }

    #[test]
    fn a_frame_of_another_job_or_segment_is_torn_and_one_without_a_seal_is_not() {
        let (sealed, _) = transcript();
        for other in [
            Seal::new(&"web1-bbbbbbbb".into(), 1),
            Seal::new(&"web1-aaaaaaaa".into(), 2),
        ] {
            assert_eq!(parse(&sealed, other), Parsed::Torn);
        }

        let mut unsealed = Vec::new();
        Frame {
            at: 1000,
            body: Body::FinishStreams,
        }
        .write_to(Seal(0), &mut unsealed);
        assert!(matches!(parse(&unsealed, seal()), Parsed::Whole(..)));
    }

    #[test]
    fn a_byte_that_has_changed_is_noticed() {
        let (bytes, ends) = transcript();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x20;
            let frames = ends.iter().filter(|end| **end <= at).count() - 1;
            assert_eq!(whole(&changed).0, frames, "changed at {at}");
        }
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_are_it_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _parsed = parse(&bytes, seal());
        }

        #[test]
        fn a_payload_without_meaning_is_not_a_frame(kind in 0..8_u8, payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = vec![0; 16];
            bytes[4..8].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
            bytes.push(kind);
            bytes.extend(payload);
            let sum = crc32fast::hash(&bytes[4..]);
            bytes[..4].copy_from_slice(&sum.to_le_bytes());
            let _parsed = parse(&bytes, seal());
        }
    }
}
