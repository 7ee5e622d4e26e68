//! Reads a policy file. A mistake is reported with its line, and with the nearest known word.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::case::PolicyCase;
use super::case_text::CaseText;
use super::hours::Hours;
use super::mistake::{MistakeLines, PolicyMistake, unknown};
use super::parameter::{Parameter, ParameterKind, WordForm};
use super::pattern::{CallerPattern, HostPattern, NamePattern};
use super::policy::Policy;
use super::rule::{ApprovalFrom, Commands, Effect, Rule, RuleLimits};
use super::rules::Rules;
use super::template::{Template, parse_command};
use super::verb::{Verb, Verbs};
use crate::audit::AuditSettings;
use sshjobs_base::toml_text::explain;

/// Maximum callers who have to agree to a call.
const MOST_APPROVALS: u32 = 10;

/// A file as it is written.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct PolicyText {
    rules: Vec<Spanned<RuleText>>,
    approvers: Vec<Spanned<ApproverText>>,
    templates: BTreeMap<String, Spanned<TemplateText>>,
    tests: Vec<Spanned<CaseText>>,
    audit: Option<AuditSettings>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    name: Spanned<String>,
    #[serde(default)]
    effect: Effect,
    callers: Option<Spanned<Vec<Spanned<String>>>>,
    hosts: Option<Spanned<Vec<Spanned<String>>>>,
    users: Option<Spanned<Vec<String>>>,
    verbs: Option<Spanned<Vec<Spanned<String>>>>,
    commands: Option<Spanned<CommandsText>>,
    targets: Option<Spanned<Vec<String>>>,
    hours: Option<Spanned<Vec<String>>>,
    approval: Option<Spanned<ApprovalFrom>>,
    approvals: Option<Spanned<u32>>,
    limits: Option<Spanned<LimitsText>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "\"any\" or a list of templates")]
