//! The source of a piece of output: a stream and, in a fleet, a member.

use std::num::NonZeroU32;

use super::stream::Stream;

/// A member of a fleet: its position in the fleet's plan, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberNo(NonZeroU32);

impl MemberNo {
    /// The member at this index of the plan.
    pub fn at(index: usize) -> Option<Self> {
        let number = u32::try_from(index).ok()?.checked_add(1)?;
        NonZeroU32::new(number).map(Self)
    }

    /// Its index in the plan, counted from 0.
    pub fn index(self) -> usize {
        usize::try_from(self.0.get() - 1).unwrap_or(usize::MAX)
    }

    /// The member with this number. `None` for 0.
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    /// Its number, counted from 1.
    pub fn value(self) -> u32 {
        self.0.get()
    }
}

/// Where a piece of output comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputSource {
    /// The stream.
    pub stream: Stream,
    /// The member of a fleet. Its output arrives in whole lines, because a stream has only one
    /// unfinished line.
    pub member: Option<MemberNo>,
}

impl From<Stream> for OutputSource {
    fn from(stream: Stream) -> Self {
        Self {
            stream,
            member: None,
        }
    }
}

impl OutputSource {
    /// A stream of a fleet's member.
    pub fn of_member(member: Option<MemberNo>, stream: Stream) -> Self {
        Self { stream, member }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_member_has_index_0_and_number_1() {
        let first = MemberNo::at(0).unwrap();
        assert_eq!((first.index(), first.value()), (0, 1));
        let last = MemberNo::new(u32::MAX).unwrap();
        assert_eq!(
            (last.index(), last.value()),
            (u32::MAX as usize - 1, u32::MAX)
        );
        assert_eq!(MemberNo::at(last.index()), Some(last));
        assert_eq!(MemberNo::at(last.index() + 1), None);
        assert_eq!(MemberNo::new(0), None);
    }
}
