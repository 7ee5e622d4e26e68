use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::rule::RuleLimits;
use crate::{Claims, Inventory, Machine, Role};

const POLICY: &str = r#"
[[rules]]
name = "agents look everywhere"
callers = ["agent*"]
verbs = ["hosts", "jobs", "tail", "read", "search", "wait"]

[[rules]]
name = "agents restart services on staging"
callers = ["agent*"]
hosts = ["tag:staging"]
commands = ["restart"]
limits = { jobs = 5, timeout_s = 600, starts_per_minute = 30 }

[[rules]]
name = "production asks a person"
callers = ["role:run"]
hosts = ["prod-*"]
commands = "any"
approval = "person"

[[rules]]
name = "never the databases"
effect = "deny"
hosts = ["tag:db"]
verbs = ["run", "spawn", "write", "put", "forward"]

[[approvers]]
callers = ["alice", "role:admin"]

[templates.restart]
command = "systemctl restart {unit}"
parameters.unit = { enum = ["nginx", "app"] }
"#;

fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap()
}

fn caller(name: &str, role: Role) -> PolicyCaller {
    PolicyCaller {
        name: name.to_owned(),
        role,
        claims: Claims::default(),
    }
}

fn endpoint(name: &str, tags: &[&str]) -> MachineAccount {
    MachineAccount {
        machine: Machine::new([name], 22, tags.iter().map(|tag| (*tag).to_owned())),
        users: vec!["deploy".to_owned()],
        jumps: Vec::new(),
    }
}

/// Names of the rules that decide, and whether they allow.
fn decided(
    policy: &Policy,
    caller: &PolicyCaller,
    verb: Verb,
    endpoint: &MachineAccount,
    command: CommandSource<'_>,
) -> (bool, Vec<String>) {
    let request = PolicyRequest {
        caller,
        verb,
        endpoint: Some(endpoint),
        command: Some(command),
        target: None,
        minute: WeekMinute::default(),
    };
    match policy.decide(&request) {
        PolicyDecision::Allowed(permits) => (
            true,
            permits.iter().map(|permit| permit.rule.to_owned()).collect(),
        ),
        PolicyDecision::Denied(rules) => (false, rules.into_iter().map(str::to_owned).collect()),
        PolicyDecision::NotAllowed => (false, Vec::new()),
    }
}

/// A mistake, as `LINE: MESSAGE`.
#[track_caller]
fn check_mistake(text: &str, expected: &str) {
    let inventory = Inventory(BTreeMap::from([
        ("web1".to_owned(), vec!["staging".to_owned()]),
        ("db1".to_owned(), vec!["db".to_owned()]),
    ]));
    let checked = Policy::parse(text).and_then(|policy| policy.check(&inventory));
    let mistake = checked.expect_err(text);
    assert_eq!(format!("{}: {}", mistake.line, mistake.message), expected);
}

/// Whether a policy with these rules lets caller "a" run a free command on each host.
fn allows_everywhere(rules: &str) -> bool {
    let caller = caller("a", Role::Run);
    policy(rules).allows_everywhere(&PolicyRequest {
        caller: &caller,
        verb: Verb::Run,
        endpoint: None,
        command: Some(CommandSource::Free),
        target: None,
        minute: WeekMinute::default(),
    })
}

#[test]
fn a_policy_has_what_its_file_has() {
    let text = format!("{POLICY}\n[audit]\nfile = \"/var/log/sshjobs/audit.jsonl\"\n");
    let policy = policy(&text);
    assert_eq!(policy.rule_count(), 4);
    assert!(policy.audit().is_some());
    assert!(policy.template("restart").is_some() && policy.template("stop").is_none());
    assert!(policy.is_approver(&caller("alice", Role::Run)));
    assert!(policy.is_approver(&caller("bob", Role::Admin)));
    assert!(!policy.is_approver(&caller("bob", Role::Run)));
}

