//! Removes announcements from a job's stdout, in any division into pieces.

use bytes::Bytes;
use memchr::memmem;

use super::machine_id::MACHINE;
use crate::Nonce;

/// Removes the lines that announce a job's process group from the start of its stdout.
///
/// Each is `NONCE PID`, or `NONCE PID sshjobs-machine:…`. A second one, if expected, answers input
/// that was sent after the first. Output of the login shell's startup files may come before them
/// and is passed through. Bytes are held back only while they could be the start of such a line;
/// [`finish`](Self::finish) returns them if the line never ends.
#[derive(Debug)]
pub struct Announcements {
    nonce: Vec<u8>,
    held: Vec<u8>,
    state: SearchState,
    /// Number of lines that are still to be removed.
    lines: u32,
    /// Whether output before the first line is printed again after it.
    noise_is_repeated: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum SearchState {
    Looking,
    /// The lines were found or given up, so everything passes.
    Done,
}

/// Maximum bytes of other output before an announcement. After more, everything passes.
pub(crate) const MOST_NOISE: usize = 64 << 10;
/// Longest process id and machine, with the line end.
const LONGEST_REST: usize = 2 << 10;

impl Announcements {
    /// Expects this number of `lines` that start with `nonce`. With 0, everything passes.
    pub fn new(nonce: &Nonce, lines: u32) -> Self {
        let state = if lines > 0 {
            SearchState::Looking
        } else {
            SearchState::Done
        };
        let nonce = nonce.as_str().as_bytes().to_vec();
        Self {
            nonce,
            held: Vec::new(),
            state,
            lines,
            noise_is_repeated: false,
        }
    }

    /// Also removes the output before the first line: startup files print it a second time where
    /// the login shell runs twice.
    #[must_use]
    pub fn without_noise(self) -> Self {
        Self {
            noise_is_repeated: true,
            ..self
        }
    }

    /// Returns the command's own part of the next `chunk` of stdout, and the process id if this
    /// chunk completes its line.
    pub fn strip(&mut self, chunk: Bytes) -> (Bytes, Option<u32>) {
        if self.state == SearchState::Done {
            return (chunk, None);
        }
        self.held.extend_from_slice(&chunk);
        match memmem::find(&self.held, &self.nonce) {
            Some(start) => self.strip_line(start),
            None => (self.pass_all_but_a_beginning().into(), None),
        }
    }

    fn strip_line(&mut self, start: usize) -> (Bytes, Option<u32>) {
        let rest = &self.held[start + self.nonce.len()..];
        let end = memchr::memchr(b'\n', rest);
        let pid = end.and_then(|end| process_group(&rest[..end]));
        match (pid, end) {
            (Some(_), Some(end)) => {
                let after = start + self.nonce.len() + end + 1;
                let mut passed = std::mem::take(&mut self.held);
                // Taken, because only the output before the first line is printed again.
                let from = if std::mem::take(&mut self.noise_is_repeated) {
                    0
                } else {
                    start
                };
                passed.drain(from..after);
                self.lines -= 1;
                if self.lines == 0 {
                    self.state = SearchState::Done;
                }
                (passed.into(), pid)
            }
            // The nonce without a process id is an echo. It passes, and no later line is expected.
            (None, Some(_)) => (self.give_up().into(), None),
            _ if rest.len() > LONGEST_REST => (self.give_up().into(), None),
            // The noise stays held: it is dropped only if the line turns out to be complete.
            _ if self.noise_is_repeated => (Bytes::new(), None),
            _ => (self.held.drain(..start).collect::<Vec<u8>>().into(), None),
        }
    }

    fn pass_all_but_a_beginning(&mut self) -> Vec<u8> {
        if self.held.len() > MOST_NOISE {
            return self.give_up();
        }
        if self.noise_is_repeated {
            return Vec::new();
        }
        let longest = self.nonce.len().min(self.held.len());
        let beginning =
            (1..=longest).rev().find(|&length| self.held.ends_with(&self.nonce[..length]));
        self.held.drain(..self.held.len() - beginning.unwrap_or(0)).collect()
    }

    fn give_up(&mut self) -> Vec<u8> {
        self.state = SearchState::Done;
        std::mem::take(&mut self.held)
    }

