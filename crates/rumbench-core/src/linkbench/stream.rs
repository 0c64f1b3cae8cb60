//! Requests of one client: operations, rows and contents.
//!
//! A [`RequestStream`] builds one request at a time in buffers that it reuses. It takes the store's
//! answers, because list queries feed the history cache and mode stationary tracks which links
//! exist.

use std::sync::Arc;

use super::access::Access;
use super::config::{Config, Mode, OPERATIONS, Rules};
use super::distribution::{Geometric, LogNormal};
use super::graph::{FIRST_LINK_TYPE, Graph, LINK_DATA_CAP, NODE_DATA_CAP, NODE_TYPE, Purpose};
use super::history::HistoryCache;
use super::payload::PayloadGenerator;
use super::request::{Answer, Operation, Request};
use super::stationary::{ADD_EXISTING, HiddenLinks, REWRITE_EXISTING};
use super::store::{Link, LinkKey, ListQuery, ListResult, Node, WriteOutcome};
use crate::random::Random;

/// Probability that a multi-get targets an existing link, per id.
const GET_EXISTING: f64 = 0.5;
/// Draws for one destination that differs from the previous ones of the request, under classic
/// rules.
const DISTINCT_DRAWS: u32 = 101;
/// Draws, per client, for an existing link that the client owns. Each draw succeeds with a
/// probability of about 1 / `clients`.
const OWNED_DRAWS: u32 = 64;

/// Effect of a link write that mode stationary expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Unknown,
    Hides,
    Reveals,
    Rewrites,
    Misses,
}

/// State that all streams of one trial share.
#[derive(Debug)]
pub struct RequestPlan {
    config: Config,
    graph: Arc<Graph>,
    access: Access,
    cumulative: [f64; OPERATIONS],
    multiget: Geometric,
    link_length: LogNormal,
    node_length: LogNormal,
    now_ms: fn() -> u64,
}

impl RequestPlan {
    /// Creates the plan of one configuration over its graph; `now_ms` returns milliseconds since
    /// the epoch.
    pub fn new(config: &Config, graph: Arc<Graph>, now_ms: fn() -> u64) -> RequestPlan {
        let mut sum = 0.0;
        let cumulative = config.mix.map(|percent| {
            sum += percent;
            sum
        });
        let shape = config.multiget;
        let faithful = config.mode == Mode::Faithful;
        RequestPlan {
            access: Access::new(config),
            graph,
            cumulative,
            multiget: Geometric::new(shape.min, shape.max, shape.probability, faithful),
            link_length: LogNormal::new(config.link_payload.median, LINK_DATA_CAP),
            node_length: LogNormal::new(config.node_payload.median, NODE_DATA_CAP),
            now_ms,
            config: config.clone(),
        }
    }

    /// Returns the access distributions.
    pub fn access(&self) -> &Access {
        &self.access
    }
}

/// Stream of requests of one client.
#[derive(Debug)]
pub struct RequestStream {
    plan: Arc<RequestPlan>,
    state: State,
}

impl RequestStream {
    /// Creates the stream of client number `client`, which is below the configured number of
    /// clients.
    pub fn new(plan: Arc<RequestPlan>, client: u32) -> RequestStream {
        RequestStream {
            state: State::new(&plan, client),
            plan,
        }
    }

    /// Builds the next request.
    pub fn advance(&mut self) -> Operation {
        self.state.advance(&self.plan)
    }

    /// Returns the request built last.
    pub fn request(&self) -> Request<'_> {
        let LinkKey { id1, link_type, .. } = self.state.key;
        match self.state.operation {
            Operation::AddLink => Request::AddLink(self.state.link()),
            Operation::DeleteLink => Request::DeleteLink(self.state.key, self.state.time_ms),
            Operation::UpdateLink => Request::UpdateLink(self.state.link()),
            Operation::CountLink => Request::CountLinks(id1, link_type),
            Operation::MultigetLink => Request::MultigetLinks(id1, link_type, &self.state.id2s),
            Operation::GetLinksList => Request::ListLinks(self.state.query),
            Operation::AddNode => Request::AddNode(self.state.node(1)),
            Operation::UpdateNode => Request::UpdateNode(self.state.node(2)),
            Operation::DeleteNode => Request::DeleteNode(id1),
            Operation::GetNode => Request::GetNode(id1),
        }
    }

    /// Takes the store's answer to the request built last.
    ///
    /// # Errors
    /// Mode stationary knows the right answer: a wrong one returns `Err` with the expected effect.
    pub fn answered(&mut self, answer: Answer) -> Result<(), &'static str> {
        match answer {
            Answer::List(result) => self.state.list_answered(&result),
            Answer::Link(outcome) => return self.state.link_answered(outcome),
            Answer::Other => {}
        }
        Ok(())
    }

    /// Returns the number of links that this client keeps hidden; 0 outside of mode stationary.
    pub fn hidden_links(&self) -> usize {
        self.state.hidden.as_ref().map_or(0, HiddenLinks::count)
    }
}