#[test]
fn a_template_makes_a_command_of_accepted_values() {
    let text = POLICY.replace("parameters.unit", "env = [\"LANG\"]\nparameters.unit");
    let policy = policy(&text);
    let template = policy.template("restart").unwrap();
    let values = BTreeMap::from([("unit".to_owned(), "nginx".to_owned())]);

    let accepted = template.accept(&values).unwrap();

    assert_eq!(accepted, values);
    assert_eq!(template.command_with(&accepted), "systemctl restart nginx");
    assert!(template.allows_env("LANG") && !template.allows_env("LC_ALL"));
    let unknown = BTreeMap::from([("file".to_owned(), "x".to_owned())]);
    assert!(template.accept(&unknown).is_err());
}

#[test]
fn a_denial_for_some_hosts_does_not_deny_a_list_and_a_permission_allows_it() {
    let list_hosts = |effect: &str| {
        let policy = policy(&format!(
            "[[rules]]\nname = \"a\"\nverbs = [\"hosts\"]\n\
             [[rules]]\nname = \"b\"\neffect = \"{effect}\"\nhosts = [\"web1\"]\nverbs = [\"hosts\"]\n"
        ));
        let caller = caller("a", Role::Run);
        let request = PolicyRequest {
            caller: &caller,
            verb: Verb::Hosts,
            endpoint: None,
            command: None,
            target: None,
            minute: WeekMinute::default(),
        };
        match policy.decide(&request) {
            PolicyDecision::Allowed(permits) => permits.len(),
            PolicyDecision::Denied(_) | PolicyDecision::NotAllowed => 0,
        }
    };
    assert_eq!((list_hosts("deny"), list_hosts("allow")), (1, 2));
}

const CASES: &str = r#"
[[rules]]
name = "a rule"
callers = ["a"]
commands = ["t"]

[templates.t]
command = "echo {n}"
parameters.n = { int = [0, 9] }

[[tests]]
caller = "a"
host = "web1"
template = "t"
params = { n = 5 }
at = "tue 00:10"
expect = "allow"

[[tests]]
caller = "b"
role = "admin"
verb = "forward"
target = "db1:5432"
expect = "deny"
rule = "a rule"
"#;

/// A rule that allows commands, with this line added, and the mistake that is expected in it.
fn check_mistake_in_rule(line: &str, expected: &str) {
    let text = format!(
        "[[rules]]\nname = \"a\"\ncommands = \"any\"\n{line}\n[[approvers]]\ncallers = [\"alice\"]\n"
    );
    check_mistake(&text, &format!("4: {expected}"));
}

/// A policy with a template that has one parameter of this kind.
fn template_with(kind: &str) -> String {
    format!(
        "[[rules]]\nname = \"a\"\ncommands = \"any\"\n\
         [templates.t]\ncommand = \"true {{x}}\"\nparameters.x = {{ {kind} }}\n"
    )
}

/// A rule as the reference evaluator sees it: plain lists; an empty one matches everything.
#[derive(Clone, Debug)]
struct PlainRule {
    denies: bool,
    callers: Vec<&'static str>,
    hosts: Vec<&'static str>,
    verbs: Vec<Verb>,
    templates: Option<Vec<&'static str>>,
}

const CALLERS: [&str; 3] = ["agent1", "agent2", "alice"];
const CALLER_PATTERNS: [&str; 6] = ["agent1", "alice", "agent*", "a*", "*2", "*"];
const HOSTS: [&str; 3] = ["web1", "web2", "db1"];
const TEMPLATES: [&str; 2] = ["restart", "status"];

/// Whether the rules allow a call, as the documentation says it.
fn reference(rules: &[PlainRule], caller: &str, verb: Verb, host: &str, template: &str) -> bool {
    let is_about = |rule: &&PlainRule| {
        let has = |list: &[&str], word: &str| list.is_empty() || list.contains(&word);
        let has_command = rule.templates.as_ref().is_none_or(|names| names.contains(&template));
        let is_named = |pattern: &&str| match (pattern.strip_suffix('*'), pattern.strip_prefix('*'))
        {
            (Some(start), _) => caller.starts_with(start),
            (None, Some(end)) => caller.ends_with(end),
            (None, None) => caller == *pattern,
        };
        (rule.callers.is_empty() || rule.callers.iter().any(is_named))
            && has(&rule.hosts, host)
            && rule.verbs.contains(&verb)
            && (has_command || !verb.has_command())
    };
    let mut about = rules.iter().filter(is_about).peekable();
    about.peek().is_some() && about.all(|rule| !rule.denies)
}

