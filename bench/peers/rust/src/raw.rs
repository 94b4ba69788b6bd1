//! The raw limit: the scripts of RedisLease from one thread with one bare pipelined connection to each server. It has no
//! deadlines, no retries, no renewals, and takes the servers' votes as they are. As RedisLease does, it sends what is due
//! at once to one server in few calls.

use std::time::{Duration, Instant};

use redislease_core::driver::Proposals;
use redislease_core::op::{Attempt, Grant, Holder, Op, Stage, Stages, Token, Vote};
use redislease_core::time::Millis;
use redislease_lock::nodes::Keyspace;
use redislease_lock::nodes::script::{self, Extension, Script};
use serde_json::{Value, json};

use crate::ours::membership;
use crate::protocol::{Request, Times, figures, say, unsupported};
use crate::raw_connection::{Connection, Tag, number, wait};

const ACQUIRE: u8 = 1;
const CONFIRM: u8 = 2;
const OTHER: u8 = 0;
/// Leases in one call.
const BATCH: usize = 100;
/// Votes in one call.
const VOTES: usize = 128;
/// A deadline that has not passed.
const NEVER: u64 = (u32::MAX as u64) << 20;

struct Lane {
    key: [String; 1],
    cycle: u64,
    phase: u8,
    began: Instant,
    attempt: Attempt,
    proposal: Option<Token>,
    granted: Vec<(usize, Grant)>,
    confirmed: usize,
    times: Times,
}

struct Raw {
    keyspace: Keyspace,
    connections: Vec<Connection>,
    markers: Vec<String>,
    /// By node: requests that are not sent yet, ends first.
    waiting: Vec<[Vec<Waiting>; 2]>,
    ttl: Millis,
    random: u128,
    proposals: Proposals,
}

type Waiting = ([String; 1], Op, Tag);

impl Raw {
    fn open(request: &Request) -> Self {
        let mut connections: Vec<Connection> = request.nodes.iter().map(|node| Connection::open(node)).collect();
        let mut markers = Vec::new();
        for connection in &mut connections {
            for script in Script::ALL {
                connection.send(&script.load().get_packed_command(), tag(OTHER));
            }
            connection.send(b"GET redislease:marker\r\n", tag(ACQUIRE));
            connection.flush();
            let mut last = Vec::new();
            while connection.in_flight() > 0 {
                wait(std::slice::from_mut(connection));
                connection.receive(|_, parts| last = parts[0].to_vec());
            }
            markers.push(String::from_utf8(last).unwrap());
        }
        assert!(markers.iter().all(|marker| marker.ends_with(&membership().name())), "{markers:?}");
        let random = u128::from(redislease_lock::clock::unix_micros()) << 64;
        let waiting = markers.iter().map(|_| Default::default()).collect();
        Self {
            keyspace: Keyspace::new("redislease"),
            connections,
            markers,
            waiting,
            ttl: Millis(request.ttl_ms),
            random,
            proposals: Proposals::default(),
        }
    }

    fn vote(&mut self, node: usize, key: &[String; 1], op: Op, tag: Tag) {
        let kind = usize::from(!op.is_end());
        self.waiting[node][kind].push((key.clone(), op, tag));
    }

    fn flush(&mut self) {
        for (node, connection) in self.connections.iter_mut().enumerate() {
            for waiting in &mut self.waiting[node] {
                for call in waiting.chunks(VOTES) {
                    let requests = call.iter().map(|(key, op, _)| (&key[..], op));
                    let command = script::votes(&self.keyspace, &self.markers[node], NEVER, requests);
                    connection.send_many(&command.get_packed_command(), call.iter().map(|(.., tag)| *tag).collect());
                }
                waiting.clear();
            }
            connection.flush();
        }
    }

    fn begin(&mut self, lane: &mut Lane, number: usize) {
        self.random = self.random.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
        lane.attempt = Attempt(self.random);
        lane.cycle += 1;
        lane.phase = ACQUIRE;
        lane.granted.clear();
        lane.confirmed = 0;
        lane.began = Instant::now();
        lane.proposal = self.proposals.next(Token(0));
        let (attempt, proposal) = (lane.attempt, lane.proposal);
        let op = Op::Acquire { attempt, proposal, ttl: self.ttl, holder: Holder("bench".into()) };
        for node in 0..self.connections.len() {
            self.vote(node, &lane.key, op.clone(), Tag { lane: number, cycle: lane.cycle, phase: ACQUIRE });
        }
    }

    /// Takes one vote. Whether the lane has ended its cycle.
    fn take(&mut self, lane: &mut Lane, tag: Tag, node: usize, number: u64) -> bool {
        if tag.cycle != lane.cycle || tag.phase != lane.phase {
            return false;
        }
        let majority = self.connections.len() / 2 + 1;
        match tag.phase {
            ACQUIRE => {
                let proposed = lane.proposal.filter(|token| token.0 == number).map(Grant::Proposed);
                let grant = proposed.unwrap_or(Grant::Numbered(number));
                self.proposals.saw(&Vote::Granted(grant));
                lane.granted.push((node, grant));
                if lane.granted.iter().filter(|(_, grant)| grant.stage() == Stage::Term).count() == majority {
                    lane.phase = CONFIRM;
                    return self.release(lane, tag);
                }
                if lane.granted.len() < majority {
                    return false;
                }
                lane.phase = CONFIRM;
                let token = Token(lane.granted.iter().map(|(_, grant)| grant.number()).max().unwrap());
                for place in 0..lane.granted.len() {
                    let (node, grant) = lane.granted[place];
                    let op = Op::Confirm { attempt: lane.attempt, grant, token };
                    self.vote(node, &lane.key, op.clone(), Tag { phase: CONFIRM, ..tag });
                }
                false
            }
            _ => {
                lane.confirmed += 1;
                lane.confirmed == majority && self.release(lane, tag)
            }
        }
    }

