#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sshjobs_fuzz::policy(bytes));