fn subset(of: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(of.to_vec(), 0..=of.len())
}

fn plain_rule() -> impl Strategy<Value = PlainRule> {
    let verbs = proptest::sample::subsequence(Verb::ALL.to_vec(), 1..=Verb::ALL.len());
    let templates = proptest::sample::subsequence(TEMPLATES.to_vec(), 1..=TEMPLATES.len());
    (
        any::<bool>(),
        subset(&CALLER_PATTERNS),
        subset(&HOSTS),
        verbs,
        proptest::option::of(templates),
    )
        .prop_map(|(denies, callers, hosts, verbs, templates)| PlainRule {
            denies,
            callers,
            hosts,
            verbs,
            templates,
        })
}

fn as_toml(rules: &[PlainRule]) -> String {
    let list = |words: &[&str]| {
        let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        format!("[{}]", quoted.join(", "))
    };
    let mut text = String::new();
    for (number, rule) in rules.iter().enumerate() {
        text.push_str(&format!("[[rules]]\nname = \"rule {number}\"\n"));
        if rule.denies {
            text.push_str("effect = \"deny\"\n");
        }
        for (key, words) in [("callers", &rule.callers), ("hosts", &rule.hosts)] {
            if !words.is_empty() {
                text.push_str(&format!("{key} = {}\n", list(words)));
            }
        }
        let verbs: Vec<&str> = rule.verbs.iter().map(|verb| verb.as_str()).collect();
        text.push_str(&format!("verbs = {}\n", list(&verbs)));
        // Without a verb that has a command, the key is a mistake.
        if !rule.verbs.iter().any(|verb| verb.has_command()) {
            continue;
        }
        match &rule.templates {
            Some(names) => text.push_str(&format!("commands = {}\n", list(names))),
            None => text.push_str("commands = \"any\"\n"),
        }
    }
    for name in TEMPLATES {
        text.push_str(&format!("[templates.{name}]\ncommand = \"true\"\n"));
    }
    text
}

#[test]
fn a_call_is_decided_by_the_rules_that_match_it() {
    let policy = policy(POLICY);
    let agent = caller("agent1", Role::Run);
    let staging = endpoint("app1", &["staging"]);
    let free = CommandSource::Free;
    let restart = CommandSource::Template("restart");

    let (is_allowed, rules) = decided(&policy, &agent, Verb::Run, &staging, restart);
    assert!(is_allowed);
    assert_eq!(rules, ["agents restart services on staging"]);
    assert_eq!(
        decided(&policy, &agent, Verb::Run, &staging, free),
        (false, Vec::new())
    );
    let (is_allowed, rules) = decided(&policy, &agent, Verb::Tail, &staging, free);
    assert!(is_allowed);
    assert_eq!(rules, ["agents look everywhere"]);
    let database = endpoint("prod-db", &["db"]);
    let (is_allowed, rules) = decided(&policy, &agent, Verb::Run, &database, free);
    assert!(!is_allowed);
    assert_eq!(rules, ["never the databases"]);
}

#[test]
fn a_rule_has_the_limits_that_are_written() {
    let policy = policy(POLICY);
    let limits = policy.rules.all()[1].limits;
    assert_eq!(
        limits,
        RuleLimits {
            jobs: Some(5),
            timeout: Some(Duration::from_secs(600)),
            bytes: None,
            starts_per_minute: Some(30),
        }
    );
}

#[test]
fn a_machine_behind_a_denied_one_is_denied() {
    let policy = policy(
        "[[rules]]\nname = \"all\"\ncommands = \"any\"\n\
         [[rules]]\nname = \"no bastion\"\neffect = \"deny\"\nhosts = [\"bastion\"]\n",
    );
    let agent = caller("agent1", Role::Run);
    let behind = MachineAccount {
        jumps: vec![Machine::new(["bastion", "10.0.0.1"], 22, [])],
        ..endpoint("inner", &[])
    };

    let (is_allowed, rules) = decided(&policy, &agent, Verb::Run, &behind, CommandSource::Free);

    assert!(!is_allowed);
    assert_eq!(rules, ["no bastion"]);
}

