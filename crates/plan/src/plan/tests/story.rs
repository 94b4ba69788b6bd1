//! [`Story`] executes the effects of a reconciler: it keeps the facts, records the effects, and answers.

use super::*;

#[derive(Clone)]
pub struct Story {
    pub now: Time,
    pub reconciler: Reconciler,
    pub facts: Facts,
    pub spec: SpecCache,
    /// The effects of the last turn.
    pub effects: Vec<Effect>,
    /// Whether a read of the pods that may be started is answered at once: they are the known ones.
    pub reads_pods: bool,
}

impl Story {
    /// A free lease with the candidates `a` and `b`, on three healthy nodes.
    pub fn new() -> Self {
        let cluster = Arc::new(Cluster { name: "here".into(), uid: "uid-here".into() });
        let identity =
            Identity { cluster, namespace: "jobs".into(), name: "billing".into(), uid: "uid-billing".into() };
        let now = Time(1_000_000);
        let facts = Facts {
            quorum: Arc::new(quorum(1, "f00d")),
            pods_listed: true,
            authority: Authority::Lead,
            permitted: Permitted::ALL,
            allowed: Allowed { scheduling_gate: true, scale: true, suspend: true },
            wall: jiff::Timestamp::from_second(1_795_238_400).unwrap(),
            ..Facts::default()
        };
        let spec = SpecCache::default();
        let mut story = Self {
            now,
            reconciler: Reconciler::new(&(), identity),
            facts,
            spec,
            effects: Vec::new(),
            reads_pods: true,
        };
        story.store(&json!({}), &json!(null));
        story.candidates(&[pod("a"), pod("b")]);
        story
    }

    /// A free lease without a candidate.
    pub fn without_candidates() -> Self {
        let mut story = Self::new();
        story.candidates(&[]);
        story.turn();
        story
    }

    /// The reconciler has asked its keeper to acquire the lease for `a`.
    pub fn wanting_a() -> Self {
        Self::new().asked()
    }

    /// The reconciler has had a turn, and then an answer of the API server: an attempt can begin.
    pub fn asked(mut self) -> Self {
        self.turn();
        self.answer();
        self
    }

    /// `a` has acquired the lease with token 7, and its term is to be published.
    pub fn publishing_by_a() -> Self {
        let mut story = Self::wanting_a();
        story.view(publishing(term(1, 7, "a")));
        story
    }

    /// `a` holds the lease with token 7, and status and labels show it.
    pub fn held_by_a() -> Self {
        let mut story = Self::wanting_a();
        story.holder(pod("a"));
        story.elect(term(1, 7, "a"));
        story.pods();
        story
    }

    /// The resource on the API server.
    pub fn store(&mut self, spec: &serde_json::Value, status: &serde_json::Value) {
        let mut whole = json!({
            "quorumRef": {"name": "default"},
            "candidates": {"selector": {"matchLabels": {"app": "billing"}}},
            "leaseDuration": "30s", "renewInterval": "5s", "gracePeriod": "10s"
        });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let generation = self.facts.lease.as_ref().map_or(1, |lease| lease.metadata.generation.unwrap() + 1);
        let metadata = json!({"name": "billing", "namespace": "jobs", "uid": "uid-billing",
            "generation": generation, "resourceVersion": "10"});
        let object = json!({"apiVersion": "redislease.io/v1alpha1", "kind": "RedisLease", "metadata": metadata,
            "spec": whole, "status": status});
        let lease: RedisLease = serde_json::from_value(object).unwrap();
        self.spec.read(&lease);
        self.facts.lease = Some(Arc::new(lease));
    }

    /// Somebody edits the spec.
    pub fn edit(&mut self, spec: &serde_json::Value) {
        self.store(spec, &self.status_value());
    }

    pub fn lease_mut(&mut self) -> &mut RedisLease {
        Arc::make_mut(self.facts.lease.as_mut().unwrap())
    }

    /// The status on the API server.
    pub fn status(&self) -> &RedisLeaseStatus {
        self.facts.lease.as_ref().unwrap().status.as_ref().unwrap()
    }

    pub fn status_value(&self) -> serde_json::Value {
        serde_json::to_value(self.status()).unwrap()
    }

    pub fn status_mut(&mut self) -> &mut RedisLeaseStatus {
        self.lease_mut().status.as_mut().unwrap()
    }

