//! Runs steps of the lease machine many times, so that a profiler can count their instructions.
//!
//! ```text
//! steps acquire 1000      # attempts that three nodes grant and confirm, each until the end of its release
//! steps renew 1000        # rounds that renew 100 leases on three nodes
//! ```
#![allow(clippy::unwrap_used, reason = "a failed step ends the count")]

use std::process::ExitCode;

use redislease_core::backoff::{Backoff, Entropy};
use redislease_core::lease::{Command, Config, Effect, Fresh, Input, Lease, OnDeadline, Publication, Standing};
use redislease_core::op::{Attempt, Grant, Holder, Op, Token, Vote};
use redislease_core::quorum::Quorum;
use redislease_core::time::{Drift, Millis, Time};

fn config() -> Config {
    Config {
        quorum: Quorum::of(3).unwrap(),
        ttl: Millis(30_000),
        renew_interval: Millis(5000),
        stop_budget: Millis(10_000),
        command_timeout: Millis(500),
        drift: Drift::STANDARD,
        backoff: Backoff::one_attempt(100),
        deadline: OnDeadline::Seal,
    }
}

/// Answers every request with a yes until nothing more is sent.
fn answer_all(lease: &mut Lease, now: Time) {
    let mut sent = Vec::new();
    loop {
        while let Some(effect) = lease.poll_effect() {
            if let Effect::Send { round, node, op, .. } = effect {
                let vote = match op {
                    Op::Acquire { .. } => Vote::Granted(Grant::Numbered(7)),
                    Op::Confirm { .. } => Vote::Confirmed { ttl_left: Millis(30_000) },
                    Op::Extend { .. } => Vote::Extended,
                    Op::Seal { .. } => Vote::Sealed { ttl_left: Millis(30_000) },
                    Op::Release { .. } | Op::Keep { .. } => Vote::Released(1),
                };
                sent.push(Input::Vote { round, node, vote });
            }
        }
        if sent.is_empty() {
            return;
        }
        sent.drain(..).for_each(|vote| lease.handle(now, vote));
    }
}

fn acquire(lease: &mut Lease, now: Time, attempt: u128) {
    let floor = Token(u64::try_from(attempt).unwrap());
    let fresh = Fresh { attempt: Attempt(attempt), floor, entropy: Entropy(7), jumped_at: None, proposal: None };
    lease.handle(now, Input::Command(Command::Want(Holder("pod".into())), Some(fresh)));
    answer_all(lease, now);
    lease.handle(now, Command::Published { attempt: Attempt(attempt), outcome: Publication::Written }.into());
    assert!(matches!(lease.view().standing, Standing::Held(_)), "{:?}", lease.view());
}

/// What to run, and how often.
fn arguments() -> Option<(String, u64)> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, count] = &arguments[..] else { return None };
    Some((what.clone(), count.parse().ok()?))
}

fn main() -> ExitCode {
    match arguments() {
        Some((what, count)) if what == "acquire" => {
            let mut lease = Lease::new(config());
            for number in 1..=count {
                let now = Time(number * 10);
                acquire(&mut lease, now, number.into());
                let term = lease.view().standing.term().unwrap().id.clone();
                lease.handle(now, Command::End { term, proof: true }.into());
                answer_all(&mut lease, now);
                assert!(lease.is_quiet());
            }
        }
        Some((what, count)) if what == "renew" => {
            let mut leases: Vec<Lease> = (0..100).map(|_| Lease::new(config())).collect();
            for (number, lease) in (1..).zip(&mut leases) {
                acquire(lease, Time(10), number);
            }
            for round in 1..=count {
                let now = Time(10 + round * 5000);
                for lease in &mut leases {
                    lease.handle(now, Input::Wake);
                    answer_all(lease, now);
                }
            }
            let held = leases.iter().filter(|lease| matches!(lease.view().standing, Standing::Held(_))).count();
            assert_eq!(held, 100);
        }
        _ => {
            eprintln!("error: say `acquire` or `renew`, and how often, such as `steps renew 1000`");
            return ExitCode::from(64);
        }
    }
    ExitCode::SUCCESS
}
