//! Setting keys of LinkBench: one table for reading, printing and explaining them.

use super::config::{Config, Mode, Rules, WORKLOAD};
use super::degree::Numbers;
use crate::settings::{
    ConfigError, Setting, apply, choice, choose, decimal, effective, name_of, number,
    operations_of, owned, refuse_both, seconds_of, setting, whole,
};
use crate::trial::PhaseEnd;

/// Builds the setting of a popularity function.
macro_rules! function {
    ($key:literal, $c:ident => $place:expr) => {
        setting(
            $key,
            "popularity of these ids: zipf or uniform",
            |$c| name_of(&[("zipf", false), ("uniform", true)], &$place),
            |$c, value| popularity(value).map(|x| $place = x),
        )
    };
}

/// All keys, in the order of the guide.
#[rustfmt::skip] // One key a line.
pub const SETTINGS: &[Setting<Config>] = &[
    number!("nodes", "loaded nodes", c => c.nodes, whole(1, 1 << 40)),
    number!("startid1", "id of the first node", c => c.start_id, whole(1, 1 << 40)),
    choice!("numbers", "mix, payload sizes and out-degrees", c => c.numbers, [("2017", Numbers::Y2017), ("2011", Numbers::Y2011)]),
    choice!("rules", "destinations, and what an update does", c => c.rules, [("revised", Rules::Revised), ("classic", Rules::Classic)]),
    choice!("mode", "what becomes of the reference's defects", c => c.mode, [("faithful", Mode::Faithful), ("fixed", Mode::Fixed), ("stationary", Mode::Stationary)]),
    number!("steps", "request phases", c => c.steps, whole(0, 1000)),
    number!("clients", "clients of a request phase", c => c.clients, whole(1, 4096)),
    setting("loaders", "clients of the load; as many as clients if not given",
        |c| Some(c.loaders.unwrap_or(c.clients).to_string()),
        |c, value| whole(value, 1, 4096).map(|x| c.loaders = Some(x as u32))),
    setting("seconds", "length of each request phase in seconds",
        |c| seconds_of(Some(c.end)),
        |c, value| decimal(value, 1e-3, 1e9).map(|x| c.end = PhaseEnd::Seconds(x))),
    setting("operations", "operations of each request phase over all clients",
        |c| operations_of(Some(c.end)),
        |c, value| whole(value, 1, u64::MAX).map(|x| c.end = PhaseEnd::Operations(x))),
    setting("warmup_seconds", "length of the warm-up in seconds; 0: none",
        |c| seconds_of(c.warmup),
        |c, value| decimal(value, 0.0, 1e9).map(|x| c.warmup = (x > 0.0).then_some(PhaseEnd::Seconds(x)))),
    setting("warmup_operations", "operations of the warm-up over all clients; 0: none",
        |c| operations_of(c.warmup),
        |c, value| whole(value, 0, u64::MAX).map(|x| c.warmup = (x > 0).then_some(PhaseEnd::Operations(x)))),
    number!("seed", "decides all data and all requests", c => c.seed, whole(0, u64::MAX)),
    number!("addlink", "percent of ADD_LINK", c => c.mix[0], decimal(0.0, 100.0)),
    number!("deletelink", "percent of DELETE_LINK", c => c.mix[1], decimal(0.0, 100.0)),
    number!("updatelink", "percent of UPDATE_LINK", c => c.mix[2], decimal(0.0, 100.0)),
    number!("countlink", "percent of COUNT_LINK", c => c.mix[3], decimal(0.0, 100.0)),
    number!("getlink", "percent of MULTIGET_LINK", c => c.mix[4], decimal(0.0, 100.0)),
    number!("getlinklist", "percent of GET_LINKS_LIST", c => c.mix[5], decimal(0.0, 100.0)),
    number!("addnode", "percent of ADD_NODE", c => c.mix[6], decimal(0.0, 100.0)),
    number!("updatenode", "percent of UPDATE_NODE", c => c.mix[7], decimal(0.0, 100.0)),
    number!("deletenode", "percent of DELETE_NODE", c => c.mix[8], decimal(0.0, 100.0)),
    number!("getnode", "percent of GET_NODE", c => c.mix[9], decimal(0.0, 100.0)),
    number!("link_type_count", "link types", c => c.link_types, whole(1, 64)),
    setting("nlinks_func", "out-degrees: real, which is the measured table",
        |_| Some("real".to_owned()), |_, value| out_degrees(value)),
    number!("nlinks_max", "most links of one node, over all types; 0: as the table says", c => c.links_max, whole(0, 1 << 40)),
    number!("randomid2max", "destinations of links below this; 0: from id1 up", c => c.random_id2_max, whole(0, 1 << 62)),
    choice!("id2gen_config", "1: every client its own destinations", c => c.id2_per_client, [("0", false), ("1", true)]),
    number!("link_datasize", "median bytes of a link's payload, at most 254", c => c.link_payload.median, whole(1, 254)),
    number!("node_datasize", "median bytes of a node's payload", c => c.node_payload.median, whole(1, 1 << 20)),
    number!("link_datagen_startbyte", "first byte of link payloads", c => c.link_payload.shape.start_byte, whole(0, 255)),
    number!("link_datagen_endbyte", "last byte of link payloads", c => c.link_payload.shape.end_byte, whole(0, 255)),
    number!("link_datagen_uniqueness", "share of chunks that are random bytes", c => c.link_payload.shape.uniqueness, decimal(0.0, 1.0)),
    number!("link_datagen_motif_length", "bytes of the motif buffer (mode faithful: always 512)", c => c.link_payload.shape.motif_bytes, whole(1, 1 << 20)),
    number!("node_datagen_startbyte", "first byte of node payloads", c => c.node_payload.shape.start_byte, whole(0, 255)),
    number!("node_datagen_endbyte", "last byte of node payloads", c => c.node_payload.shape.end_byte, whole(0, 255)),
    number!("node_datagen_uniqueness", "share of chunks that are random bytes", c => c.node_payload.shape.uniqueness, decimal(0.0, 1.0)),
    number!("node_datagen_motif_length", "bytes of the motif buffer (mode faithful: always 512)", c => c.node_payload.shape.motif_bytes, whole(1, 1 << 20)),
    function!("read_function", c => c.reads.correlated.uniform),
    number!("read_shape", "theta of link reads ordered by out-degree", c => c.reads.correlated.theta, theta()),
    function!("read_uncorr_function", c => c.reads.uncorrelated.uniform),
    number!("read_uncorr_shape", "theta of link reads in an order of their own", c => c.reads.uncorrelated.theta, theta()),
    number!("read_uncorr_blend", "percent of link reads in an order of their own", c => c.reads.uncorrelated_percent, decimal(0.0, 100.0)),
    function!("write_function", c => c.writes.correlated.uniform),
    number!("write_shape", "theta of link writes ordered by out-degree", c => c.writes.correlated.theta, theta()),
    function!("write_uncorr_function", c => c.writes.uncorrelated.uniform),
    number!("write_uncorr_shape", "theta of link writes in an order of their own (mode faithful: read_uncorr_shape counts)", c => c.writes.uncorrelated.theta, theta()),
    number!("write_uncorr_blend", "percent of link writes in an order of their own (mode faithful: read_uncorr_blend counts)", c => c.writes.uncorrelated_percent, decimal(0.0, 100.0)),
    function!("node_read_function", c => c.node_reads.uniform),
    number!("node_read_shape", "theta of GET_NODE", c => c.node_reads.theta, theta()),
    function!("node_update_function", c => c.node_updates.uniform),
    number!("node_update_shape", "theta of UPDATE_NODE", c => c.node_updates.theta, theta()),
    function!("node_delete_function", c => c.node_deletes.uniform),
    number!("node_delete_shape", "theta of DELETE_NODE", c => c.node_deletes.theta, theta()),
    choice!("link_multiget_dist", "ids per multi-get; none: one", c => c.multiget.single, [("geometric", false), ("none", true)]),
    number!("link_multiget_dist_min", "fewest ids of a multi-get", c => c.multiget.min, whole(1, 10_000)),
    number!("link_multiget_dist_max", "one above the most ids of a multi-get", c => c.multiget.max, whole(2, 10_000)),
    number!("link_multiget_dist_prob", "success probability of the geometric distribution", c => c.multiget.probability, decimal(1e-3, 0.999)),
    number!("getlinklist_history", "percent of list queries that continue a long list", c => c.history_percent, decimal(0.0, 100.0)),
    number!("getlinklist_limit", "most rows of a list query", c => c.list_limit, whole(1, 1 << 30)),
    number!("bulk_insert_count", "rows of one load commit", c => c.bulk_rows, whole(1, 1 << 20)),
    number!("bulk_insert_kb", "KiB of one commit of nodes; 0: no limit", c => c.bulk_kb, whole(0, 1 << 30)),
    number!("loader_chunk_size", "consecutive ids of one piece of the load", c => c.chunk_ids, whole(1, 1 << 30)),
    number!("loader_split_links", "longer lists are loaded in pieces of this many links", c => c.split_rows, whole(1, 1 << 40)),
    number!("stationary_hidden", "links a client may keep hidden in mode stationary", c => c.hidden_links, whole(8, 1 << 24)),
];

