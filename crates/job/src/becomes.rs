//! Another user of the host, as whom a command runs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A user of the host other than the account that logs in, and the program that changes to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Become {
    user: String,
    method: BecomeMethod,
}

/// The program of the host that runs a command as another user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BecomeMethod {
    /// `sudo`. It asks for the account's own password, unless sudoers(5) says NOPASSWD.
    #[default]
    Sudo,
    /// `doas`. It reads a password only from a terminal; without one it needs `nopass`.
    Doas,
    /// `su`. It asks for the other user's password.
    Su,
}

/// An invalid user name, or an unknown program.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadBecome {
    /// A text can't be the name of a user.
    #[error("{0:?} is not the name of a user")]
    User(String),
    /// A number, which doas takes for a user id: with it, another name of root passes a rule for root.
    #[error("{0:?} is a number, which some programs take for a user id")]
    Number(String),
    /// No program of this name changes the user.
    #[error("{0:?} does not change the user: use sudo, doas or su")]
    Method(String),
}

/// Longest name of a user: that of useradd(8).
const LONGEST_USER: usize = 256;

impl Become {
    /// This user, by this program. Refuses a text that can't be a user's name.
    pub fn new(user: impl Into<String>, method: BecomeMethod) -> Result<Self, BadBecome> {
        let user = user.into();
        // A name that starts with a hyphen would be an option of the program; `#0` is a user id of
        // sudo's, but of no other program's.
        let is_name = user.chars().all(|c| c.is_alphanumeric() || "._@-+\\$".contains(c));
        if user.is_empty() || !is_name || user.starts_with('-') || user.len() > LONGEST_USER {
            return Err(BadBecome::User(user));
        }
        // If no user has the name, doas reads it as a number with strtonum(3), which allows a sign and leading zeros.
        // On some hosts `sudo` is a script that calls doas.
        let digits = user.strip_prefix('+').unwrap_or(&user);
        if digits.chars().all(|c| c.is_ascii_digit()) {
            return Err(BadBecome::Number(user));
        }
        Ok(Self { user, method })
    }

    /// The user's name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The program that changes to the user.
    pub fn method(&self) -> BecomeMethod {
        self.method
    }

    /// Whether the user's name is root.
    pub fn is_root(&self) -> bool {
        self.user == "root"
    }

    /// The user whose password the program asks for: `None` for the account that logs in.
    pub fn asked_user(&self) -> Option<&str> {
        match self.method {
            BecomeMethod::Sudo | BecomeMethod::Doas => None,
            BecomeMethod::Su => Some(&self.user),
        }
    }
}

impl BecomeMethod {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sudo, Self::Doas, Self::Su];

    /// Name of the program.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sudo => "sudo",
            Self::Doas => "doas",
            Self::Su => "su",
        }
    }
}

impl FromStr for BecomeMethod {
    type Err = BadBecome;

    fn from_str(text: &str) -> Result<Self, BadBecome> {
        Self::ALL
            .into_iter()
            .find(|method| method.as_str() == text)
            .ok_or_else(|| BadBecome::Method(text.to_owned()))
    }
}

/// For example `root by sudo`.
impl fmt::Display for Become {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.user, self.method.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_no_user_is_called_is_refused() {
        for user in [
            "root",
            "www-data",
            "j.doe",
            "EXAMPLE\\jdoe",
            "jdoe@example.com",
            "svc$",
        ] {
            let becomes = Become::new(user, BecomeMethod::Sudo).unwrap();
            assert_eq!((becomes.user(), becomes.is_root()), (user, user == "root"));
        }
        for user in [
            "", "-u", "a b", "a'b", "a;id", "a\nb", "#0", "$(id)", "`id`",
        ] {
            assert!(Become::new(user, BecomeMethod::Sudo).is_err(), "{user:?}");
        }
    }

    #[test]
    fn a_number_is_refused_because_doas_takes_it_for_a_user_id() {
        for method in BecomeMethod::ALL {
            for number in ["0", "00", "+0", "1000", "+"] {
                let refused = Become::new(number, method);
                assert_eq!(refused, Err(BadBecome::Number(number.to_owned())));
            }
            assert!(Become::new("4711a", method).is_ok());
        }
    }
}