#[test]
fn an_alias_neither_evades_a_denial_nor_gains_an_allowance() {
    let policy = policy(
        "[[rules]]\nname = \"staging\"\nhosts = [\"app*\"]\ncommands = \"any\"\n\
         [[rules]]\nname = \"no databases\"\neffect = \"deny\"\nhosts = [\"tag:db\"]\n",
    );
    let agent = caller("agent1", Role::Run);
    let denied = MachineAccount {
        machine: Machine::new(["app-alias", "10.0.0.7"], 22, []).also_known_as(
            ["db1"],
            22,
            ["db".to_owned()],
        ),
        ..endpoint("", &[])
    };
    let not_named = MachineAccount {
        machine: Machine::new(["other", "10.0.0.8"], 22, []).also_known_as(["app1"], 22, []),
        ..endpoint("", &[])
    };

    let (is_allowed, rules) = decided(&policy, &agent, Verb::Run, &denied, CommandSource::Free);
    assert!(!is_allowed);
    assert_eq!(rules, ["no databases"]);
    let decided = decided(&policy, &agent, Verb::Run, &not_named, CommandSource::Free);
    assert_eq!(decided, (false, Vec::new()));
}

#[test]
fn a_rule_with_users_needs_all_accounts_of_a_call() {
    let policy = policy("[[rules]]\nname = \"deploy\"\nusers = [\"deploy\"]\ncommands = \"any\"\n");
    let agent = caller("agent1", Role::Run);
    let plain = endpoint("web1", &[]);
    let mut as_root = plain.clone();
    as_root.users.push("root".to_owned());

    assert!(decided(&policy, &agent, Verb::Run, &plain, CommandSource::Free).0);
    assert!(!decided(&policy, &agent, Verb::Run, &as_root, CommandSource::Free).0);
}

#[test]
fn a_rule_that_denies_an_account_denies_its_name_in_any_case() {
    let policy = policy(
        r#"
[[rules]]
name = "all"
commands = "any"

[[rules]]
name = "not these"
effect = "deny"
users = ["root", "adm*", "*\\svc"]

[[rules]]
name = "deploy only"
callers = ["deployer"]
users = ["deploy"]
commands = "any"
"#,
    );
    let agent = caller("agent1", Role::Run);
    for (user, is_allowed) in [
        ("root", false),
        ("ROOT", false),
        ("Admin", false),
        ("CORP\\SVC", false),
        ("deploy", true),
    ] {
        let mut becoming = endpoint("web1", &[]);
        becoming.users.push(user.to_owned());
        let (decided, _) = decided(&policy, &agent, Verb::Run, &becoming, CommandSource::Free);
        assert_eq!(decided, is_allowed, "{user}");
    }
}

#[test]
fn targets_limit_forwards_and_a_socks_proxy_reaches_any_target() {
    let policy = policy(
        "[[rules]]\nname = \"postgres\"\nverbs = [\"forward\"]\ntargets = [\"localhost:5432\"]\n",
    );
    let agent = caller("agent1", Role::Run);
    let web1 = endpoint("web1", &[]);
    let may_forward = |target| {
        let request = PolicyRequest {
            caller: &agent,
            verb: Verb::Forward,
            endpoint: Some(&web1),
            command: None,
            target,
            minute: WeekMinute::default(),
        };
        matches!(policy.decide(&request), PolicyDecision::Allowed(_))
    };

    assert!(may_forward(Some("localhost:5432")));
    assert!(!may_forward(Some("localhost:6379")));
    assert!(!may_forward(None));
}

#[test]
fn a_caller_is_offered_the_templates_that_it_may_run() {
    let policy = policy(POLICY);
    let agent = caller("agent1", Role::Run);
    let names = |caller: &PolicyCaller, endpoint: &MachineAccount| -> Vec<String> {
        let templates = policy.templates_for(caller, endpoint, WeekMinute::default());
        templates.map(|template| template.name.clone()).collect()
    };

    assert_eq!(names(&agent, &endpoint("app1", &["staging"])), ["restart"]);
    assert!(names(&agent, &endpoint("app1", &[])).is_empty());
    assert!(names(&agent, &endpoint("app1", &["staging", "db"])).is_empty());
    let bob = caller("bob", Role::Run);
    assert!(names(&bob, &endpoint("app1", &["staging"])).is_empty());
}