enum CommandsText {
    Word(String),
    Templates(Vec<String>),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsText {
    jobs: Option<u32>,
    timeout_s: Option<u32>,
    bytes: Option<u64>,
    starts_per_minute: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApproverText {
    callers: Spanned<Vec<Spanned<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateText {
    command: Spanned<String>,
    description: Option<String>,
    #[serde(default)]
    parameters: BTreeMap<String, Spanned<ParameterText>>,
    r#become: Option<String>,
    cwd: Option<String>,
    timeout_s: Option<u32>,
    #[serde(default)]
    approval: ApprovalFrom,
    #[serde(default)]
    stdin: bool,
    #[serde(default)]
    pty: bool,
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    read_only: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ParameterText {
    r#enum: Option<Vec<String>>,
    int: Option<[i64; 2]>,
    word: Option<String>,
    path: Option<String>,
    text: Option<usize>,
    #[serde(default)]
    allow_dash: bool,
    default: Option<String>,
}

impl Policy {
    /// Reads a policy file.
    ///
    /// # Errors
    /// The first mistake, with its line.
    pub fn parse(text: &str) -> Result<Self, PolicyMistake> {
        let lines = MistakeLines(text);
        let file: PolicyText = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            lines.mistake(&span, explain(error.message()))
        })?;

        if file.rules.is_empty() {
            return Err(lines.mistake(&(0..0), "the file has no rules, so it would allow nothing"));
        }
        let mut templates = BTreeMap::new();
        for (name, template) in file.templates {
            let read = read_template(lines, &name, template)?;
            templates.insert(name, read);
        }
        let mut rules: Vec<Rule> = Vec::new();
        for rule in file.rules {
            let span = rule.span();
            let rule = read_rule(lines, rule, &templates)?;
            if rules.iter().any(|other| other.name == rule.name) {
                let message = format!("another rule has the name {:?}, too", rule.name);
                return Err(lines.mistake(&span, message));
            }
            rules.push(rule);
        }
        let mut approvers = Vec::new();
        for approver in file.approvers {
            approvers.extend(read_callers(lines, &approver.into_inner().callers)?);
        }
        let cases = file.tests.into_iter().map(|case| PolicyCase::read(lines, case));
        let cases = cases.collect::<Result<_, _>>()?;
        Ok(Self {
            rules: Rules::new(rules),
            approvers,
            templates,
            cases,
            audit: file.audit,
        })
    }
}

fn read_rule(
    lines: MistakeLines<'_>,
    rule: Spanned<RuleText>,
    templates: &BTreeMap<String, Template>,
) -> Result<Rule, PolicyMistake> {
    let span = rule.span();
    let rule = rule.into_inner();
    if rule.name.get_ref().trim().is_empty() {
        return Err(lines.mistake(&rule.name.span(), "a rule needs a name"));
    }
    let commands = rule.commands.as_ref().map(|commands| read_commands(lines, commands, templates));
    let commands = commands.transpose()?;
    let verbs = match &rule.verbs {
        Some(verbs) => read_verbs(lines, verbs)?,
        None if commands.is_some() => Verb::OF_COMMANDS.into_iter().collect(),
        None if rule.effect == Effect::Deny => Verb::ALL.into_iter().collect(),
        None => {
            let message = "a rule that allows something needs verbs or commands";
            return Err(lines.mistake(&span, message));
        }
    };
    // Otherwise a rule that should only name a verb would allow every command.
    if rule.effect == Effect::Allow
        && commands.is_none()
        && let Some(verb) = verbs.iter().find(|verb| verb.runs_commands())
    {
        let message =
            format!("a rule that allows {verb} needs commands: \"any\", or a list of templates");
        return Err(lines.mistake(&span, message));
    }
    if rule.effect == Effect::Deny {
        let without_effect = [
            ("approval", rule.approval.as_ref().map(Spanned::span)),
            ("approvals", rule.approvals.as_ref().map(Spanned::span)),
            ("limits", rule.limits.as_ref().map(Spanned::span)),
        ];
        if let Some((key, Some(span))) = without_effect.into_iter().find(|(_, span)| span.is_some())
        {
            let message = format!("{key} has no effect in a rule that denies");
            return Err(lines.mistake(&span, message));
        }
    }
    let uses_commands = verbs.iter().any(Verb::has_command);
    if let Some(commands) = &rule.commands
        && !uses_commands
    {
        let message = "commands has no effect without run, spawn, write or signal in verbs";
        return Err(lines.mistake(&commands.span(), message));
    }
    if let Some(targets) = &rule.targets
        && !verbs.contains(Verb::Forward)
    {
        let message = "targets has no effect without forward in verbs";
        return Err(lines.mistake(&targets.span(), message));
    }
    let approval = read_approval(lines, &rule, verbs)?;
    Ok(Rule {
        name: rule.name.into_inner(),
        line: lines.line(&span),
        effect: rule.effect,
        callers: rule.callers.map_or(Ok(Vec::new()), |callers| read_callers(lines, &callers))?,
        hosts: rule.hosts.map_or(Ok(Vec::new()), |hosts| read_hosts(lines, &hosts))?,
        users: rule.users.map_or(Ok(Vec::new()), |users| read_names(lines, &users))?,
        verbs,
        commands: commands.unwrap_or(Commands::Any),
        targets: rule.targets.map_or(Ok(Vec::new()), |targets| read_names(lines, &targets))?,
        hours: rule.hours.map(|hours| read_hours(lines, &hours)).transpose()?,
        approval,
        approvals: rule.approvals.map_or(1, Spanned::into_inner),
        limits: rule
            .limits
            .map(|limits| read_limits(lines, &limits))
            .transpose()?
            .unwrap_or_default(),
    })
}

/// Who has to agree to a call that the rule allows.
fn read_approval(
    lines: MistakeLines<'_>,
    rule: &RuleText,
    verbs: Verbs,
) -> Result<ApprovalFrom, PolicyMistake> {
    let approval = rule.approval.as_ref().map(|approval| *approval.get_ref()).unwrap_or_default();
    if let Some(needed) = &rule.approvals {
        let is_possible = (1..=MOST_APPROVALS).contains(needed.get_ref());
        if approval != ApprovalFrom::Person || !is_possible {
            let message = format!(
                "approvals is the number of callers who have to agree, 1 to {MOST_APPROVALS}, with \
                 approval = \"person\""
            );
            return Err(lines.mistake(&needed.span(), message));
        }
    }
    if let Some(written) = &rule.approval
        && approval != ApprovalFrom::None
        && let Some(verb) = verbs.iter().find(|verb| !verb.can_be_approved())
    {
        let message = format!(
            "nobody can be asked about {verb}: only about run, spawn, write, signal and forward"
        );
        return Err(lines.mistake(&written.span(), message));
    }
    Ok(approval)
}

fn read_verbs(
    lines: MistakeLines<'_>,
    verbs: &Spanned<Vec<Spanned<String>>>,
) -> Result<Verbs, PolicyMistake> {
    refuse_empty(lines, verbs)?;
    let read = verbs.get_ref().iter().map(|word| {
        Verb::named(word.get_ref()).ok_or_else(|| {
            let known = Verb::ALL.map(Verb::as_str);
            let message = unknown("verb", word.get_ref(), &known);
            lines.mistake(&word.span(), message)
        })
    });
    read.collect()
}

pub(super) fn read_callers(
    lines: MistakeLines<'_>,
    callers: &Spanned<Vec<Spanned<String>>>,
) -> Result<Vec<CallerPattern>, PolicyMistake> {
    refuse_empty(lines, callers)?;
    callers.get_ref().iter().map(|text| read_caller(lines, text)).collect()
}

fn read_caller(
    lines: MistakeLines<'_>,
    text: &Spanned<String>,
) -> Result<CallerPattern, PolicyMistake> {
    CallerPattern::parse(text.get_ref()).map_err(|message| lines.mistake(&text.span(), message))
}

fn read_hosts(
    lines: MistakeLines<'_>,
    hosts: &Spanned<Vec<Spanned<String>>>,
) -> Result<Vec<HostPattern>, PolicyMistake> {
    refuse_empty(lines, hosts)?;
    let read = hosts.get_ref().iter().map(|text| {
        let span = text.span();
        let text = text.get_ref();
        if text.contains('@') {
            let message = format!("{text:?} names a user; put it into users");
            return Err(lines.mistake(&span, message));
        }
        if text.starts_with('!') {
            let message = format!("{text:?}: a rule with effect = \"deny\" excludes hosts");
            return Err(lines.mistake(&span, message));
        }
        if text.trim().is_empty() {
            return Err(lines.mistake(&span, "the name of a host is empty"));
        }
        Ok(HostPattern::new(text))
    });
    read.collect()
}

fn read_names(
    lines: MistakeLines<'_>,
    names: &Spanned<Vec<String>>,
) -> Result<Vec<NamePattern>, PolicyMistake> {
    refuse_empty(lines, names)?;
    Ok(names.get_ref().iter().map(|name| NamePattern::new(name)).collect())
}

fn read_commands(
    lines: MistakeLines<'_>,
    commands: &Spanned<CommandsText>,
    templates: &BTreeMap<String, Template>,
) -> Result<Commands, PolicyMistake> {
    let span = commands.span();
    match commands.get_ref() {
        CommandsText::Word(word) if word == "any" => Ok(Commands::Any),
        CommandsText::Word(word) => {
            let message = format!("commands is \"any\" or a list of templates, not {word:?}");
            Err(lines.mistake(&span, message))
        }
        CommandsText::Templates(names) if names.is_empty() => {
            Err(lines.mistake(&span, "the list is empty, so the rule never applies"))
        }
        CommandsText::Templates(names) => {
            let known: Vec<&str> = templates.keys().map(String::as_str).collect();
            match names.iter().find(|name| !templates.contains_key(*name)) {
                Some(name) => Err(lines.mistake(&span, unknown("template", name, &known))),
                None => Ok(Commands::Templates(names.clone())),
            }
        }
    }
}

fn read_hours(
    lines: MistakeLines<'_>,
    hours: &Spanned<Vec<String>>,
) -> Result<Hours, PolicyMistake> {
    refuse_empty(lines, hours)?;
    Hours::parse(hours.get_ref()).map_err(|error| lines.mistake(&hours.span(), error.to_string()))
}

fn read_limits(
    lines: MistakeLines<'_>,
    limits: &Spanned<LimitsText>,
) -> Result<RuleLimits, PolicyMistake> {
    let span = limits.span();
    let limits = *limits.get_ref();
    let is_zero = [limits.jobs, limits.timeout_s, limits.starts_per_minute].contains(&Some(0));
    if is_zero {
        let message = "a limit of 0 allows nothing; use a rule with effect = \"deny\"";
        return Err(lines.mistake(&span, message));
    }
    Ok(RuleLimits {
        jobs: limits.jobs,
        timeout: limits.timeout_s.map(seconds),
        bytes: limits.bytes,
        starts_per_minute: limits.starts_per_minute,
    })
}

fn read_template(
    lines: MistakeLines<'_>,
    name: &str,
    template: Spanned<TemplateText>,
) -> Result<Template, PolicyMistake> {
    let span = template.span();
    let text = template.into_inner();
    let command_span = text.command.span();
    let parts = parse_command(text.command.get_ref())
        .map_err(|error| lines.mistake(&command_span, error.to_string()))?;
    let mut parameters = BTreeMap::new();
    for (parameter_name, parameter) in text.parameters {
        let read = read_parameter(lines, &parameter)?;
        if let Some(default) = &read.default
            && let Err(error) = read.accept(default)
        {
            let message = format!("the default of {parameter_name} {error}");
            return Err(lines.mistake(&parameter.span(), message));
        }
        parameters.insert(parameter_name, read);
    }
    let template = Template {
        name: name.to_owned(),
        description: text.description,
        command: text.command.into_inner(),
        parts,
        parameters,
        becomes: text.r#become,
        cwd: text.cwd,
        timeout: text.timeout_s.map(seconds),
        approval: text.approval,
        allows_stdin: text.stdin,
        allows_pty: text.pty,
        env: text.env,
        read_only: text.read_only,
        line: lines.line(&span),
    };
    if template.read_only && (template.becomes.is_some() || template.allows_stdin) {
        let message = format!("{name} is read_only, so it can have neither become nor stdin");
        return Err(lines.mistake(&span, message));
    }
    let known: Vec<&str> = template.parameters.keys().map(String::as_str).collect();
    if let Some(place) = template.places().find(|place| !known.contains(place)) {
        return Err(lines.mistake(&command_span, unknown("parameter", place, &known)));
    }
    if let Some(unused) = known.iter().find(|name| !template.places().any(|place| place == **name))
    {
        let message = format!("the command of {name} has no {{{unused}}}");
        return Err(lines.mistake(&span, message));
    }
    Ok(template)
}

fn read_parameter(
    lines: MistakeLines<'_>,
    parameter: &Spanned<ParameterText>,
) -> Result<Parameter, PolicyMistake> {
    let mistake = |message: String| lines.mistake(&parameter.span(), message);
    let text = parameter.get_ref();
    let mut kinds: Vec<ParameterKind> = Vec::new();
    if let Some(values) = &text.r#enum {
        if values.is_empty() {
            return Err(mistake("the list of values is empty".to_owned()));
        }
        kinds.push(ParameterKind::Enum(values.clone()));
    }
    if let Some([least, most]) = text.int {
        if least > most {
            return Err(mistake(format!("{least} is more than {most}")));
        }
        kinds.push(ParameterKind::Int { least, most });
    }
    if let Some(form) = &text.word {
        let form = WordForm::new(form).map_err(|error| mistake(format!("word: {error}")))?;
        kinds.push(ParameterKind::Word(form));
    }
    if let Some(root) = &text.path {
        if !root.starts_with('/') || root.split('/').any(|part| part == "..") {
            let message = "path is the absolute directory that a value lies below, without ..";
            return Err(mistake(message.to_owned()));
        }
        kinds.push(ParameterKind::Path(root.clone()));
    }
    if let Some(most) = text.text {
        kinds.push(ParameterKind::Text(most));
    }
    match (kinds.pop(), kinds.pop()) {
        (Some(kind), None) => Ok(Parameter {
            kind,
            allows_dash: text.allow_dash,
            default: text.default.clone(),
        }),
        (_, _) => Err(mistake(
            "a parameter needs exactly one of enum, int, word, path and text".to_owned(),
        )),
    }
}

fn refuse_empty<T>(lines: MistakeLines<'_>, list: &Spanned<Vec<T>>) -> Result<(), PolicyMistake> {
    if list.get_ref().is_empty() {
        let message = "the list is empty, so the rule never applies; omit the key for all";
        return Err(lines.mistake(&list.span(), message));
    }
    Ok(())
}

fn seconds(number: u32) -> Duration {
    Duration::from_secs(number.into())
}