impl Config {
    /// Reads settings; the last value of a repeated key counts. A setting that is not given has the
    /// default of `numbers`.
    ///
    /// # Errors
    /// Fails on an unknown key, a forbidden value (the message names the allowed values), or
    /// settings that exclude each other.
    pub fn from_pairs<K, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Result<Config, ConfigError>
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        let pairs = owned(pairs);
        let mut config = Config::new(Numbers::Y2017);
        // `numbers` chooses the defaults that the other keys override.
        for (key, value) in pairs.iter().filter(|(key, _)| key == "numbers") {
            config.set(key, value)?;
        }
        config = Config::new(config.numbers);
        for (key, value) in &pairs {
            config.set(key, value)?;
        }
        let exclusive = [
            ("seconds", "operations"),
            ("warmup_seconds", "warmup_operations"),
        ];
        refuse_both(WORKLOAD, &pairs, &exclusive)?;
        config.check()?;
        Ok(config)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        apply(WORKLOAD, SETTINGS, self, key, value)
    }

    /// Returns every effective setting as text, in the order of the guide.
    pub fn settings(&self) -> Vec<(String, String)> {
        effective(SETTINGS, self)
    }
}

fn theta(value: &str) -> Result<f64, String> {
    let allowed = || {
        "a number from 0.01 to 10 except 1 is allowed: this form of Zipf cannot be drawn at 1"
            .to_owned()
    };
    let number = decimal(value, 0.01, 10.0).map_err(|_| allowed())?;
    if number == 1.0 {
        Err(allowed())
    } else {
        Ok(number)
    }
}

/// Access functions of the reference without use in published results.
const OTHER_ACCESS: [&str; 6] = [
    "real",
    "round_robin",
    "reciprocal",
    "multiple",
    "power",
    "perfect_power",
];
/// Out-degree functions of the reference without use in published results.
const OTHER_DEGREES: [&str; 5] = [
    "const",
    "reciprocal",
    "multiples",
    "perfect_squares",
    "exponential",
];

fn popularity(value: &str) -> Result<bool, String> {
    if OTHER_ACCESS
        .iter()
        .any(|name| name.eq_ignore_ascii_case(value))
    {
        return Err(
            "this access function of the reference is not reproduced; zipf or uniform is allowed"
                .to_owned(),
        );
    }
    choose(value, &[("zipf", false), ("uniform", true)])
}

fn out_degrees(value: &str) -> Result<(), String> {
    if OTHER_DEGREES
        .iter()
        .any(|name| name.eq_ignore_ascii_case(value))
    {
        return Err(
            "this out-degree function of the reference is not reproduced; real is allowed"
                .to_owned(),
        );
    }
    choose(value, &[("real", ())])
}