    /// The lane has the lock, and releases it.
    fn release(&mut self, lane: &mut Lane, tag: Tag) -> bool {
        lane.times.acquire.push(lane.began.elapsed());
        let began = Instant::now();
        let op = Op::Release { attempt: lane.attempt, stages: Stages::All };
        for node in 0..self.connections.len() {
            self.vote(node, &lane.key, op.clone(), Tag { phase: OTHER, ..tag });
        }
        lane.times.release.push(began.elapsed());
        true
    }
}

const fn tag(phase: u8) -> Tag {
    Tag { lane: 0, cycle: 0, phase }
}

pub fn answer(request: &Request) -> Value {
    match request.what.as_str() {
        "cycles" => cycles(request),
        "renew" => renew(request),
        _ => unsupported(),
    }
}

fn cycles(request: &Request) -> Value {
    let mut raw = Raw::open(request);
    let start = Instant::now();
    let until = start + request.duration();
    let lane = |number| Lane {
        key: [raw.keyspace.lock("bench", &request.key(number))],
        cycle: 0,
        phase: 0,
        began: start,
        attempt: Attempt(0),
        proposal: None,
        granted: Vec::new(),
        confirmed: 0,
        times: Times::default(),
    };
    let mut lanes: Vec<Lane> = (0..request.workers).map(lane).collect();
    for (number, lane) in lanes.iter_mut().enumerate() {
        raw.begin(lane, number);
    }
    let mut replies = Vec::new();
    loop {
        raw.flush();
        if raw.connections.iter().all(|connection| connection.in_flight() == 0) {
            break;
        }
        let ready = wait(&mut raw.connections);
        for node in (0..raw.connections.len()).filter(|node| ready[*node]) {
            raw.connections[node].receive(|tag, parts| {
                let [answer] = parts else { panic!("not a vote") };
                replies.push((tag, number(answer) as u64));
            });
            for (tag, grant) in replies.drain(..) {
                let lane = &mut lanes[tag.lane];
                if raw.take(lane, tag, node, grant) && Instant::now() < until {
                    raw.begin(lane, tag.lane);
                }
            }
        }
    }
    let times = lanes.into_iter().map(|lane| lane.times).collect();
    figures(times, start.elapsed())
}

/// One call for each hundred leases, evenly spread over the interval.
fn renew(request: &Request) -> Value {
    let mut raw = Raw::open(request);
    let keys: Vec<[String; 1]> =
        (0..request.workers).map(|number| [raw.keyspace.lock("bench", &request.key(number))]).collect();
    let (attempt, token) = (Attempt(7), Token(7));
    for connection in &mut raw.connections {
        for [key] in &keys {
            let set = format!("SET {key} t:{attempt}:{token}:bench PX {}\r\n", request.ttl_ms);
            connection.send(set.as_bytes(), tag(OTHER));
        }
    }
    drain(&mut raw.connections);
    say(&json!({"held": keys.len(), "seconds": 0.0}));

    let calls: Vec<Vec<Vec<u8>>> = raw
        .markers
        .iter()
        .map(|marker| {
            let batch = |keys: &[[String; 1]]| {
                let leases = keys.iter().map(|keys| Extension { keys, attempt, token, ttl: raw.ttl });
                script::extend(&raw.keyspace, marker, NEVER, leases).get_packed_command()
            };
            keys.chunks(BATCH).map(batch).collect()
        })
        .collect();
    let step = Duration::from_millis(request.interval_ms) / u32::try_from(keys.len().div_ceil(BATCH)).unwrap();
    let (start, until) = (Instant::now(), Instant::now() + request.duration());
    let mut count: u32 = 0;
    while Instant::now() < until {
        let place = count as usize % calls[0].len();
        for (connection, calls) in raw.connections.iter_mut().zip(&calls) {
            connection.send(&calls[place], tag(OTHER));
        }
        let exceptions = drain(&mut raw.connections);
        assert_eq!(exceptions, 0, "a lease was lost");
        count += 1;
        // Renewals are sent at their interval, as a library does.
        std::thread::sleep((step * count).saturating_sub(start.elapsed()));
    }
    say(&json!({"lost": 0, "renewals": count as usize * BATCH}));
    json!({"done": true})
}

/// Sends, and waits for all answers. Counts the parts beyond those of a call without exceptions.
fn drain(connections: &mut [Connection]) -> usize {
    connections.iter_mut().for_each(Connection::flush);
    let mut exceptions = 0;
    while connections.iter().any(|connection| connection.in_flight() > 0) {
        let ready = wait(connections);
        for (connection, _) in connections.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            connection.receive(|_, parts| exceptions += parts.len().saturating_sub(3));
        }
    }
    exceptions
}
