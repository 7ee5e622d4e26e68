use crate::output::{Checkpoint, Escape, LineNo, Origin, Position, Stream, Timestamp, Unfinished};

/// One entry of a stored log: what happened to the job's output, and when.
///
/// On disk: CRC-32 of what follows (4 bytes), length of the payload (4), time (8), kind (1), payload; integers in little-endian
/// order. A file may end within a frame when its writer died; [`parse`] finds that out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub body: Body<'a>,
}

/// What happened to a job's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Where the log stands. A replay can begin here; one that comes from before and stands elsewhere has met a gap.
    Checkpoint {
        /// The longest line, which says where lines are cut.
        line_bytes: u64,
        /// Everything else that a ring must know.
        checkpoint: Box<Checkpoint>,
    },
    /// Bytes came.
    Data(Stream, &'a [u8]),
    /// Nothing more comes: unfinished lines become lines.
    FinishStreams,
    /// The job is over; the payload says how.
    End(&'a [u8]),
}

/// What stands at the beginning of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A frame, and how many bytes it takes.
    Whole(Frame<'a>, usize),
    /// The beginning of a frame that takes so many bytes, at least.
    Short(usize),
    /// No frame: its checksum is wrong, or it makes no sense.
    Torn,
}

/// Bytes before the payload.
pub(super) const HEADER: usize = 17;
/// The longest payload that is believed.
const LONGEST: usize = 64 << 20;

const CHECKPOINT: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const FINISH: u8 = 3;
const END: u8 = 4;

impl Frame<'_> {
    /// Appends it to a buffer.
    pub(super) fn write_to(&self, buffer: &mut Vec<u8>) {
        let start = buffer.len();
        buffer.extend([0; 8]);
        buffer.extend(self.at.to_le_bytes());
        match &self.body {
            Body::Checkpoint { line_bytes, checkpoint } => {
                buffer.push(CHECKPOINT);
                write_checkpoint(*line_bytes, checkpoint, buffer);
            }
            Body::Data(stream, bytes) => {
                buffer.push(if *stream == Stream::Stdout { STDOUT } else { STDERR });
                buffer.extend_from_slice(bytes);
            }
            Body::FinishStreams => buffer.push(FINISH),
            Body::End(outcome) => {
                buffer.push(END);
                buffer.extend_from_slice(outcome);
            }
        }
        let length = u32::try_from(buffer.len() - start - HEADER).expect("a frame is short");
        buffer[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
        let sum = crc32fast::hash(&buffer[start + 4..]);
        buffer[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Reads the frame at the beginning of `bytes`. It believes nothing: whatever the bytes are, it neither panics nor allocates for
/// more than there are.
pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    let length = match measure(bytes) {
        Measured::Whole(length) => length,
        Measured::Short(length) => return Parsed::Short(length),
        Measured::Torn => return Parsed::Torn,
    };
    match read(&bytes[..length]) {
        Some(frame) => Parsed::Whole(frame, length),
        None => Parsed::Torn,
    }
}

/// How long the frame at the beginning of some bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measured {
    /// All of its bytes are there, and its checksum is right.
    Whole(usize),
    Short(usize),
    Torn,
}

pub(super) fn measure(bytes: &[u8]) -> Measured {
    let mut fields = Fields(bytes);
    let (Some(sum), Some(length)) = (fields.u32(), fields.u32()) else { return Measured::Short(HEADER) };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > LONGEST {
        return Measured::Torn;
    }
    let end = HEADER + length;
    match bytes.get(4..end) {
        None => Measured::Short(end),
        Some(summed) if crc32fast::hash(summed) == sum => Measured::Whole(end),
        Some(_) => Measured::Torn,
    }
}

/// Reads a frame that was [measured](measure); none when it makes no sense.
pub(super) fn read(whole: &[u8]) -> Option<Frame<'_>> {
    let at = Fields(whole.get(8..)?).u64()?;
    let body = body(*whole.get(HEADER - 1)?, whole.get(HEADER..)?)?;
    Some(Frame { at, body })
}

fn body(kind: u8, payload: &[u8]) -> Option<Body<'_>> {
    match kind {
        CHECKPOINT => read_checkpoint(payload),
        STDOUT => Some(Body::Data(Stream::Stdout, payload)),
        STDERR => Some(Body::Data(Stream::Stderr, payload)),
        FINISH => Some(Body::FinishStreams),
        END => Some(Body::End(payload)),
        _ => None,
    }
}

/// Bytes of an origin.
pub(super) const ORIGIN: usize = 11 * 8;

pub(super) fn write_origin(origin: &Origin, buffer: &mut Vec<u8>) {
    buffer.extend(origin.newest.value().to_le_bytes());
    for position in [&origin.stdout, &origin.stderr] {
        let Position { last_line, lines, bytes, raw_chars, clean_chars } = *position;
        for number in [last_line.value(), lines, bytes, raw_chars, clean_chars] {
            buffer.extend(number.to_le_bytes());
        }
    }
}

