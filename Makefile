# Everything a developer or CI runs. `make help` lists it.

.DEFAULT_GOAL := help
.PHONY: help check lint features crates test test-as-user test-clients test-page test-cluster test-old-nats nightly torture soak interleavings simulation test-containers test-packages test-in-all-containers tests-in-containers \
	tests-of-packages dist reproduce site picture screenshots bench fuzz mutants coverage demo

help:  ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo:  ## Run a real job on an SSH server inside the process
	cargo run --locked -- demo

# Test binaries that cargo does not test by default, and leaves out of `--all-targets`, too.
TESTS_BY_NAME = $(patsubst %,--test %,become clients cluster disks fleet image machines packages page soak torture hosts_as_they_are)

check: lint features  ## All checks that run no test

lint:  ## Format, lints and docs, warnings as errors
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy --locked $(TESTS_BY_NAME) -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --document-private-items

# In a directory of its own, so that no other build waits for it in .ci/run.
features: export CARGO_TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)/features
features:  ## Compile the library without the program, bare and with its features
	for features in "" files sqlite,policy,testing; do \
		cargo clippy --lib --no-default-features --features "$$features" --locked -- -D warnings || exit 1; \
	done

# In a workspace, a crate may use features of a dependency that only another crate has asked for.
crates: export CARGO_TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)/features
crates:  ## Compile each crate by itself
	for crate in crates/*; do cargo check --quiet --locked --all-targets --package sshjobs-$${crate#crates/} || exit 1; done

# One process and a time limit for each test, all binaries before the report; see the script.
EACH_TEST = --no-fail-fast --config 'target."cfg(unix)".runner="fixtures/each-test"'
# By name: with `--tests`, cargo leaves out the targets below, which it does not test by default.
OWN_TESTS = --workspace --lib --bins --test sshd --test stores
# Tests that mount disks and make namespaces: only root can.
ROOT_TESTS = $(shell [ "$$(id -u)" != 0 ] || echo --test disks --test machines --test become --test hosts_as_they_are)

# Programs that the tests run, with their Debian packages. The second line is driven by its screens.
PROGRAMS = sshd:openssh-server ssh:openssh-client curl:curl rsync:rsync rg:ripgrep openssl:openssl nginx:nginx-light tmux:tmux \
	script:util-linux ps:procps perl:perl tcsh:tcsh fish:fish ksh:ksh mksh:mksh busybox:busybox \
	sudo:sudo doas:opendoas vim:vim htop:htop less:less dialog:dialog mc:mc nano:nano python3:python3 vttest:vttest asciinema:asciinema

test:  ## Install OpenSSH if it is missing, then run all tests but those that need containers or foreign clients
	@fixtures/need $(PROGRAMS)
	cargo build --locked --examples
	cargo test --locked $(EACH_TEST) $(OWN_TESTS) $(ROOT_TESTS); tests=$$?; \
		cargo test --locked --workspace --doc && exit $$tests

test-as-user:  ## As root: run the tests as an ordinary user, "sshjobs-test", which is made if it is missing
	@fixtures/need $(PROGRAMS) setpriv:util-linux useradd:passwd
	@id sshjobs-test >/dev/null 2>&1 || useradd --create-home --gid tty --shell /bin/bash sshjobs-test
	cargo build --locked --examples
	TEST_USER=sshjobs-test cargo test --locked $(EACH_TEST) $(OWN_TESTS)

test-clients:  ## Let MCP's own SDKs and Inspector call every tool, and a hostile SSH server try its luck
	@fixtures/need sshd:openssh-server ssh:openssh-client python3:python3 faketime:faketime
	cargo build --locked --example conformance
	TEST_SECONDS=600 fixtures/clients/with-clients cargo test --locked $(EACH_TEST) --test clients

test-page:  ## Drive the live page in Chromium, which is installed if it is missing
	@fixtures/need sshd:openssh-server ssh:openssh-client python3:python3 chromium:chromium
	TEST_SECONDS=180 TEST_THREADS=2 fixtures/clients/with-clients cargo test --locked $(EACH_TEST) --test page

# Tests of one server that hold for three replicas behind a proxy, too. Excluded: tests of one process (its
# memory, metrics, file of tokens, limits of failed logins, end and restart).
WITH_REPLICAS = order::jobs_of_a_queue order::a_job_starts http:: files_http:: questions:: attach:: forwards:: fleets::callers http_attacks::a_body \
	--skip a_pipe_in_place --skip that_survives_a_restart --skip a_closed_response --skip continues_at_another_server \
	--skip a_server_that --skip failed_logins --skip through_a_restart --skip a_killed_server --skip attaches_through_a_server

test-cluster:  ## Run the tests of replicas over NATS, which is installed below target/
	@fixtures/need sshd:openssh-server ssh:openssh-client python3:python3
	fixtures/nats/with-nats cargo test --locked --package sshjobs-nats -- --include-ignored
	TEST_THREADS=3 fixtures/nats/with-nats cargo test --locked $(EACH_TEST) --test cluster
	SSHJOBS_TEST_REPLICAS=3 TEST_THREADS=3 fixtures/nats/with-nats \
		cargo test --locked $(EACH_TEST) --test sshd -- $(WITH_REPLICAS)

test-old-nats:  ## Run the suite of the stores over the oldest NATS that is supported
	NATS_VERSION=2.10.26 fixtures/nats/with-nats cargo test --locked --package sshjobs-nats -- --include-ignored

# Suites that are slow and rarely fail. A scheduled workflow runs it (.github/workflows/nightly.yml).
nightly:  ## Run what .ci/run leaves out: each crate alone, another user, an old NATS, packages in containers, the whole simulation, torture
	$(MAKE) crates
	$(MAKE) simulation
	[ "$$(id -u)" != 0 ] || $(MAKE) test-as-user
	$(MAKE) test-old-nats
	$(MAKE) torture
	$(MAKE) test-packages

torture:  ## Break everything between durable jobs and their readers, for two minutes; SSHJOBS_TORTURE_PART=1 for half an hour
	@fixtures/need sshd:openssh-server ssh:openssh-client perl:perl
	@# Root's runs lose packets, and fill a disk.
	@[ "$$(id -u)" != 0 ] || fixtures/need ip:iproute2 iptables:iptables mount:mount
	TEST_SECONDS=7500 cargo test --locked $(EACH_TEST) --test torture -- --nocapture

soak:  ## Start twenty jobs a second through all faces, for two hours or SSHJOBS_SOAK_MINUTES; look at memory and open files
	@fixtures/need sshd:openssh-server ssh:openssh-client perl:perl
	cargo build --locked
	TEST_SECONDS=9000 cargo test --locked $(EACH_TEST) --test soak -- --nocapture

interleavings:  ## Run the threads that store a job's output, its recorder and its readers in 12,000 orders (shuttle)
	RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target}/shuttle \
		cargo test --locked --package sshjobs-core $(EACH_TEST) --lib interleavings

simulation:  ## Simulate the runner with faults, from 100,000 seeds, for five minutes
	SSHJOBS_SIMULATION_SEEDS=100000 TEST_SECONDS=3600 cargo test --locked --package sshjobs-core $(EACH_TEST) --lib simulation

test-containers:  ## Run the contract's tests, and one suite over a fleet of hosts, in containers (docker-compose.yml)
	@fixtures/need ssh-keygen:openssh-client
	TEST_SECONDS=600 TEST_THREADS=2 fixtures/sshd/with-containers $(MAKE) --no-print-directory tests-in-containers

# Called by the target above, while the containers run.
tests-in-containers:
	cargo test --locked $(EACH_TEST) --test sshd -- contract:: terminal::; tests=$$?; \
		cargo test --locked $(EACH_TEST) --test fleet --test image && exit $$tests

dist:  ## Build the packages of a release in target/dist
	packaging/dist

reproduce:  ## Build the packages of target/dist again, in another directory, and compare them
	packaging/reproduce

site:  ## Build the documentation in target/site, and check its links
	packaging/site

test-packages: dist  ## Build the packages, then install and use each of them in containers
	@$(MAKE) --no-print-directory test-in-all-containers SUITES=tests-of-packages

# Both suites in the same containers, as .ci/run has them. The packages must have been built.
SUITES = tests-in-containers tests-of-packages
CHECKS_OF_PACKAGES = objdump:binutils lintian:lintian systemd-analyze:systemd promtool:prometheus
test-in-all-containers:
	@fixtures/need $(CHECKS_OF_PACKAGES) ssh-keygen:openssh-client
	TEST_SECONDS=600 TEST_THREADS=2 packaging/tools/with-tools fixtures/sshd/with-containers \
		$(MAKE) --no-print-directory $(SUITES)

tests-of-packages:
	packaging/tools/lint
	cargo test --locked $(EACH_TEST) --test packages

screenshots:  ## Take the pictures of the page for README and docs
	@fixtures/need sshd:openssh-server ssh:openssh-client python3:python3 chromium:chromium
	SCREENSHOTS=$(CURDIR)/docs fixtures/clients/with-clients \
		cargo test --locked --test page -- --ignored --nocapture pictures_of_the_page

picture:  ## Record the demo and draw docs/demo.svg, the picture of the README
	@fixtures/need script:util-linux python3:python3
	cargo build --locked
	fixtures/picture target/debug/sshjobs

bench:  ## Measure sshjobs beside other programs; PARTS="spawn ring" for some of it. Needs PyPI; writes target/bench
	@fixtures/need sshd:openssh-server ssh:openssh-client python3:python3 rg:ripgrep rsync:rsync parallel:parallel /usr/bin/time:time
	fixtures/with-packages fixtures/peers fixtures/nats/with-nats \
		sh -c 'PATH=$$PACKAGES/venv/bin:$$PATH exec cargo bench --locked --bench sshjobs -- $(PARTS)'

tokens:  ## Play twelve tasks with sshjobs, with ssh in a shell and with three MCP servers; write calls, bytes and tokens of each to docs/tokens.md
	@fixtures/need sshd:openssh-server ssh:openssh-client python3:python3 tmux:tmux script:util-linux ps:procps
	cargo build --locked
	fixtures/with-packages fixtures/tokens python3 fixtures/tokens/measure.py $(or $(CARGO_TARGET_DIR),target)/debug/sshjobs docs/tokens.md

fuzz:  ## Fuzz each parser with libFuzzer for SECONDS (600); needs Rust's nightly toolchain
	@command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
	fuzz/hunt $(SECONDS)

mutants:  ## Break each expression of a crate in turn (ROOM=output, policy, job …), and list the changes that no unit test notices
	fixtures/mutants $(ROOM)

coverage:  ## Count how many lines of each crate the unit tests and those against sshd execute; needs LLVM's tools
	@fixtures/need $(PROGRAMS) jq:jq
	fixtures/coverage
