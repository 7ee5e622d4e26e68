use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};

/// Whether output to a stream is coloured: as `--color` says, otherwise as `NO_COLOR`,
/// `CLICOLOR_FORCE` and `CLICOLOR` say, otherwise if it is a terminal with colours.
pub(crate) fn colours_are_wanted(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// Text in a colour (SGR, ECMA-48), if colours are wanted.
pub(crate) fn paint(text: &str, colour: u8, is_wanted: bool) -> String {
    if is_wanted && !text.is_empty() {
        format!("\x1b[{colour}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

pub(crate) const DIM: u8 = 2;
pub(crate) const RED: u8 = 31;
pub(crate) const GREEN: u8 = 32;
pub(crate) const YELLOW: u8 = 33;
/// Colours of hosts. Red is reserved for errors.
pub(crate) const HOST_COLOURS: [u8; 10] = [36, 33, 32, 35, 34, 96, 93, 92, 95, 94];
