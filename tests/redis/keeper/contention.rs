//! Many processes and terms on one timeline: the observations of each process are merged and checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redislease_core::invariants::{Claim, one_holder, tokens_grow};
use redislease_core::lease::{Config, Publication, Standing};
use redislease_core::op::{Attempt, Token};
use redislease_core::time::{Millis, Time};
use redislease_lab::{Numbers, RedisServer};
use redislease_lock::clock;

use super::candidate::{Candidate, lease, ready, voters};
use super::history::History;
use crate::support::PATIENCE;

/// The number of terms of all processes together after which the test ends.
const TERMS: usize = 150;
/// The number of terms of each process after which the test ends.
const EACH: usize = 5;
const DEADLINE: Duration = Duration::from_secs(90);

async fn rest(choices: &mut Numbers, most: u64) {
    tokio::time::sleep(Duration::from_millis(choices.below(most))).await;
}

/// The environment variable with the seed of a run to repeat.
const SEED: &str = "REDISLEASE_TEST_SEED";

fn seed() -> u64 {
    match std::env::var(SEED) {
        Ok(text) => text.parse().unwrap_or_else(|_| {
            panic!("{SEED}={text} is not a seed: use the number from 0 to 2^64-1 that a run has printed")
        }),
        Err(std::env::VarError::NotPresent) => clock::unix_micros(),
        Err(error) => panic!("{SEED}: {error}"),
    }
}

/// A term as one process observed it.
struct ObservedTerm {
    began: Time,
    claim: Claim,
}

/// The terms that a process held, each from its view until a contrary view or the end of its validity.
fn observed_terms(history: &History) -> Vec<ObservedTerm> {
    let mut began: BTreeMap<Attempt, Time> = BTreeMap::new();
    let mut observed_terms: Vec<ObservedTerm> = Vec::new();
    let mut running: Option<Attempt> = None;
    for (at, view) in &history.observations().views {
        if let Standing::Acquiring(attempt, _) = view.standing {
            began.entry(attempt).or_insert(*at);
        }
        let term = view.standing.term();
        if let (Some(attempt), Some(last)) = (running, observed_terms.last_mut())
            && term.is_none_or(|term| term.id.attempt != attempt)
        {
            last.claim.until = last.claim.until.min(*at);
        }
        running = term.map(|term| term.id.attempt);
        let Some(term) = term else { continue };
        let valid_until = term.valid_until.expect("no term is adopted in this test");
        match observed_terms.last_mut().filter(|last| last.claim.attempt == term.id.attempt) {
            Some(last) => last.claim.until = valid_until,
            None => observed_terms.push(ObservedTerm {
                began: began[&term.id.attempt],
                claim: Claim { attempt: term.id.attempt, token: term.id.token, from: *at, until: valid_until },
            }),
        }
    }
    observed_terms
}

/// Checks I1 and I2 for all terms that share a key. Returns their number, or the violation.
fn check<'a>(observed_terms: impl Iterator<Item = &'a ObservedTerm>) -> Result<usize, String> {
    let mut observed_terms: Vec<&ObservedTerm> = observed_terms.collect();
    observed_terms.sort_by_key(|observed_term| observed_term.claim.from);
    let claims: Vec<Claim> = observed_terms.iter().map(|observed_term| observed_term.claim).collect();
    one_holder(&claims).map_err(|violation| format!("{violation}: {claims:#?}"))?;
    for (index, ObservedTerm { began, claim }) in observed_terms.iter().enumerate() {
        let others = claims.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, claim)| claim.token);
        let before = claims.iter().filter(|claim| claim.from < *began).map(|claim| claim.token).max();
        tokens_grow(claim.token, others, before)
            .map_err(|violation| format!("{violation}: {claim:?} in {claims:#?}"))?;
    }
    let tokens: Vec<Token> = claims.iter().map(|claim| claim.token).collect();
    let grow = tokens.is_sorted_by(|a, b| a < b);
    if grow { Ok(claims.len()) } else { Err(format!("not in the order of holding: {tokens:?}")) }
}

/// Acquires and ends terms until the test ends: mostly with proof, sometimes without, and sometimes a term expires.
async fn compete(candidate: Arc<Candidate>, mut choices: Numbers, done: Arc<AtomicBool>, terms: Arc<AtomicUsize>) {
    while !done.load(Ordering::Relaxed) {
        candidate.want("pod");
        let id = loop {
            let mut watch = candidate.watch();
            let any = watch.wait_for(|view| view.standing.term().is_some());
            match tokio::time::timeout(Duration::from_millis(500), any).await {
                Ok(view) => break view.unwrap().standing.term().map(|term| term.id.clone()),
                Err(_) if done.load(Ordering::Relaxed) => break None,
                Err(_) => {}
            }
        };
        let Some(id) = id else { break };
        terms.fetch_add(1, Ordering::Relaxed);
        match choices.below(10) {
            0 => candidate.published(id.attempt, Publication::Superseded),
            1 => candidate.published(id.attempt, Publication::Unknown),
            _ => candidate.published(id.attempt, Publication::Written),
        }
        rest(&mut choices, 60).await;
        candidate.end(id, choices.below(8) != 0);
        rest(&mut choices, 500).await;
    }
    candidate.forget();
}

