use super::*;

fn ask(id: &str) -> Ask {
    Ask {
        id: id.to_owned(),
        call: "{}".to_owned(),
        sha256: "abc".to_owned(),
        asker: "agent".to_owned(),
        reason: None,
        rule: "production".to_owned(),
        host: "prod-1".to_owned(),
        policy: "1".to_owned(),
        needed: 1,
        idempotency_key: None,
        job: None,
    }
}

fn vote(by: &str, agrees: bool) -> Vote {
    Vote {
        by: by.to_owned(),
        agrees,
        reason: None,
        at: 0,
    }
}

fn is_passed(found: &ApprovalLookup) -> bool {
    matches!(found, ApprovalLookup::Passed(_))
}

#[test]
fn a_call_waits_until_someone_agrees_and_goes_through_once() {
    let mut list = ApprovalList::default();

    assert!(matches!(
        list.pass(&ask("a"), 0),
        Ok(ApprovalLookup::Asked(_))
    ));
    assert!(
        matches!(list.pass(&ask("b"), 1), Ok(ApprovalLookup::Pending(found)) if found.id == "a")
    );
    list.vote("a", vote("alice", true), 2).unwrap();
    assert!(is_passed(&list.pass(&ask("c"), 3).unwrap()));

    let again = list.pass(&ask("d"), 4).unwrap();
    assert!(matches!(again, ApprovalLookup::Asked(found) if found.id == "d"));
}

#[test]
fn another_call_and_another_caller_have_no_part_in_an_approval() {
    let mut list = ApprovalList::default();
    list.pass(&ask("a"), 0).unwrap();
    list.vote("a", vote("alice", true), 1).unwrap();

    let altered = Ask {
        sha256: "abd".to_owned(),
        ..ask("b")
    };
    assert!(matches!(
        list.pass(&altered, 2),
        Ok(ApprovalLookup::Asked(_))
    ));
    let stolen = Ask {
        asker: "other".to_owned(),
        ..ask("c")
    };
    assert!(matches!(
        list.pass(&stolen, 2),
        Ok(ApprovalLookup::Asked(_))
    ));
    assert!(is_passed(&list.pass(&ask("d"), 2).unwrap()));
}

#[test]
fn nobody_agrees_to_their_own_call_or_twice() {
    let mut list = ApprovalList::default();
    let two = Ask {
        needed: 2,
        ..ask("a")
    };
    list.pass(&two, 0).unwrap();

    let own = list.vote("a", vote("agent", true), 1);
    assert!(matches!(own, Err(CantVote::OwnCall { .. })));
    list.vote("a", vote("alice", true), 1).unwrap();
    let twice = list.vote("a", vote("alice", true), 1);
    assert!(matches!(twice, Err(CantVote::Again { .. })));
    assert!(matches!(list.pass(&two, 2), Ok(ApprovalLookup::Pending(_))));
    list.vote("a", vote("bob", true), 2).unwrap();
    assert!(is_passed(&list.pass(&two, 3).unwrap()));
}

#[test]
fn one_refusal_is_enough_and_stands_for_a_while() {
    let mut list = ApprovalList::default();
    let two = Ask {
        needed: 2,
        ..ask("a")
    };
    list.pass(&two, 0).unwrap();
    list.vote("a", vote("alice", true), 1).unwrap();
    list.vote("a", vote("bob", false), 1).unwrap();

    assert!(matches!(list.pass(&two, 2), Ok(ApprovalLookup::Denied(_))));
    let late = list.vote("a", vote("carol", true), 2);
    assert!(matches!(
        late,
        Err(CantVote::Closed {
            state: ApprovalState::Denied,
            ..
        })
    ));
    assert!(matches!(
        list.pass(&two, 1 + APPROVAL_LIFETIME),
        Ok(ApprovalLookup::Asked(_))
    ));
}

#[test]
fn no_answer_is_no_and_an_agreement_does_not_last() {
    let mut list = ApprovalList::default();
    list.pass(&ask("a"), 0).unwrap();

    let late = list.vote("a", vote("alice", true), APPROVAL_LIFETIME);
    assert!(matches!(late, Err(CantVote::Closed { .. })));
    assert!(matches!(
        list.pass(&ask("b"), APPROVAL_LIFETIME),
        Ok(ApprovalLookup::Expired(_))
    ));
    let again = list.pass(&ask("b"), APPROVAL_LIFETIME).unwrap();
    assert!(matches!(again, ApprovalLookup::Asked(found) if found.id == "b"));

    list.vote("b", vote("alice", true), APPROVAL_LIFETIME + 1).unwrap();
    let unused = list.pass(&ask("c"), 2 * APPROVAL_LIFETIME + 1).unwrap();
    assert!(matches!(unused, ApprovalLookup::Expired(_)));
}