/// Generators, buffers and the request built last.
#[derive(Debug)]
struct State {
    client: u64,
    random: Random,
    link_adds: PayloadGenerator,
    link_updates: PayloadGenerator,
    node_adds: PayloadGenerator,
    node_updates: PayloadGenerator,
    history: HistoryCache,
    hidden: Option<HiddenLinks>,
    operation: Operation,
    /// Key of a link request; `id1` is the id of a node request.
    key: LinkKey,
    time_ms: u64,
    query: ListQuery,
    history_place: Option<usize>,
    effect: Effect,
    id2s: Vec<u64>,
    data: Vec<u8>,
}

impl State {
    fn new(plan: &RequestPlan, client: u32) -> State {
        let config = &plan.config;
        let mut random = Random::keyed(config.seed, &[Purpose::Client as u64, u64::from(client)]);
        let link_shape = config.effective_shape(&config.link_payload);
        let node_shape = config.effective_shape(&config.node_payload);
        let [add, delete, update] = [config.mix[0], config.mix[1], config.mix[2]];
        let hidden = (config.mode == Mode::Stationary).then(|| {
            HiddenLinks::new(
                client,
                config.clients,
                config.hidden_links,
                add + delete,
                update,
            )
        });
        State {
            client: u64::from(client),
            link_adds: PayloadGenerator::new(link_shape, &mut random),
            link_updates: PayloadGenerator::new(link_shape, &mut random),
            node_adds: PayloadGenerator::new(node_shape, &mut random),
            node_updates: PayloadGenerator::new(node_shape, &mut random),
            history: HistoryCache::new(config.mode == Mode::Faithful),
            hidden,
            random,
            operation: Operation::GetNode,
            key: LinkKey {
                id1: 0,
                link_type: 0,
                id2: 0,
            },
            time_ms: 0,
            query: ListQuery {
                id1: 0,
                link_type: 0,
                time_min: 0,
                time_max: 0,
                offset: 0,
                limit: 0,
            },
            history_place: None,
            effect: Effect::Unknown,
            id2s: Vec::new(),
            data: Vec::new(),
        }
    }

    fn advance(&mut self, plan: &RequestPlan) -> Operation {
        // Only a link write of mode stationary that found no link of its client is drawn again. Its
        // probability is about e^-64.
        loop {
            self.operation = self.draw_operation(plan);
            if self.build(plan) {
                return self.operation;
            }
        }
    }