    pub fn condition_mut(&mut self, of: ConditionType) -> &mut Condition {
        self.status_mut().conditions.iter_mut().find(|condition| condition.type_ == of.as_str()).unwrap()
    }

    /// The spec does not fit the RedisQuorum.
    pub fn unfit(&mut self) {
        let valid = Some(Arc::new(samples::valid_quorum(&json!({"maxLeaseDuration": "15s"}))));
        self.facts.quorum = Arc::new(QuorumFacts { valid, ..(*self.facts.quorum).clone() });
    }

    pub fn candidates(&mut self, pods: &[PodFacts]) {
        let lease = self.facts.lease.as_deref().and_then(|lease| ValidLease::try_from(lease).ok());
        let eligibility = lease.as_ref().map(Eligibility::from).unwrap_or_default();
        let pods = pods.iter().cloned().map(Arc::new);
        self.facts.candidates = CandidateFacts::Known(Arc::new(Electorate::of(pods, &eligibility)));
    }

    /// The facts about the holder's pod.
    pub fn holder(&mut self, pod: PodFacts) {
        self.facts.holder = PodKnowledge::Here(Arc::new(Sighting::now(pod, self.now, None)));
    }

    pub fn turn(&mut self) -> &[Effect] {
        self.effects.clear();
        self.settle()
    }

    fn settle(&mut self) -> &[Effect] {
        self.spec.compare(self.facts.quorum.valid.as_deref());
        self.facts.spec = self.spec.facts().clone();
        self.reconciler.handle(self.now, Event::Facts(Box::new(self.facts.clone())));
        while let Some(effect) = self.reconciler.poll_effect() {
            self.effects.push(effect);
        }
        if self.reads_pods && self.wants(&Effect::Read(Read::Startable)) {
            self.effects.retain(|effect| *effect != Effect::Read(Read::Startable));
            self.reconciler.handle(self.now, Event::StartableRead { answered: true });
            return self.settle();
        }
        &self.effects
    }