/// A call for a command by a policy, with the idempotency key "k".
fn keyed(command: &str, policy: &str) -> Ask {
    let call = ExactCall {
        command: Some(command.to_owned()),
        policy: policy.to_owned(),
        ..ExactCall::default()
    };
    let call = call.canonical();
    Ask {
        sha256: ExactCall::hash(&call),
        call,
        idempotency_key: Some("k".to_owned()),
        job: Some("j1".to_owned()),
        ..ask("a")
    }
}

fn is_repeated(found: &ApprovalLookup) -> bool {
    matches!(found, ApprovalLookup::Repeated(used) if used.job.as_deref() == Some("j1"))
}

#[test]
fn a_call_with_an_idempotency_key_finds_its_job_again_and_starts_no_other() {
    let mut list = ApprovalList::default();
    let first = keyed("true", "1");
    list.pass(&first, 0).unwrap();
    list.vote("a", vote("alice", true), 1).unwrap();
    assert!(is_passed(&list.pass(&first, 2).unwrap()));

    let again = Ask {
        job: Some("j2".to_owned()),
        ..first.clone()
    };
    assert!(is_repeated(&list.pass(&again, 3).unwrap()));
    let by_a_newer_policy = keyed("true", "2");
    assert!(is_repeated(&list.pass(&by_a_newer_policy, 4).unwrap()));
    let other_key = Ask {
        idempotency_key: Some("other".to_owned()),
        ..ask("b")
    };
    assert!(matches!(
        list.pass(&other_key, 5),
        Ok(ApprovalLookup::Asked(_))
    ));
}

#[test]
fn another_call_with_a_used_idempotency_key_needs_an_approval_of_its_own() {
    let mut list = ApprovalList::default();
    let first = keyed("true", "1");
    list.pass(&first, 0).unwrap();
    list.vote("a", vote("alice", true), 1).unwrap();
    assert!(is_passed(&list.pass(&first, 2).unwrap()));

    let other = Ask {
        id: "b".to_owned(),
        ..keyed("rm -rf /", "1")
    };

    assert!(matches!(list.pass(&other, 3), Ok(ApprovalLookup::Asked(_))));
}

#[test]
fn an_approval_whose_call_has_no_job_is_used_up() {
    let mut list = ApprovalList::default();
    let first = keyed("true", "1");
    list.pass(&first, 0).unwrap();
    list.vote("a", vote("alice", true), 1).unwrap();
    assert!(is_passed(&list.pass(&first, 2).unwrap()));

    list.note_no_job("a");

    let again = Ask {
        id: "b".to_owned(),
        ..first
    };
    assert!(matches!(list.pass(&again, 3), Ok(ApprovalLookup::Asked(_))));
}

#[test]
fn an_approval_that_was_given_back_can_be_used() {
    let mut list = ApprovalList::default();
    list.pass(&ask("a"), 0).unwrap();
    list.vote("a", vote("alice", true), 1).unwrap();
    assert!(is_passed(&list.pass(&ask("b"), 2).unwrap()));
    list.give_back("a", Some(1));
    assert!(
        matches!(list.pass(&ask("b"), 3), Ok(ApprovalLookup::Asked(_))),
        "another call has used it"
    );
    list.give_back("a", Some(2));

    assert_eq!(list.get("a").unwrap().state(3), ApprovalState::Approved);
}

#[test]
fn a_caller_can_not_fill_the_list() {
    let mut list = ApprovalList::default();
    let other = |number: usize| Ask {
        sha256: number.to_string(),
        ..ask(&number.to_string())
    };
    for number in 0..MOST_PENDING {
        list.pass(&other(number), 0).unwrap();
    }

    assert_eq!(
        list.pass(&other(MOST_PENDING), 0),
        Err(TooManyApprovals::OfCaller)
    );
    assert!(list.pass(&other(MOST_PENDING), APPROVAL_LIFETIME).is_ok());
}

#[test]
fn long_calls_fill_neither_the_list_nor_a_message_of_nats() {
    let mut list = ApprovalList::default();
    let long = |caller: usize, number: usize| Ask {
        asker: caller.to_string(),
        sha256: format!("{caller}-{number}"),
        call: "\"".repeat(8000),
        ..ask(&format!("{caller}-{number}"))
    };
    let mut refused = Vec::new();
    for caller in 0..10 {
        for number in 0..10 {
            refused.extend(list.pass(&long(caller, number), 0).err());
        }
    }

    assert!(refused.contains(&TooManyApprovals::OfCaller));
    assert!(refused.contains(&TooManyApprovals::OfAll));
    let stored = serde_json::to_string(&list).unwrap();
    assert!(stored.len() < 256 << 10, "{}", stored.len());
    let later = list.pass(&long(11, 0), 2 * APPROVAL_LIFETIME);
    assert!(later.is_ok(), "those that have expired make room");
}

#[test]
fn an_expiry_is_reported_for_a_minute_only() {
    let mut list = ApprovalList::default();
    list.pass(&ask("a"), 0).unwrap();

    let next_day = APPROVAL_LIFETIME + EXPIRY_REPORTED;
    assert!(matches!(
        list.pass(&ask("b"), next_day),
        Ok(ApprovalLookup::Asked(_))
    ));
}
