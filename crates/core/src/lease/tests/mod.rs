//! Scenarios with one machine and three reference nodes, which answer at once unless the scenario says otherwise.
//!
//! Every input is followed by the checks of [`crate::invariants`]. The life of the keys is read from the nodes.

mod acquire;
mod adopt;
mod broken;
mod end;
mod jump;
mod keep;
mod key_read;
mod late;
mod planted;
mod proposals;
mod returns;
mod schedule;

use super::*;
use crate::backoff::{Backoff, Entropy};
use crate::check::Mutant;
use crate::check::reference::{Call, Node as Server};
use crate::invariants;
use crate::marker::Membership;
use crate::op::{Holder, Op, Token};
use crate::quorum::Quorum;
use crate::time::{Drift, Millis};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

const TTL: u64 = 30_000;
const VALID: u64 = 29_648;
const STOP: u64 = 18_648;
const KEYS: [&str; 2] = ["a", "b"];

pub(super) fn config() -> Config {
    Config {
        quorum: Quorum::of(3).unwrap(),
        ttl: Millis(TTL),
        renew_interval: Millis(5000),
        stop_budget: Millis(11_000),
        command_timeout: Millis(500),
        drift: Drift::STANDARD,
        backoff: Backoff::exponential(100, 10_000, 10),
        deadline: OnDeadline::Seal,
    }
}

/// How a node treats requests.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Link {
    Up,
    /// The connection breaks at once.
    Down,
    /// The request is executed, and the answer is lost.
    Deaf,
    /// There is no connection: nothing is sent.
    Away,
    /// Nothing is executed, and the request is given up at its deadline.
    Silent,
    /// The request is executed at once and answered so many milliseconds later.
    Slow(u64),
}

struct Scenario {
    lease: Lease,
    mutant: Option<Mutant>,
    servers: Vec<Server<&'static str>>,
    /// The keys of the requests.
    keys: &'static [&'static str],
    links: [Link; 3],
    now: u64,
    /// Answers that have arrived.
    inbox: VecDeque<Input>,
    /// Requests that are not answered yet, with when and how they will be.
    pending: Vec<(Time, Round, Node, Vote)>,
    published: Vec<TermId>,
    renewals: Vec<Renewal>,
    sent: Vec<(Node, Op)>,
    shown: Vec<View>,
    /// A node has lost keys: the life of the keys says nothing any more.
    forgot: bool,
    /// The first rule that was broken. Without a planted bug the scenario panics instead.
    broken: Option<String>,
    attempts: u64,
}

fn marker(server: &Server<&'static str>) -> crate::marker::Marker {
    Membership { generation: 1, fingerprint: "f".into() }.marker(server.run_id.clone())
}

impl Scenario {
    fn new() -> Self {
        Self::with(config(), None)
    }

    fn with(config: Config, mutant: Option<Mutant>) -> Self {
        let servers = ["r0", "r1", "r2"].map(|run_id| {
            let mut server = Server { fence: Some(1000), mutant, ..Server::new(run_id.into()) };
            server.marker = Some(marker(&server));
            server
        });
        Self {
            lease: Lease::new(config).with_mutant(mutant),
            mutant,
            servers: servers.into(),
            keys: &KEYS,
            links: [Link::Up; 3],
            now: 1_000_000,
            inbox: VecDeque::new(),
            pending: Vec::new(),
            published: Vec::new(),
            renewals: Vec::new(),
            sent: Vec::new(),
            shown: Vec::new(),
            forgot: false,
            broken: None,
            attempts: 0,
        }
    }

    /// The process holds a term.
    fn holding() -> (Self, TermId) {
        let mut scenario = Self::new();
        let id = scenario.held();
        (scenario, id)
    }

    /// An attempt was refused: another program holds the lease on two nodes, for so long.
    fn refused(ttls: [u64; 2]) -> Self {
        let mut scenario = Self::new();
        (0..).zip(ttls).for_each(|(node, ttl)| scenario.another_holds(node, 77, ttl));
        scenario.want();
        scenario
    }

    /// The process is started again and knows nothing of the lease.
    fn restart(&mut self, config: Config) {
        self.lease = Lease::new(config).with_mutant(self.mutant);
        self.pending.clear();
    }

    /// A restarted process adopts the term that it held before, and reaches no node.
    fn adopting_alone(config: Config) -> (Self, TermId) {
        let (mut scenario, id) = Self::holding();
        scenario.restart(config);
        scenario.links = [Link::Down; 3];
        scenario.give(Command::Adopt(id.clone()));
        (scenario, id)
    }

    fn want(&mut self) -> Attempt {
        self.want_above(0, None)
    }

    /// Wants the lease with a token above `floor`, and proposes one.
    fn want_above(&mut self, floor: u64, proposal: Option<u64>) -> Attempt {
        self.attempts += 1;
        let (attempt, entropy) = (Attempt(u128::from(self.attempts)), Entropy(u64::MAX / 2));
        let (floor, proposal) = (Token(floor), proposal.map(Token));
        let fresh = Fresh { attempt, floor, entropy, jumped_at: None, proposal };
        self.give(Input::Command(Command::Want(Holder("pod".into())), Some(fresh)));
        attempt
    }

