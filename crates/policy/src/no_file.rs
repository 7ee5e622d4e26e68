//! Policy files are refused in a build without them.

use super::mistake::PolicyMistake;
use super::policy::Policy;

impl Policy {
    /// Refuses every policy file, so that a program that names one allows nothing.
    ///
    /// # Errors
    /// Always.
    pub fn parse(_text: &str) -> Result<Self, PolicyMistake> {
        Err(PolicyMistake {
            line: 1,
            message: "this program was built without policies (the feature `policy`)".to_owned(),
        })
    }
}
