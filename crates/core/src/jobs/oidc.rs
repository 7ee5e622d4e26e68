//! The table `[oidc]` of the configuration: issuers of tokens, and what their claims allow.

use std::collections::BTreeMap;
use std::path::PathBuf;

use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;
use serde::Deserialize;

use crate::admission::HostPatterns;
use sshjobs_policy::Role;

/// Issuers of OpenID Connect whose tokens the HTTP server accepts: the table `[oidc]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OidcConfig {
    /// The issuers.
    pub issuers: Vec<IssuerConfig>,
}

/// An issuer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// Its URL, exactly as in the claim `iss`.
    pub issuer: String,
    /// Prefix of its callers' names, as in `NAME|SUBJECT`. Default: the URL.
    pub name: Option<String>,
    /// Accepted values of the claim `aud`: the URL of this server, as its clients know it.
    pub audiences: Vec<String>,
    /// Accepted algorithms, all of them asymmetric.
    #[serde(default = "usual_algorithms")]
    pub algorithms: Vec<String>,
    /// URL of its keys. Default: `jwks_uri` of its discovery document.
    pub jwks_url: Option<String>,
    /// The claim that names a caller. It must not be shared by two callers.
    #[serde(default = "subject")]
    pub caller: String,
    /// The roles that claims give: the first that matches counts. Without any, the scopes
    /// `sshjobs:read`, `sshjobs:run` and `sshjobs:admin` give the roles.
    #[serde(default)]
    pub roles: Vec<RoleOfClaims>,
    /// The client as which this server logs people in on the live page. `None`: they need a token.
    pub login: Option<LoginConfig>,
}

/// This server as a client of an issuer: the table `[oidc.issuers.login]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginConfig {
    /// Id of the client at the issuer.
    pub client_id: String,
    /// File with the client's secret, which is read at each login. `None`: the client has none.
    pub client_secret_file: Option<PathBuf>,
    /// Scopes that the login asks for.
    #[serde(default = "openid")]
    pub scope: String,
}

impl LoginConfig {
    /// The client's secret, if it has one.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn secret(&self) -> std::io::Result<Option<SecretString>> {
        let Some(file) = &self.client_secret_file else { return Ok(None) };
        let text = Zeroizing::new(std::fs::read_to_string(file)?);
        Ok(Some(text.trim_end().into()))
    }
}

fn openid() -> String {
    "openid".to_owned()
}

/// A role that claims give.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleOfClaims {
    /// The role: `read`, `observe`, `observe-output`, `run` or `admin`.
    pub role: String,
    /// Hosts to which it applies. `None`: every host.
    pub hosts: Option<Vec<String>>,
    /// Claims that a token must have, with patterns of their values. A claim inside of another is
    /// named as in `realm_access.roles`.
    pub claims: BTreeMap<String, String>,
}

fn usual_algorithms() -> Vec<String> {
    vec!["RS256".to_owned(), "ES256".to_owned()]
}

fn subject() -> String {
    "sub".to_owned()
}

/// Asymmetric algorithms (RFC 7518, RFC 8037).
const ALGORITHMS: [&str; 9] = [
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA",
];

impl OidcConfig {
    /// The first invalid value, in words that begin with its key.
    pub(super) fn validate(&self) -> Option<String> {
        // Callers of two issuers with one name would be the same.
        for (index, issuer) in self.issuers.iter().enumerate() {
            let earlier = &self.issuers[..index];
            if earlier.iter().any(|other| other.issuer == issuer.issuer) {
                return Some(format!("issuer {:?} is listed twice", issuer.issuer));
            }
            if earlier.iter().any(|other| other.prefix() == issuer.prefix()) {
                return Some(format!("name {:?} is used by two issuers", issuer.prefix()));
            }
        }
        self.issuers.iter().find_map(IssuerConfig::validate)
    }
}

impl IssuerConfig {
    /// Begins the names of its callers.
    pub fn prefix(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.issuer)
    }

    fn validate(&self) -> Option<String> {
        for (key, url) in [
            ("issuer", Some(&self.issuer)),
            ("jwks_url", self.jwks_url.as_ref()),
        ] {
            if let Some(url) = url
                && !is_trusted_url(url)
            {
                return Some(format!(
                    "{key} must be a URL that begins with https://: {url:?}"
                ));
            }
        }
        if self.audiences.is_empty() || self.audiences.iter().any(String::is_empty) {
            return Some("audiences must name this server, as in the claim aud".to_owned());
        }
        let unknown = self.algorithms.iter().find(|name| !ALGORITHMS.contains(&name.as_str()));
        if let Some(unknown) = unknown {
            let known = ALGORITHMS.join(", ");
            return Some(format!("algorithms has {unknown:?}; known are {known}"));
        }
        if self.algorithms.is_empty() {
            return Some("algorithms is empty".to_owned());
        }
        if let Some(name) = &self.name
            && (name.is_empty()
                || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c)))
        {
            return Some("name must have only letters, digits, '_', '.' and '-'".to_owned());
        }
        if let Some(login) = &self.login {
            if self.name.is_none() {
                return Some("name must be set for a login: it is on the button".to_owned());
            }
            if login.client_id.is_empty() || !login.scope.split(' ').any(|scope| scope == "openid")
            {
                return Some("login needs a client_id, and the scope openid".to_owned());
            }
        }
        self.roles.iter().find_map(RoleOfClaims::validate)
    }
}

impl RoleOfClaims {
    /// The role and its hosts.
    pub fn granted(&self) -> (Role, HostPatterns) {
        let role = Role::named(&self.role).expect("the configuration was checked");
        let hosts = self.hosts.as_deref().unwrap_or_default();
        (role, HostPatterns::from(hosts.join(",")))
    }

    fn validate(&self) -> Option<String> {
        if Role::named(&self.role).is_none() {
            let known = Role::ALL.map(Role::as_str).join(", ");
            return Some(format!("role must be one of {known}: {:?}", self.role));
        }
        // Without claims it would apply to every account of the issuer, such as all of GitHub.
        if self.claims.is_empty() {
            return Some("claims must have at least one, such as repository".to_owned());
        }
        if self.hosts.as_ref().is_some_and(Vec::is_empty) {
            return Some("hosts is empty; omit it for every host".to_owned());
        }
        let mut hosts = self.hosts.iter().flatten();
        if let Some(host) = hosts.find(|host| host.trim().is_empty() || host.contains(',')) {
            return Some(format!(
                "hosts has {host:?}; write each pattern as a text of its own"
            ));
        }
        None
    }
}

/// Whether a URL uses TLS, or leads to this machine.
fn is_trusted_url(url: &str) -> bool {
    let starts = [
        "https://",
        "http://127.0.0.1:",
        "http://[::1]:",
        "http://localhost:",
    ];
    let rest = starts.iter().find_map(|start| url.strip_prefix(start));
    // Without a user name, after which another host could follow.
    rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['@', '?', '#', ' ']))
}