    fn link(&self) -> Link<'_> {
        Link {
            key: self.key,
            visibility: 1,
            time: self.time_ms,
            version: 0,
            data: &self.data,
        }
    }

    fn node(&self, version: u64) -> Node<'_> {
        Node {
            id: self.key.id1,
            node_type: NODE_TYPE,
            version,
            time: (self.time_ms / 1000) as u32,
            data: &self.data,
        }
    }

    fn draw_operation(&mut self, plan: &RequestPlan) -> Operation {
        let draw = 100.0 * self.random.unit();
        let chosen = plan.cumulative.iter().position(|sum| *sum >= draw);
        // Rounding may leave the last sum below 100.
        let operation = Operation::ALL[chosen.unwrap_or(OPERATIONS - 1)];
        let pair = matches!(operation, Operation::AddLink | Operation::DeleteLink);
        match &self.hidden {
            Some(hidden) if pair && hidden.adds_next(&mut self.random) => Operation::AddLink,
            Some(_) if pair => Operation::DeleteLink,
            _ => operation,
        }
    }

    /// Builds the arguments of the chosen operation; returns false if there are none.
    fn build(&mut self, plan: &RequestPlan) -> bool {
        match self.operation {
            Operation::AddLink | Operation::DeleteLink | Operation::UpdateLink => {
                return self.build_link_write(plan);
            }
            Operation::CountLink => self.choose_list(plan),
            Operation::MultigetLink => self.build_multiget(plan),
            Operation::GetLinksList => self.build_list(plan),
            Operation::AddNode => self.build_node_data(plan),
            Operation::UpdateNode => {
                self.key.id1 = plan.access.node_update(&mut self.random);
                self.build_node_data(plan);
            }
            Operation::DeleteNode => self.key.id1 = plan.access.node_delete(&mut self.random),
            Operation::GetNode => self.key.id1 = plan.access.node_read(&mut self.random),
        }
        true
    }

    fn draw_type(&mut self, plan: &RequestPlan) -> u64 {
        FIRST_LINK_TYPE + self.random.below(plan.graph.link_types())
    }

    /// Draws source and type of a link read.
    fn choose_list(&mut self, plan: &RequestPlan) {
        self.key.id1 = plan.access.link_read(&mut self.random);
        self.key.link_type = self.draw_type(plan);
    }

    /// Draws source and type of a link write.
    fn choose_written_list(&mut self, plan: &RequestPlan) {
        self.key.id1 = plan.access.link_write(&mut self.random);
        self.key.link_type = self.draw_type(plan);
    }

    fn build_link_write(&mut self, plan: &RequestPlan) -> bool {
        let existing = match self.operation {
            Operation::AddLink => ADD_EXISTING,
            _ => REWRITE_EXISTING,
        };
        if self.hidden.is_some() {
            if !self.choose_owned_link(plan, existing) {
                return false;
            }
        } else {
            self.choose_written_list(plan);
            let links = self.list_length(plan);
            self.key.id2 = self.draw_destination(plan, links, existing);
        }
        self.time_ms = (plan.now_ms)();
        self.data.clear();
        let content = match self.operation {
            Operation::AddLink => &self.link_adds,
            Operation::UpdateLink => &self.link_updates,
            _ => return true,
        };
        let length = plan.link_length.draw(&mut self.random);
        content.append(&mut self.random, length, &mut self.data);
        true
    }

    fn list_length(&self, plan: &RequestPlan) -> u64 {
        plan.graph
            .links(self.key.id1, self.key.link_type - FIRST_LINK_TYPE)
    }

    /// Draws a destination. With about the probability `existing` it exists in the loaded list of
    /// `links` links.
    fn draw_destination(&mut self, plan: &RequestPlan, links: u64, existing: f64) -> u64 {
        let LinkKey { id1, link_type, .. } = self.key;
        let id2 = match plan.config.rules {
            Rules::Revised if self.random.unit() >= existing => {
                self.random.below(plan.graph.end_id())
            }
            Rules::Revised => {
                let place = self.random.below(links.max(1));
                plan.graph.destination(id1, link_type, place)
            }
            Rules::Classic => {
                let place = self.random.below(classic_range(links, existing));
                plan.graph.destination(id1, link_type, place)
            }
        };
        if !plan.config.id2_per_client {
            return id2;
        }
        id2 - id2 % u64::from(plan.config.clients) + self.client
    }

    fn build_multiget(&mut self, plan: &RequestPlan) {
        self.choose_list(plan);
        let links = self.list_length(plan);
        let wanted = if plan.config.multiget.single {
            1
        } else {
            plan.multiget.draw(&mut self.random)
        };
        self.id2s.clear();
        let classic = plan.config.rules == Rules::Classic;
        if classic && classic_range(links, GET_EXISTING) <= wanted {
            let LinkKey { id1, link_type, .. } = self.key;
            let all = (0..wanted).map(|place| plan.graph.destination(id1, link_type, place));
            self.id2s.extend(all);
            return;
        }
        for _ in 0..wanted {
            let mut id2 = self.draw_destination(plan, links, GET_EXISTING);
            let mut draws = 1;
            while classic && draws < DISTINCT_DRAWS && self.id2s.contains(&id2) {
                id2 = self.draw_destination(plan, links, GET_EXISTING);
                draws += 1;
            }
            // A store returns one row per distinct id, so the request leaves out repeated ids.
            if !self.id2s.contains(&id2) {
                self.id2s.push(id2);
            }
        }
    }

    fn build_list(&mut self, plan: &RequestPlan) {
        self.history_place = None;
        let share = plan.config.history_percent / 100.0;
        let past = if self.random.unit() < share {
            self.history.pick(&mut self.random)
        } else {
            None
        };
        let (time_max, offset) = match past {
            Some((place, (id1, link_type), time)) => {
                self.history_place = Some(place);
                (self.key.id1, self.key.link_type) = (id1, link_type);
                (time, 1)
            }
            None => {
                self.choose_list(plan);
                (i64::MAX as u64, 0)
            }
        };
        self.query = ListQuery {
            id1: self.key.id1,
            link_type: self.key.link_type,
            time_min: 0,
            time_max,
            offset,
            limit: plan.config.list_limit,
        };
    }

    fn build_node_data(&mut self, plan: &RequestPlan) {
        self.time_ms = (plan.now_ms)();
        self.data.clear();
        let content = match self.operation {
            Operation::AddNode => {
                self.key.id1 = 0;
                &self.node_adds
            }
            _ => &self.node_updates,
        };
        let length = plan.node_length.draw(&mut self.random);
        content.append(&mut self.random, length, &mut self.data);
    }
}