    /// Feeds one input, and then every answer that comes at once.
    fn give(&mut self, input: impl Into<Input>) {
        self.inbox.push_back(input.into());
        while let Some(input) = self.inbox.pop_front() {
            self.feed(input);
        }
    }

    fn feed(&mut self, input: Input) {
        let believed = self.believed();
        self.lease.handle(Time(self.now), input);
        self.check();
        let effects: Vec<Effect> = core::iter::from_fn(|| self.lease.poll_effect()).collect();
        if believed.is_some() && self.believed() != believed {
            self.check_order(&effects);
        }
        for effect in effects {
            match effect {
                Effect::Send { round, node, op, give_up_at } => self.send(round, node, op, give_up_at),
                Effect::Publish(id) => self.published.push(id),
                Effect::Renewed(renewal) => self.renewals.push(renewal),
                Effect::Changed(view) => self.shown.push(view),
                Effect::Broken(broken) => self.fail(format!("{broken:?}")),
            }
        }
    }

    /// The attempt that the machine believes in.
    fn believed(&self) -> Option<Attempt> {
        self.term().filter(|term| term.valid_until.is_some()).map(|term| term.id.attempt)
    }

    fn check(&mut self) {
        let (now, view) = (Time(self.now), self.lease.view());
        let within_keys = || match view.standing.term() {
            Some(TermView { id, valid_until: Some(until), .. }) if !self.forgot => {
                let lives = (0..3).filter_map(|node| self.life(node, id.attempt));
                invariants::belief_within_keys(self.lease.config().quorum, Drift::STANDARD, now, *until, lives)
            }
            _ => Ok(()),
        };
        let broken = invariants::local(now, view).and_then(|()| within_keys());
        if let Err(violation) = broken {
            self.fail(violation.to_string());
        }
    }

    /// A belief that ends is shown before any request.
    fn check_order(&mut self, effects: &[Effect]) {
        let shown = effects.iter().position(|effect| matches!(effect, Effect::Changed(_)));
        let asked = effects.iter().position(|effect| matches!(effect, Effect::Send { .. }));
        if asked.is_some_and(|asked| shown.is_none_or(|shown| asked < shown)) {
            self.fail(format!("a belief ends, and a request comes before it is shown: {effects:?}"));
        }
    }

    fn fail(&mut self, what: String) {
        assert!(self.mutant.is_some(), "{what}");
        self.broken.get_or_insert(what);
    }

    /// The least remaining life of the keys of this attempt on one node, if it holds them all.
    fn life(&self, node: usize, attempt: Attempt) -> Option<Millis> {
        let entry = |key| self.servers[node].entry(&key, self.now).filter(|entry| entry.value.attempt == attempt);
        let ends = entry("a")?.ends.min(entry("b")?.ends);
        Some(Millis(ends - self.now))
    }

    fn send(&mut self, round: Round, node: Node, op: Op, give_up_at: Time) {
        self.sent.push((node, op.clone()));
        let link = self.links[node.index()];
        let vote = match link {
            Link::Up | Link::Deaf | Link::Slow(_) => self.execute(node.index(), op, give_up_at),
            Link::Away => Vote::Abstained,
            Link::Down | Link::Silent => Vote::Unknown,
        };
        match link {
            Link::Up | Link::Away | Link::Down => self.inbox.push_back(Input::Vote { round, node, vote }),
            Link::Deaf => self.inbox.push_back(Input::Vote { round, node, vote: Vote::Unknown }),
            Link::Silent => self.pending.push((give_up_at, round, node, vote)),
            Link::Slow(delay) => self.pending.push((Time(self.now + delay), round, node, vote)),
        }
    }

    fn execute(&mut self, node: usize, op: Op, give_up_at: Time) -> Vote {
        let server = &mut self.servers[node];
        let call = Call { keys: self.keys.to_vec(), marker: marker(server), deadline: give_up_at.0, op };
        server.vote(self.now, &call)
    }

    /// Answers a pending request of one node, with what the node said or with something else.
    fn answer(&mut self, node: u8, vote: Option<Vote>) {
        let place = self.pending.iter().position(|(_, _, to, _)| to.0 == node).expect("a pending request");
        let (_, round, node, said) = self.pending.remove(place);
        self.give(Input::Vote { round, node, vote: vote.unwrap_or(said) });
    }

    fn written(&mut self) -> TermId {
        let id = self.published.last().expect("a publication").clone();
        self.give(Command::Published { attempt: id.attempt, outcome: Publication::Written });
        id
    }

