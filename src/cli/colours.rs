use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};

/// Whether what is written to a stream is coloured: as `--color` says; else as `NO_COLOR`, `CLICOLOR_FORCE` and `CLICOLOR` say; else on
/// terminals that know colours.
pub(super) fn are_wanted(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// Text in a colour (SGR, ECMA-48), if colours are wanted.
pub(super) fn paint(text: &str, colour: u8, is_wanted: bool) -> String {
    if is_wanted && !text.is_empty() { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
}

pub(super) const DIM: u8 = 2;
pub(super) const RED: u8 = 31;
pub(super) const GREEN: u8 = 32;
pub(super) const YELLOW: u8 = 33;
/// Colours of hosts, which red is none of: that is for errors.
pub(super) const OF_HOSTS: [u8; 10] = [36, 33, 32, 35, 34, 96, 93, 92, 95, 94];