/// Returns the number of destinations of which a share of `existing` is loaded, under classic
/// rules.
fn classic_range(links: u64, existing: f64) -> u64 {
    ((links as f64 / existing).ceil() as u64).max(1)
}

/// Mode stationary, and the handling of answers.
impl State {
    /// Chooses a link of this client; returns false if none was found.
    fn choose_owned_link(&mut self, plan: &RequestPlan, existing: f64) -> bool {
        let wants_existing = self.random.unit() < existing;
        if self.operation != Operation::DeleteLink && !wants_existing {
            let revived = self
                .hidden
                .as_ref()
                .and_then(|hidden| hidden.pick(&mut self.random));
            if let Some(key) = revived {
                (self.key, self.effect) = (key, Effect::Reveals);
                return true;
            }
        }
        let misses = self.operation == Operation::DeleteLink && !wants_existing;
        for _ in 0..OWNED_DRAWS * plan.config.clients {
            self.choose_written_list(plan);
            self.key.id2 = if misses {
                self.random.below(plan.graph.end_id())
            } else {
                self.key.id1 + self.random.below(self.list_length(plan))
            };
            let Some(hidden) = self.hidden.as_ref().filter(|hidden| hidden.owns(self.key)) else {
                continue;
            };
            let loaded = !misses || plan.graph.is_loaded(self.key);
            let visible = loaded && !hidden.contains(self.key);
            self.effect = match (self.operation, visible) {
                (Operation::DeleteLink, true) => Effect::Hides,
                (Operation::DeleteLink, false) => Effect::Misses,
                _ => Effect::Rewrites,
            };
            if visible || misses {
                return true;
            }
        }
        false
    }

    fn list_answered(&mut self, result: &ListResult) {
        let full = result.rows >= self.query.limit as u64;
        let last = result.last.filter(|_| full);
        match (self.history_place, last) {
            (Some(place), Some((time, _))) => self.history.advance(place, time),
            (Some(place), None) => self.history.remove(place),
            (None, Some((time, _))) => {
                let key = (self.query.id1, self.query.link_type);
                self.history.add(key, time, &mut self.random);
            }
            (None, None) => {}
        }
    }

    /// Updates the pool by the request, not by the answer: this also works on an engine that keeps
    /// no rows.
    fn link_answered(&mut self, outcome: WriteOutcome) -> Result<(), &'static str> {
        let Some(hidden) = &mut self.hidden else {
            return Ok(());
        };
        let (right, expected) = match self.effect {
            Effect::Hides => (outcome == WriteOutcome::Changed, "hide a visible link"),
            Effect::Reveals => (
                outcome == WriteOutcome::Revived,
                "make a hidden link visible",
            ),
            Effect::Rewrites => (
                matches!(outcome, WriteOutcome::Changed | WriteOutcome::Nothing),
                "rewrite a visible link",
            ),
            Effect::Misses => (outcome == WriteOutcome::Nothing, "find no link"),
            Effect::Unknown => (true, ""),
        };
        match self.effect {
            Effect::Hides => hidden.insert(self.key),
            Effect::Reveals => hidden.remove(self.key),
            _ => {}
        }
        if right { Ok(()) } else { Err(expected) }
    }
}
