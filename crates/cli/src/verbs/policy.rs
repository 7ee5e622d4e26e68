//! `sshjobs policy check`, `explain` and `test`.

use serde_json::json;

use crate::args::{
    PolicyArgs, PolicyCheckArgs, PolicyExplainArgs, PolicySubcommand, PolicyTestArgs,
};
use crate::exit::print;
use crate::json::json as json_line;
use crate::{ProgramExit, note};
use sshjobs_core::jobs::{
    ApprovalFrom, CaseResult, Claims, ExpectedDecision, Explanation, Jobs, PolicyCaller,
    PolicyCase, PolicyState, printable,
};
use sshjobs_wire::Error;

/// Performs `sshjobs policy`.
///
/// # Errors
/// If no policy is named, or its file can't be used.
pub async fn policy(jobs: &Jobs, args: PolicyArgs) -> Result<ProgramExit, Error> {
    match args.verb {
        PolicySubcommand::Check(args) => check(jobs, &args).await,
        PolicySubcommand::Explain(args) => explain(jobs, args).await,
        PolicySubcommand::Test(args) => test(jobs, &args).await,
    }
}

async fn check(jobs: &Jobs, args: &PolicyCheckArgs) -> Result<ProgramExit, Error> {
    let state = jobs.policy_state().await.ok_or_else(no_policy)?;
    if let Some(trouble) = &state.trouble {
        return Err(not_usable(trouble));
    }
    for warning in &state.warnings {
        note(warning);
    }
    if args.json {
        return Ok(print(&json_line(&state_as_json(&state))));
    }
    let rules = if state.rules == 1 { "rule" } else { "rules" };
    Ok(print(&format!(
        "{}: {} {rules}, no mistake",
        state.file.display(),
        state.rules
    )))
}

fn state_as_json(state: &PolicyState) -> serde_json::Value {
    json!({
        "file": state.file,
        "sha256": state.hash,
        "rules": state.rules,
        "warnings": state.warnings,
    })
}

async fn explain(jobs: &Jobs, args: PolicyExplainArgs) -> Result<ProgramExit, Error> {
    let case = PolicyCase {
        line: 0,
        caller: PolicyCaller {
            name: args.caller,
            role: args.role.into(),
            claims: Claims::with(args.claims),
        },
        verb: args.verb,
        host: Some(args.host),
        becomes: args.r#become,
        template: args.template,
        params: args.params.into_iter().collect(),
        target: args.target,
        at: args.at,
        expected: ExpectedDecision::Allow,
        rule: None,
    };
    let explanation = jobs.explain(&case).await.ok_or_else(no_policy)?;
    let explanation = explanation.map_err(|error| not_usable(&error))?;
    let printed = if args.json {
        print(&json_line(&explanation))
    } else {
        print(&in_words(&case, &explanation).join("\n"))
    };
    Ok(match explanation.decision {
        ExpectedDecision::Deny if printed == ProgramExit::SUCCESS => ProgramExit::DECLINED,
        ExpectedDecision::Deny | ExpectedDecision::Allow | ExpectedDecision::Approval => printed,
    })
}

/// The explanation for a person.
fn in_words(case: &PolicyCase, explanation: &Explanation) -> Vec<String> {
    let decision = match (explanation.decision, explanation.approval) {
        (ExpectedDecision::Allow, _) => "allowed",
        (ExpectedDecision::Approval, ApprovalFrom::Person) => "allowed once an approver has agreed",
        (ExpectedDecision::Approval, _) => "allowed once the user of the client has agreed",
        (ExpectedDecision::Deny, _) => "denied",
    };
    let mut lines = vec![format!("{decision}: {} by {}", case.verb, case.caller.name)];
    if let Some(mistake) = &explanation.mistake {
        lines.push(format!("  because  {mistake}"));
    } else if explanation.rules.is_empty() {
        lines.push("  because  no rule allows it".to_owned());
    }
    let listed = [
        ("rules", &explanation.rules),
        ("machine", &explanation.machine),
        ("also", &explanation.also_known_as),
        ("tags", &explanation.tags),
        ("users", &explanation.users),
        ("through", &explanation.jumps),
    ];
    for (name, values) in listed {
        if !values.is_empty() {
            lines.push(format!("  {name:<8} {}", values.join(", ")));
        }
    }
    if let Some(command) = &explanation.command {
        lines.push(format!("  command  {command}"));
    }
    let limits = [
        ("running jobs", explanation.jobs.map(u64::from)),
        (
            "starts a minute",
            explanation.starts_per_minute.map(u64::from),
        ),
        ("seconds", explanation.timeout_s),
        ("bytes", explanation.bytes),
    ];
    for (name, limit) in limits {
        if let Some(limit) = limit {
            lines.push(format!("  at most  {limit} {name}"));
        }
    }
    // Names come from files and from the command line.
    lines.iter().map(|line| printable(line)).collect()
}

async fn test(jobs: &Jobs, args: &PolicyTestArgs) -> Result<ProgramExit, Error> {
    let results = jobs.test_policy().await.ok_or_else(no_policy)?;
    let results = results.map_err(|error| not_usable(&error))?;
    let failed = results.iter().filter(|result| !result.has_passed()).count();
    let lines: Vec<String> = if args.json {
        results.iter().map(|result| json_line(&case_as_json(result))).collect()
    } else {
        let failures = results.iter().filter(|result| !result.has_passed()).map(failure);
        let passed = results.len() - failed;
        failures.chain([format!("{passed} of {} cases pass", results.len())]).collect()
    };
    let printed = print(&lines.join("\n"));
    if results.is_empty() {
        note("the policy file has no [[tests]]");
    }
    Ok(
        if printed == ProgramExit::SUCCESS && (failed > 0 || results.is_empty()) {
            ProgramExit::DECLINED
        } else {
            printed
        },
    )
}

fn failure(result: &CaseResult) -> String {
    let CaseResult { case, explanation } = result;
    let host = case.host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
    let rules = match (&explanation.mistake, explanation.rules.as_slice()) {
        (Some(mistake), _) => format!(" ({mistake})"),
        (None, []) => " (no rule allows it)".to_owned(),
        (None, rules) => format!(" (rules: {})", rules.join(", ")),
    };
    let line = format!(
        "line {}: {} by {}{host}: expected {}, decided {}{rules}",
        case.line,
        case.verb,
        case.caller.name,
        case.expected.as_str(),
        explanation.decision.as_str()
    );
    printable(&line)
}

fn case_as_json(result: &CaseResult) -> serde_json::Value {
    json!({
        "line": result.case.line,
        "passed": result.has_passed(),
        "expected": result.case.expected,
        "decision": result.explanation.decision,
        "rules": result.explanation.rules,
        "mistake": result.explanation.mistake,
    })
}

fn no_policy() -> Error {
    Error::invalid(
        "no policy file is named",
        "name one with --policy FILE, or as `file` in the table [policy] of the configuration",
    )
}

fn not_usable(error: &(impl ToString + ?Sized)) -> Error {
    Error::invalid(
        format!("the policy can't be used: {}", error.to_string()),
        "correct the file; docs/policy.md explains each key",
    )
}