    /// Lets time pass to `until`. The machine is woken when it asks for it, and pending requests are answered.
    fn pass_to(&mut self, until: u64) {
        loop {
            let answered = self.pending.iter().map(|(at, ..)| at.0).min();
            let next = [self.lease.next_deadline().map(|at| at.0), answered].into_iter().flatten().min();
            let Some(next) = next.filter(|&next| next <= until) else { break };
            self.now = self.now.max(next);
            let now = self.now;
            if let Some(at) = self.pending.iter().position(|(at, ..)| at.0 <= now) {
                let (_, round, node, vote) = self.pending.remove(at);
                self.give(Input::Vote { round, node, vote });
            }
            self.give(Input::Wake);
        }
        self.now = until;
        self.give(Input::Wake);
    }

    fn pass(&mut self, span: u64) {
        self.pass_to(self.now + span);
    }

    fn held(&mut self) -> TermId {
        self.want();
        self.written()
    }

    fn standing(&self) -> &Standing {
        &self.lease.view().standing
    }

    /// The term is adopted from `start` on and no majority confirms it: it becomes unconfirmed after 5 s, and then is lost.
    fn is_lost_unconfirmed(&mut self, start: u64, attempt: Attempt) {
        self.pass_to(start + 4999);
        assert!(matches!(self.standing(), Standing::Adopting(_)));
        self.pass_to(start + 5000);
        assert!(matches!(self.standing(), Standing::Uncertain(_)));
        self.give(Command::UnconfirmedShown(attempt));
        self.pass_to(start + 30_301);
        assert!(matches!(self.standing(), Standing::Uncertain(_)));
        self.pass_to(start + 30_302);
        assert_eq!(self.end_reason(), Some(EndReason::NeverConfirmed));
    }

    /// The running term.
    fn term(&self) -> Option<&TermView> {
        self.standing().term()
    }

    fn ending(&self) -> Option<&EndingView> {
        self.lease.view().ending.as_deref()
    }

    fn end_reason(&self) -> Option<EndReason> {
        self.ending().map(|ending| ending.reason)
    }

    fn sealed(&self) -> Option<bool> {
        self.ending().map(|ending| ending.sealed)
    }

    fn keys_until(&self) -> Option<Time> {
        self.ending().map(|ending| ending.keys_until)
    }

    /// The attempt of the term that is shown as the holder.
    fn refused_by(&self) -> Option<Attempt> {
        self.lease.view().refused_by.as_ref().map(|by| by.attempt)
    }

    fn values(&self, node: usize) -> Vec<String> {
        let value = |key| self.servers[node].entry(&key, self.now).map(|entry| entry.value.to_string());
        KEYS.into_iter().filter_map(value).collect()
    }

    /// The node loses its keys, and votes on. A real node would be quarantined.
    fn drop_keys(&mut self, node: usize) {
        self.servers[node].keys.clear();
        self.forgot = true;
    }

    /// The clock of the process stands still while those of the nodes go on for `lost` ms.
    fn lose(&mut self, lost: u64) {
        for server in &mut self.servers {
            server.keys.values_mut().for_each(|entry| entry.ends -= lost);
        }
    }

    /// Another program acquires the keys on `node`. Returns the vote.
    fn acquire_elsewhere(&mut self, node: usize, attempt: u128, proposal: Option<u64>, ttl: u64) -> Vote {
        let (proposal, holder) = (proposal.map(Token), Holder("another".into()));
        let op = Op::Acquire { attempt: Attempt(attempt), proposal, ttl: Millis(ttl), holder };
        self.execute(node, op, Time(u64::MAX))
    }

    /// Another attempt takes the keys on `node`.
    fn contend(&mut self, node: usize) {
        assert!(matches!(self.acquire_elsewhere(node, 77, None, TTL), Vote::Granted(_)));
    }

    /// Another program has a confirmed term on `node`.
    fn another_holds(&mut self, node: usize, attempt: u128, ttl: u64) {
        let Vote::Granted(grant) = self.acquire_elsewhere(node, attempt, None, ttl) else { panic!("not granted") };
        let confirm = Op::Confirm { attempt: Attempt(attempt), grant, token: Token(2000) };
        let confirmed = self.execute(node, confirm, Time(u64::MAX));
        assert!(matches!(confirmed, Vote::Confirmed { .. }), "{confirmed:?}");
    }

    fn is_held(&self) -> bool {
        matches!(self.standing(), Standing::Held(_))
    }

    /// How many requests of this kind were sent.
    fn count(&self, kind: &str) -> usize {
        self.sent.iter().filter(|(_, op)| name(op) == kind).count()
    }

    fn has_sent(&self, kind: &str) -> bool {
        self.count(kind) > 0
    }

    /// The kinds of the requests to one node.
    fn sent_to(&self, node: u8) -> Vec<&'static str> {
        self.sent.iter().filter(|(to, _)| to.0 == node).map(|(_, op)| name(op)).collect()
    }
}

fn name(op: &Op) -> &'static str {
    match op {
        Op::Acquire { .. } => "acquire",
        Op::Confirm { .. } => "confirm",
        Op::Extend { .. } => "extend",
        Op::Seal { .. } => "seal",
        Op::Release { .. } => "release",
        Op::Keep { .. } => "keep",
    }
}

fn term_value(attempt: Attempt, token: u64) -> String {
    format!("t:{attempt}:{token}:pod")
}
