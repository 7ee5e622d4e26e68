//! Plays the fuzz targets with their seeds and then with random input for a few seconds each.

use std::path::Path;
use std::time::Duration;

#[allow(unreachable_pub, reason = "the package in fuzz/ exports them")]
#[path = "../fuzz/targets/mod.rs"]
mod targets;

/// Words that random bytes rarely contain.
const WORDS: [&[u8]; 24] = [
    b"\n",
    b"\r\n",
    b"\r",
    b"\x1b",
    b"\x1b[",
    b"\x1b]",
    b"\x1bP",
    b"\x1b\\",
    b"\x07",
    b"\x1b]52;c;",
    b"\x1b]8;;",
    b"m",
    b"K",
    b";8",
    b"?1049h",
    b"\xc2\x9b",
    b"\xe2\x80\xae",
    b"\xf3\xa0\x81\x81",
    b"\xf0\x9f\x91\x8d",
    b"\xf0\x9f",
    b"\xff",
    b"\0",
    b"\x1b_",
    b"\x18",
];

/// The files of a target.
fn inputs(folder: &str, target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(target);
    let files = std::fs::read_dir(folder).unwrap();
    files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
}

/// Plays the target's seeds and its corpus, then random words and bytes for some seconds.
fn fuzz(target: &str, test: fn(&[u8])) {
    let seeds = inputs("fuzz/seeds", target);
    assert!(seeds.len() >= 4, "the seeds of {target} are missing");
    for seed in &seeds {
        test(seed);
        // Every beginning of a seed, too.
        (0..seed.len()).for_each(|end| test(&seed[..end]));
    }
    let corpus = inputs("fuzz/corpus", target);
    assert!(corpus.len() >= 20, "the corpus of {target} is missing");
    corpus.iter().for_each(|input| test(input));
    bolero::check!()
        .with_type::<Vec<(u8, u8)>>()
        .with_test_time(Duration::from_secs(4))
        .for_each(|input| {
            let pieces =
                input.iter().map(|(choice, byte)| match WORDS.get(usize::from(choice % 32)) {
                    Some(word) => *word,
                    None => std::slice::from_ref(byte),
                });
            test(&pieces.collect::<Vec<_>>().concat());
        });
}

#[test]
fn answers() {
    fuzz("answers", targets::answers);
}

#[test]
fn arguments() {
    fuzz("arguments", targets::arguments);
}

#[test]
fn assembler() {
    fuzz("assembler", targets::assembler);
}

#[test]
fn follower() {
    fuzz("follower", targets::follower);
}

#[test]
fn known_hosts() {
    fuzz("known_hosts", targets::known_hosts);
}

#[test]
fn names() {
    fuzz("names", targets::names);
}

#[test]
fn policy() {
    fuzz("policy", targets::policy);
}

#[test]
fn renderer() {
    fuzz("renderer", targets::renderer);
}

#[test]
fn screen() {
    fuzz("screen", targets::screen);
}

#[test]
fn secrets() {
    fuzz("secrets", targets::secrets);
}

#[test]
fn sftp() {
    fuzz("sftp", targets::sftp);
}

#[test]
fn stored_frames() {
    fuzz("stored_frames", targets::stored_frames);
}