    /// Somebody deletes the lease. A finalizer keeps it.
    pub fn lease_is_deleted(&mut self) {
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.facts.wall);
        self.lease_mut().metadata.deletion_timestamp = Some(now);
        self.turn();
    }

    pub fn view(&mut self, view: View) -> &[Effect] {
        self.event(Event::View(view))
    }

    pub fn event(&mut self, event: Event) -> &[Effect] {
        self.reconciler.handle(self.now, event);
        self.turn()
    }

    pub fn pass(&mut self, millis: u64) -> &[Effect] {
        self.now += Millis(millis);
        self.turn()
    }

    /// The API server answers a call.
    pub fn answer(&mut self) -> &[Effect] {
        self.facts.api_answered_at = Some(self.now);
        self.turn()
    }

    /// The API server accepts the status write of the last turn.
    pub fn write(&mut self) -> &[Effect] {
        let status = self.status_to_write();
        self.write_status(status)
    }

    /// The API server accepts this status, which the reconciler has sent.
    pub fn write_status(&mut self, status: Arc<RedisLeaseStatus>) -> &[Effect] {
        let lease = self.watch_shows(status);
        self.event(Event::StatusWritten(StatusOutcome::Written(lease)))
    }

    /// The API server has stored this status, and the watch shows it.
    pub fn watch_shows(&mut self, status: Arc<RedisLeaseStatus>) -> Arc<RedisLease> {
        let lease = self.lease_mut();
        lease.status = Some(Arc::unwrap_or_clone(status));
        let version: u64 = lease.metadata.resource_version.as_ref().unwrap().parse().unwrap();
        lease.metadata.resource_version = Some((version + 1).to_string());
        self.facts.lease.clone().unwrap()
    }

    /// The keeper acquires this term, the API server accepts its publication, and the keeper holds it.
    pub fn elect(&mut self, id: TermId) {
        self.view(publishing(id.clone()));
        self.write();
        self.facts.stop_at = Some(Time(1_000_000_000));
        self.view(held(id));
    }

    /// The term is lost at its deadline, and the API server accepts the status that says so.
    pub fn lose(&mut self, id: TermId) {
        self.view(ending(id, EndReason::Deadline));
        self.write();
    }

    /// The API server stores what this role write wants.
    pub fn role_stored(&mut self, write: RoleWrite) {
        self.apply(&write);
        self.event(Event::RoleWritten { uid: write.uid, outcome: RoleOutcome::Written(None) });
    }

    /// The outcome of the role write of this pod.
    pub fn role_answered(&mut self, pod: &str, outcome: RoleOutcome) {
        self.event(Event::RoleWritten { uid: format!("uid-{pod}"), outcome });
    }

    /// The process is restarted, and has had a turn before the API server has answered it and before it has seen the holder.
    pub fn restart_cold(&mut self) {
        self.restart();
        (self.facts.api_answered_at, self.facts.stop_at, self.facts.holder) = (None, None, PodKnowledge::Unseen);
        self.turn();
    }

    /// The process is restarted, and knows the same facts.
    pub fn restart(&mut self) {
        self.reconciler = Reconciler::new(&(), self.reconciler.identity().clone());
    }

    /// The process was restarted, and has had a turn.
    pub fn restarted(mut self) -> Self {
        self.restart();
        self.turn();
        self
    }

    /// The API server accepts every role write, including those that follow, until none is left. Returns them in order:
    /// pod and role.
    pub fn pods(&mut self) -> Vec<(String, Option<String>)> {
        let mut order = Vec::new();
        loop {
            let writes: Vec<RoleWrite> = self.role_writes();
            if writes.is_empty() {
                return order;
            }
            for write in writes {
                order.push((write.pod.clone(), write.role.map(|role| role.as_str().to_owned())));
                self.apply(&write);
                self.reconciler.handle(
                    self.now,
                    Event::RoleWritten { uid: write.uid.clone(), outcome: RoleOutcome::Written(None) },
                );
            }
            self.turn();
        }
    }

    pub fn apply(&mut self, write: &RoleWrite) {
        if write.dry_run {
            return;
        }
        if self.facts.electorate().is_none() {
            return;
        }
        if let Some(workload) = self.facts.workload() {
            return self.workload_is(written(workload, write));
        }
        let mut pods = self.known_pods();
        for pod in pods.iter_mut().filter(|pod| pod.uid == write.uid) {
            if write.change == PodChange::Delete {
                pod.deletion_grace = Some(core::time::Duration::from_secs(30));
                continue;
            }
            store(write, &mut pod.labels, &mut pod.annotations);
            if write.change == PodChange::Start {
                pod.gates = Box::default();
            }
        }
        self.candidates(&pods);
    }

    /// The candidates, which are known.
    pub fn known_pods(&self) -> Vec<PodFacts> {
        let electorate = self.facts.electorate().expect("candidates are known");
        electorate.pods().map(|pod| pod.as_ref().clone()).collect()
    }

    pub fn pod(&self, name: &str) -> PodFacts {
        self.known_pods().into_iter().find(|pod| pod.name == name).unwrap()
    }

    /// The API server answers a read of the lease, if one is wanted.
    pub fn confirm(&mut self) {
        if self.wants(&Effect::Read(Read::Lease)) {
            self.read_lease();
        }
    }

    /// The API server answers a read of the lease.
    pub fn read_lease(&mut self) -> &[Effect] {
        let lease = self.facts.lease.clone();
        self.event(Event::LeaseRead(Ok(lease)))
    }

    /// The only candidate is this workload.
    pub fn workload_is(&mut self, workload: WorkloadFacts) {
        self.facts.candidates = CandidateFacts::Known(Arc::new(Electorate::of_workload(Arc::new(workload))));
    }
}

/// The API server stores label and annotations.
fn store(write: &RoleWrite, labels: &mut BTreeMap<String, String>, annotations: &mut Annotations) {
    match write.role {
        Some(role) => labels.insert(LABEL.to_owned(), role.as_str().into()),
        None => labels.remove(LABEL),
    };
    write.annotations("billing").iter().for_each(|(key, value)| annotations.set(key, value.as_deref()));
}

/// The workload as the API server stores it after this write.
pub fn written(workload: &WorkloadFacts, write: &RoleWrite) -> WorkloadFacts {
    let mut workload = workload.clone();
    store(write, &mut workload.labels, &mut workload.annotations);
    let version: u64 = workload.resource_version.as_ref().unwrap().parse().unwrap();
    workload.resource_version = Some((version + 1).to_string());
    if let PodChange::Run(run) = write.change {
        workload.run = run;
    }
    workload
}