#[test]
fn a_template_for_another_user_needs_a_rule_for_that_user() {
    let rules = r#"
[[rules]]
name = "as deploy"
callers = ["a"]
users = ["deploy"]
commands = ["restart"]

[templates.restart]
command = "systemctl restart app"
become = "root"
"#;
    let count = |text: &str| {
        let endpoint = endpoint("app1", &[]);
        policy(text)
            .templates_for(&caller("a", Role::Run), &endpoint, WeekMinute::default())
            .count()
    };

    assert_eq!(count(rules), 0);
    assert_eq!(
        count(&rules.replace(r#"["deploy"]"#, r#"["deploy", "root"]"#)),
        1
    );
}

#[test]
fn only_a_rule_without_hosts_allows_a_call_everywhere() {
    let anywhere = "[[rules]]\nname = \"anywhere\"\ncallers = [\"a\"]\ncommands = \"any\"\n";
    assert!(allows_everywhere(anywhere));
    for limit in [
        r#"hosts = ["web1"]"#,
        r#"users = ["deploy"]"#,
        r#"approval = "person""#,
    ] {
        assert!(
            !allows_everywhere(&format!("{anywhere}{limit}\n")),
            "{limit}"
        );
    }

    let denial = "[[rules]]\nname = \"denial\"\neffect = \"deny\"\n";
    for scope in [
        r#"hosts = ["web1"]"#,
        r#"verbs = ["run"]"#,
        r#"callers = ["a"]"#,
    ] {
        assert!(
            !allows_everywhere(&format!("{anywhere}{denial}{scope}\n")),
            "{scope}"
        );
    }
    for scope in [r#"verbs = ["put"]"#, r#"callers = ["b"]"#] {
        assert!(
            allows_everywhere(&format!("{anywhere}{denial}{scope}\n")),
            "{scope}"
        );
    }
}

#[test]
fn rules_tell_whether_approvals_and_machines_are_needed() {
    let rule = "[[rules]]\nname = \"a rule\"\ncallers = [\"a\"]\ncommands = \"any\"\n";
    let plain = policy(rule);
    assert!(!plain.asks_for_approval());
    assert!(!plain.looks_at_machines());
    assert!(plain.named_hosts().is_empty());
    assert_eq!(plain.rule_count(), 1);

    let with = |line: &str| policy(&format!("{rule}{line}\n"));
    assert!(with(r#"approval = "person""#).asks_for_approval());
    assert!(with(r#"hosts = ["tag:web"]"#).looks_at_machines());
    assert!(with(r#"users = ["deploy"]"#).looks_at_machines());
    let hosts = r#"hosts = ["Web1", "db1:2222", "prod-*", "web?", "tag:web", "*"]"#;
    assert_eq!(with(hosts).named_hosts(), ["web1", "db1:2222"]);

    let template = "[templates.t]\ncommand = \"true\"\napproval = \"person\"\n";
    let asking = policy(&format!("{}{template}", rule.replace("\"any\"", "[\"t\"]")));
    assert!(asking.asks_for_approval());
    assert_eq!(asking.template_names().collect::<Vec<_>>(), ["t"]);
}

#[test]
fn a_test_case_is_read_with_its_defaults() {
    let policy = policy(CASES);
    let [first, second] = policy.cases() else { panic!("two cases") };

    assert_eq!(first.line, 11);
    assert_eq!(first.caller, caller("a", Role::Run));
    assert_eq!(first.verb, Verb::Run);
    assert_eq!(
        first.params,
        BTreeMap::from([("n".to_owned(), "5".to_owned())])
    );
    assert!(first.at.is_some());
    assert_eq!(first.expected, crate::case::ExpectedDecision::Allow);
    assert_eq!(first.rule, None);
    assert_eq!(second.caller, caller("b", Role::Admin));
    assert_eq!(second.verb, Verb::Forward);
    assert_eq!(second.target.as_deref(), Some("db1:5432"));
    assert_eq!(second.at, None);
    assert_eq!(second.rule.as_deref(), Some("a rule"));
}

#[test]
fn a_mistake_in_a_test_case_is_reported_with_its_line() {
    check_mistake(
        &CASES.replace("\"admin\"", "\"admim\""),
        "21: unknown role \"admim\"; did you mean \"admin\"?",
    );
    check_mistake(
        &CASES.replace("\"forward\"", "\"forwards\""),
        "22: unknown verb \"forwards\"; did you mean \"forward\"?",
    );
    check_mistake(
        &CASES.replace("tue 00:10", "tuesday"),
        "16: write a time as mon 10:00, in UTC",
    );
}

#[test]
fn a_mistake_is_reported_with_its_line_and_the_nearest_known_word() {
    check_mistake(
        "[[rules]]\nname = \"a\"\nverbs = [\"tail\", \"raed\"]\n",
        "3: unknown verb \"raed\"; did you mean \"read\"?",
    );
    check_mistake(
        "[[rules]]\nname = \"a\"\ncallers = [\"role:admn\"]\nverbs = [\"tail\"]\n",
        "3: unknown role \"admn\"; did you mean \"admin\"?",
    );
    check_mistake(
        "\n[[rules]]\nname = \"a\"\nhosts = [\"tag:stagin\"]\nverbs = [\"tail\"]\n",
        "2: unknown tag \"stagin\"; did you mean \"staging\"?",
    );
    check_mistake(
        "[[rules]]\nname = \"a\"\ncomands = \"any\"\n",
        "3: unknown key \"comands\"; did you mean \"commands\"?",
    );
    check_mistake(
        "[[rules]]\nname = \"a\"\ncommands = [\"restrt\"]\n[templates.restart]\ncommand = \"true\"\n",
        "3: unknown template \"restrt\"; did you mean \"restart\"?",
    );
    check_mistake(
        "[[rules]]\nname = \"a\"\ncommands = \"any\"\n[templates.restart]\n\
         command = \"systemctl restart {unti}\"\nparameters.unit = { text = 9 }\n",
        "5: unknown parameter \"unti\"; did you mean \"unit\"?",
    );
}

#[test]
fn what_can_never_take_effect_is_refused() {
    check_mistake(
        "[[rules]]\nname = \"a\"\n",
        "1: a rule that allows something needs verbs or commands",
    );
    check_mistake(
        "[[rules]]\nname = \"a\"\nverbs = [\"run\"]\n",
        "1: a rule that allows run needs commands: \"any\", or a list of templates",
    );
    check_mistake(
        "[[rules]]\nname = \"a\"\nverbs = []\n",
        "3: the list is empty, so the rule never applies; omit the key for all",
    );
    check_mistake(
        "[[rules]]\nname = \"a\"\ncommands = \"any\"\n[templates.idle]\ncommand = \"true\"\n\
         [[rules]]\nname = \"b\"\neffect = \"deny\"\n",
        "1: the rule \"a\" can never take effect: \"b\" denies all that it allows",
    );
    check_mistake(
        "[[rules]]\nname = \"a\"\nverbs = [\"tail\"]\n[templates.idle]\ncommand = \"true\"\n",
        "4: no rule allows the template \"idle\"",
    );
    check_mistake(
        "[[rules]]\nname = \"a\"\nverbs = [\"tail\"]\n\
         [[rules]]\nname = \"b\"\neffect = \"deny\"\ncommands = [\"idle\"]\n\
         [templates.idle]\ncommand = \"true\"\n",
        "8: no rule allows the template \"idle\"",
    );
    check_mistake(
        "[[rules]]\nname = \"a\"\ncommands = \"any\"\n\
         [templates.careful]\ncommand = \"true\"\napproval = \"person\"\n",
        "4: the template \"careful\" asks a person, and there are no [[approvers]]",
    );
    check_mistake(
        "[[rules]]\nname = \"a\"\ncommands = \"any\"\napproval = \"person\"\n",
        "1: the rule \"a\" asks a person, and there are no [[approvers]]",
    );
    check_mistake(
        "[[rules]]\nname = \"a\"\neffect = \"deny\"\napproval = \"person\"\n",
        "4: approval has no effect in a rule that denies",
    );
}

#[test]
fn a_key_without_effect_is_a_mistake() {
    check_mistake(
        "[[rules]]\nname = \"a\"\nverbs = [\"forget\"]\ncommands = \"any\"\n",
        "4: commands has no effect without run, spawn, write or signal in verbs",
    );
    check_mistake(
        "[[rules]]\nname = \"a\"\nverbs = [\"tail\"]\ntargets = [\"localhost:1\"]\n",
        "4: targets has no effect without forward in verbs",
    );
}

#[test]
fn a_value_outside_its_range_is_refused_in_a_rule() {
    let approvals =
        "approvals is the number of callers who have to agree, 1 to 10, with approval = \"person\"";
    check_mistake_in_rule("approvals = 2", approvals);
    check_mistake_in_rule("approvals = 0\napproval = \"person\"", approvals);
    check_mistake_in_rule("approvals = 11\napproval = \"person\"", approvals);
    check_mistake_in_rule(
        "approval = \"person\"\nverbs = [\"run\", \"tail\"]",
        "nobody can be asked about tail: only about run, spawn, write, signal and forward",
    );
    check_mistake_in_rule(
        "hours = []",
        "the list is empty, so the rule never applies; omit the key for all",
    );
    check_mistake_in_rule(
        "hours = [\"mon\"]",
        "\"mon\" is not a span of hours; write mon-fri 08:00-18:00, times in UTC",
    );
    for limit in ["jobs", "timeout_s", "starts_per_minute"] {
        check_mistake_in_rule(
            &format!("limits = {{ {limit} = 0 }}"),
            "a limit of 0 allows nothing; use a rule with effect = \"deny\"",
        );
    }
    check_mistake(
        "[[rules]]\nname = \"a\"\ncommands = \"some\"\n",
        "3: commands is \"any\" or a list of templates, not \"some\"",
    );
    check_mistake(
        "[[rules]]\nname = \"a\"\ncommands = []\n",
        "3: the list is empty, so the rule never applies",
    );
}

#[test]
fn a_value_outside_its_range_is_refused_in_a_template() {
    let path = "6: path is the absolute directory that a value lies below, without ..";
    check_mistake(
        &template_with("enum = []"),
        "6: the list of values is empty",
    );
    check_mistake(&template_with("int = [2, 1]"), "6: 2 is more than 1");
    check_mistake(&template_with("path = \"srv\""), path);
    check_mistake(&template_with("path = \"/srv/../etc\""), path);

    policy(&template_with("int = [1, 1]"));
    policy(&template_with("path = \"/srv\""));
}

#[test]
fn a_pattern_without_a_host_half_a_denial_and_a_numbered_user_are_warned_of() {
    let policy = policy(
        "[[rules]]\nname = \"a\"\nhosts = [\"wbe*\"]\nverbs = [\"tail\"]\n\
         [[rules]]\nname = \"b\"\neffect = \"deny\"\nhosts = [\"web1\"]\nusers = [\"0\", \"root\"]\nverbs = [\"run\"]\n",
    );
    let inventory = Inventory(BTreeMap::from([("web1".to_owned(), Vec::new())]));

    let warnings = policy.check(&inventory).unwrap();

    let texts: Vec<_> = warnings.iter().map(|warning| warning.message.as_str()).collect();
    assert_eq!(
        texts,
        [
            "the rule \"a\": wbe* matches no listed host",
            "the rule \"b\" denies run and not spawn, which has the same effect",
            "the rule \"b\" has the user \"0\": users are compared by name, as in \"root\"",
        ]
    );
}

proptest! {
    #[test]
    fn every_decision_is_that_of_the_reference_evaluator(
        rules in proptest::collection::vec(plain_rule(), 1..8)
    ) {
        let policy = policy(&as_toml(&rules));
        for name in CALLERS {
            let caller = caller(name, Role::Run);
            for host in HOSTS {
                let endpoint = endpoint(host, &[]);
                for verb in Verb::ALL {
                    for template in TEMPLATES.into_iter().chain([""]) {
                        let command = if template.is_empty() {
                            CommandSource::Free
                        } else {
                            CommandSource::Template(template)
                        };
                        let (is_allowed, _) = decided(&policy, &caller, verb, &endpoint, command);
                        let expected = reference(&rules, name, verb, host, template);
                        prop_assert_eq!(is_allowed, expected, "{} {} {} {}", name, verb, host, template);
                    }
                }
            }
        }
    }
}
