//! The cost of the ring and its pages, beside the work that can't be avoided.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sshjobs::output::{
    LineNo, Page, PageQuery, Render, Ring, RingLimits, Selection, Stream, clean,
};
use std::hint::black_box;

const LINE: &[u8; 80] =
    b"the quick brown fox jumps over the lazy dog and runs away into the deep forest.\n";
const CHUNK: usize = 32 << 10;

fn append(c: &mut Criterion) {
    let chunk: Vec<u8> = LINE.iter().copied().cycle().take(CHUNK / 80 * 80).collect();
    let mut group = c.benchmark_group("append");
    group.throughput(Throughput::Bytes(chunk.len() as u64));
    let mut ring = Ring::new(RingLimits {
        lines: 100_000,
        ..RingLimits::default()
    });
    group.bench_function("ring, 80-byte lines", |b| {
        b.iter(|| ring.append(Stream::Stdout, black_box(&chunk), 0))
    });
    // The same bytes into a buffer of the ring's size, round and round.
    let mut buffer = vec![0_u8; 8 << 20];
    let mut at = 0;
    group.bench_function("memcpy", |b| {
        b.iter(|| {
            if at + chunk.len() > buffer.len() {
                at = 0;
            }
            buffer[at..at + chunk.len()].copy_from_slice(black_box(&chunk));
            at += chunk.len();
        });
    });
    group.finish();
}

fn page(c: &mut Criterion) {
    let mut group = c.benchmark_group("page of 500 lines");
    for lines in [1_000_usize, 1_000_000] {
        let mut ring = Ring::new(RingLimits {
            lines,
            bytes: 128 << 20,
            ..RingLimits::default()
        });
        for _ in 0..lines {
            ring.append(Stream::Stdout, LINE, 0);
        }
        let query = PageQuery {
            cursor: LineNo::new(lines as u64 / 2 - 1),
            selection: Selection::Both,
            max_lines: 500,
            max_bytes: 1 << 20,
            line_bytes: 1,
            render: Render::Clean,
            keep: Default::default(),
        };
        group.bench_with_input(BenchmarkId::from_parameter(lines), &query, |b, query| {
            b.iter(|| Page::read(black_box(&ring), query));
        });
    }
    group.finish();
}

fn render(c: &mut Criterion) {
    let mut group = c.benchmark_group("render one line");
    let coloured =
        "\x1b[32mok\x1b[0m the quick brown fox \x1b[1mjumps\x1b[0m over the lazy dog — and away"
            .as_bytes();
    for (name, line) in [("plain", &LINE[..79]), ("coloured", coloured)] {
        group.throughput(Throughput::Bytes(line.len() as u64));
        group.bench_function(format!("clean, {name}"), |b| {
            b.iter(|| clean(black_box(line)).into_owned())
        });
        group.bench_function(format!("raw, {name}"), |b| {
            b.iter(|| String::from_utf8_lossy(black_box(line)).into_owned());
        });
    }
    group.finish();
}

criterion_group!(benches, append, page, render);
criterion_main!(benches);