    /// Returns the bytes that were held back. Call it when stdout ends.
    pub fn finish(&mut self) -> Vec<u8> {
        self.give_up()
    }
}

/// The number after the nonce, if it can be a job's process group: plain digits, and neither 0 (our
/// own group) nor 1 (init). The machine may follow.
pub(crate) fn process_group(text: &[u8]) -> Option<u32> {
    let text = text.trim_ascii();
    let machine = memmem::find(text, format!(" {MACHINE}").as_bytes());
    let digits = &text[..machine.unwrap_or(text.len())];
    // `parse` would also accept a sign.
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    // A process id is a signed 32-bit number, and `kill` takes a negative one as a group.
    (2..=i32::MAX.unsigned_abs()).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_can_be_no_process_group_is_not_taken_for_one() {
        for nonsense in [
            "0",
            "1",
            "+1",
            "+4711",
            "-4711",
            "4294967295",
            "4 711",
            "",
            "0x10",
        ] {
            let nonce = Nonce::new();
            let line = format!("{} {nonsense}\n", nonce.as_str());
            let stripped = strip_in_chunks(&nonce, &[line.as_bytes()]);
            assert_eq!(stripped, (line.into_bytes(), None), "{nonsense:?}");
        }
    }

    fn strip_in_chunks(nonce: &Nonce, chunks: &[&[u8]]) -> (Vec<u8>, Option<u32>) {
        let mut prelude = Announcements::new(nonce, 1);
        let mut passed = Vec::new();
        let mut found = None;
        for chunk in chunks {
            let (bytes, pid) = prelude.strip(Bytes::copy_from_slice(chunk));
            passed.extend_from_slice(&bytes);
            found = found.or(pid);
        }
        passed.extend(prelude.finish());
        (passed, found)
    }

    #[test]
    fn the_line_is_taken_out_wherever_the_chunks_divide_it() {
        let nonce = Nonce::new();
        let whole = format!("motd\nno newline{} 4711\nthe output\n", nonce.as_str()).into_bytes();
        for cut in 0..whole.len() {
            let (passed, pid) = strip_in_chunks(&nonce, &[&whole[..cut], &whole[cut..]]);
            assert_eq!(
                String::from_utf8(passed).unwrap(),
                "motd\nno newlinethe output\n",
                "cut at {cut}"
            );
            assert_eq!(pid, Some(4711));
        }
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(strip_in_chunks(&nonce, &bytes).1, Some(4711));
    }

    #[test]
    fn noise_that_will_be_repeated_is_taken_out_once() {
        let nonce = Nonce::new();
        let whole = format!("noise\n{} 4711\nnoise\nthe output\n", nonce.as_str()).into_bytes();
        for cut in 0..whole.len() {
            let mut prelude = Announcements::new(&nonce, 1).without_noise();
            let mut passed = prelude.strip(Bytes::copy_from_slice(&whole[..cut])).0.to_vec();
            passed.extend_from_slice(&prelude.strip(Bytes::copy_from_slice(&whole[cut..])).0);
            passed.extend(prelude.finish());
            assert_eq!(
                String::from_utf8(passed).unwrap(),
                "noise\nthe output\n",
                "cut at {cut}"
            );
        }
        let mut without_line = Announcements::new(&nonce, 1).without_noise();
        assert_eq!(&*without_line.strip("an error\n".into()).0, b"");
        assert_eq!(
            without_line.finish(),
            b"an error\n",
            "startup output is not lost"
        );
    }

    #[test]
    fn output_without_the_line_passes_whole() {
        let nonce = Nonce::new();
        let text = b"sshjobs-sshjobs: syntax error";
        assert_eq!(strip_in_chunks(&nonce, &[text]), (text.to_vec(), None));
        let broken = format!("{} no pid\nx", nonce.as_str());
        assert_eq!(
            strip_in_chunks(&nonce, &[broken.as_bytes()]),
            (broken.into_bytes(), None)
        );
    }

    #[test]
    fn nothing_is_held_back_that_cannot_be_the_line() {
        let mut prelude = Announcements::new(&Nonce::new(), 1);
        assert_eq!(&*prelude.strip("prompt> ".into()).0, b"prompt> ");
    }
}