/// Stops one server at a time, and sometimes flushes it.
async fn trouble(servers: Arc<Vec<RedisServer>>, mut choices: Numbers, done: Arc<AtomicBool>) {
    while !done.load(Ordering::Relaxed) {
        rest(&mut choices, 1500).await;
        let server = &servers[usize::try_from(choices.below(3)).unwrap()];
        if choices.below(6) == 0 {
            // A busy machine may not answer in time; then the server may or may not be flushed.
            let _ = server.command(&["FLUSHALL"]);
            continue;
        }
        server.process().pause().unwrap();
        rest(&mut choices, 400).await;
        server.process().resume().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn competing_processes_never_hold_together_and_tokens_grow() {
    let seed = seed();
    println!("replay the choices with {SEED}={seed}");
    let servers = Arc::new(voters(3));
    let config = Config {
        ttl: Millis(600),
        renew_interval: Millis(150),
        stop_budget: Millis(100),
        command_timeout: Millis(75),
        ..lease()
    };
    let wants: [&[&str]; 4] = [&["a"], &["a", "b"], &["b"], &["b", "c", "a"]];
    let mut worlds = Vec::new();
    let mut rivals = Vec::new();
    for keys in wants {
        let world = ready(&servers, &config).await;
        rivals.push(Arc::new(Candidate::on(&world, keys, config.clone())));
        worlds.push(world);
    }

    let done = Arc::new(AtomicBool::new(false));
    let counts: Vec<Arc<AtomicUsize>> = wants.iter().map(|_| Arc::default()).collect();
    let mut tasks = Vec::new();
    for ((rival, count), number) in rivals.iter().zip(&counts).zip(1..) {
        let choices = Numbers(seed.wrapping_mul(number));
        tasks.push(tokio::spawn(compete(rival.clone(), choices, done.clone(), count.clone())));
    }
    tasks.push(tokio::spawn(trouble(servers.clone(), Numbers(seed), done.clone())));

    let start = Instant::now();
    let counted = || counts.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>();
    while counted().iter().sum::<usize>() < TERMS || counted().iter().any(|&count| count < EACH) {
        assert!(start.elapsed() < DEADLINE, "too few terms in {DEADLINE:?}: {:?}", counted());
        assert!(tasks.iter().all(|task| !task.is_finished()), "a process gave up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    done.store(true, Ordering::Relaxed);
    for task in tasks {
        tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
    }

    let observed_terms: Vec<_> = rivals.iter().map(|rival| observed_terms(&rival.history)).collect();
    for key in ["a", "b", "c"] {
        let of_key = wants.iter().zip(&observed_terms).filter(|(keys, _)| keys.contains(&key));
        let count = check(of_key.flat_map(|(_, observed_terms)| observed_terms))
            .unwrap_or_else(|wrong| panic!("{SEED}={seed}: {wrong}"));
        println!("key {key}: {count} terms by {:?} in {:?}", counted(), start.elapsed());
    }
}

#[test]
fn the_check_finds_violations() {
    let observed_term = |attempt, token, began, from, until| ObservedTerm {
        began: Time(began),
        claim: Claim { attempt: Attempt(attempt), token: Token(token), from: Time(from), until: Time(until) },
    };
    let good = [observed_term(1, 5, 0, 10, 20), observed_term(2, 6, 5, 20, 30)];
    assert_eq!(check(good.iter()), Ok(2));
    for (bad, complaint) in [
        ([observed_term(1, 5, 0, 10, 21), observed_term(2, 6, 5, 20, 30)], "are live at once"),
        ([observed_term(1, 5, 0, 10, 20), observed_term(2, 5, 5, 20, 30)], "have one token"),
        ([observed_term(1, 5, 0, 10, 20), observed_term(2, 4, 15, 20, 30)], "token is not greater"),
        ([observed_term(1, 5, 0, 10, 20), observed_term(2, 4, 5, 20, 30)], "not in the order of holding"),
    ] {
        let wrong = check(bad.iter()).unwrap_err();
        assert!(wrong.contains(complaint), "{wrong}");
    }
}