fn write_checkpoint(line_bytes: u64, checkpoint: &Checkpoint, buffer: &mut Vec<u8>) {
    buffer.extend(line_bytes.to_le_bytes());
    write_origin(&checkpoint.origin, buffer);
    for unfinished in [&checkpoint.stdout, &checkpoint.stderr] {
        buffer.push(unfinished.cut.map_or(0, |escape| escape.code() + 1));
        buffer.extend((unfinished.bytes.len() as u64).to_le_bytes());
        buffer.extend_from_slice(&unfinished.bytes);
    }
}

fn read_checkpoint(payload: &[u8]) -> Option<Body<'static>> {
    let mut fields = Fields(payload);
    let line_bytes = fields.u64()?;
    let origin = fields.origin()?;
    let (stdout, stderr) = (fields.unfinished()?, fields.unfinished()?);
    let checkpoint = Box::new(Checkpoint { origin, stdout, stderr });
    fields.0.is_empty().then_some(Body::Checkpoint { line_bytes, checkpoint })
}

/// Takes fields from the front of some bytes.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
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

    pub(super) fn origin(&mut self) -> Option<Origin> {
        let newest = LineNo::new(self.u64()?);
        Some(Origin { newest, stdout: self.position()?, stderr: self.position()? })
    }

    fn position(&mut self) -> Option<Position> {
        let position = Position {
            last_line: LineNo::new(self.u64()?),
            lines: self.u64()?,
            bytes: self.u64()?,
            raw_chars: self.u64()?,
            clean_chars: self.u64()?,
        };
        let is_possible = position.raw_chars <= position.bytes && position.clean_chars <= position.bytes;
        is_possible.then_some(position)
    }

    fn unfinished(&mut self) -> Option<Unfinished> {
        let cut = match self.u8()? {
            0 => None,
            code => Some(Escape::of_code(code - 1)?),
        };
        Some(Unfinished { bytes: self.bytes()?.to_vec(), cut })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checkpoint() -> Checkpoint {
        let position = |n| Position {
            last_line: LineNo::new(n),
            lines: n,
            bytes: 10 * n,
            raw_chars: 9 * n,
            clean_chars: n,
        };
        Checkpoint {
            origin: Origin { newest: LineNo::new(7), stdout: position(7), stderr: position(4) },
            stdout: Unfinished { bytes: b"half a li".to_vec(), cut: Some(Escape::Osc) },
            stderr: Unfinished::default(),
        }
    }

    fn transcript() -> (Vec<u8>, Vec<usize>) {
        let bodies = [
            Body::Checkpoint { line_bytes: 65536, checkpoint: Box::new(checkpoint()) },
            Body::Data(Stream::Stdout, b"one\ntwo\n"),
            Body::Data(Stream::Stderr, b""),
            Body::FinishStreams,
            Body::End(b"{}"),
        ];
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for (at, body) in (1000..).zip(bodies) {
            Frame { at, body }.write_to(&mut bytes);
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    /// The whole frames at the beginning, and where they end.
    fn whole(bytes: &[u8]) -> (usize, usize) {
        let (mut frames, mut at) = (0, 0);
        while let Parsed::Whole(_, length) = parse(&bytes[at..]) {
            (frames, at) = (frames + 1, at + length);
        }
        (frames, at)
    }

    #[test]
    fn what_is_written_is_read() {
        let (bytes, _) = transcript();
        let Parsed::Whole(first, length) = parse(&bytes) else { panic!("no frame") };
        assert_eq!(first.body, Body::Checkpoint { line_bytes: 65536, checkpoint: Box::new(checkpoint()) });
        let Parsed::Whole(second, _) = parse(&bytes[length..]) else { panic!("no frame") };
        assert_eq!(second, Frame { at: 1001, body: Body::Data(Stream::Stdout, b"one\ntwo\n") });
        assert_eq!(whole(&bytes), (5, bytes.len()));
    }

    #[test]
    fn a_transcript_torn_at_any_byte_keeps_its_whole_frames() {
        let (bytes, ends) = transcript();
        for cut in 0..bytes.len() {
            let frames = ends.iter().filter(|end| **end <= cut).count() - 1;
            assert_eq!(whole(&bytes[..cut]), (frames, ends[frames]), "cut at {cut}");
            assert!(matches!(parse(&bytes[ends[frames]..cut]), Parsed::Short(_)));
        }
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
            let _parsed = parse(&bytes);
        }

        #[test]
        fn a_payload_that_makes_no_sense_is_no_frame(kind in 0..8_u8, payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = vec![0; 16];
            bytes[4..8].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
            bytes.push(kind);
            bytes.extend(payload);
            let sum = crc32fast::hash(&bytes[4..]);
            bytes[..4].copy_from_slice(&sum.to_le_bytes());
            let _parsed = parse(&bytes);
        }
    }
}
