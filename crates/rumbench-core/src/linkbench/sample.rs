//! Reads back a sample of the loaded rows and compares it with the expected rows.

use super::graph::{FIRST_LINK_TYPE, Graph, Purpose};
use super::load::{loaded_link, loaded_node};
use super::store::{LinkConnection, LinkKey};
use crate::error::EngineError;
use crate::random::Random;

/// Number of random ids to check.
const SAMPLE_IDS: u64 = 256;

/// Checks the node, the counts and one link per type of a sample of ids: the id of the longest
/// list, the first and the last id, and random ones.
pub(super) fn check_sample(
    graph: &Graph,
    seed: u64,
    connection: &mut dyn LinkConnection,
) -> Result<(), EngineError> {
    let mut random = Random::keyed(seed, &[Purpose::Sample as u64]);
    let ends = [graph.id_of_rank(0), graph.start_id(), graph.end_id() - 1];
    for id in ends {
        check_id(graph, id, &mut random, connection)?;
    }
    for _ in 0..SAMPLE_IDS {
        let id = graph.start_id() + random.below(graph.nodes());
        check_id(graph, id, &mut random, connection)?;
    }
    Ok(())
}

fn check_id(
    graph: &Graph,
    id: u64,
    random: &mut Random,
    connection: &mut dyn LinkConnection,
) -> Result<(), EngineError> {
    let mut data = Vec::new();
    let time = graph.node_row(id, &mut data);
    let node = loaded_node(id, time, &data);
    let found = connection.read_node(id)?;
    if found
        .as_ref()
        .map(|(kind, version, time, data)| (*kind, *version, *time, &data[..]))
        != Some((node.node_type, node.version, node.time, node.data))
    {
        return Err(wrong("node", &format!("{id}"), &node, &found));
    }
    for index in 0..graph.link_types() {
        let link_type = FIRST_LINK_TYPE + index;
        let expected = graph.count_row(id, index);
        let found = connection.read_count(id, link_type)?;
        if found != expected {
            return Err(wrong(
                "count",
                &format!("({id}, {link_type})"),
                &expected,
                &found,
            ));
        }
        if let Some(count) = expected {
            let id2 = graph.destination(id, link_type, random.below(count.count));
            check_link(
                graph,
                LinkKey {
                    id1: id,
                    link_type,
                    id2,
                },
                connection,
            )?;
        }
    }
    Ok(())
}

fn check_link(
    graph: &Graph,
    key: LinkKey,
    connection: &mut dyn LinkConnection,
) -> Result<(), EngineError> {
    let mut data = Vec::new();
    let time = graph.link_row(key, &mut data);
    let link = loaded_link(key, time, &data);
    let found = connection.read_link(key)?;
    if found
        .as_ref()
        .map(|(visibility, time, version, data)| (*visibility, *time, *version, &data[..]))
        != Some((link.visibility, link.time, link.version, link.data))
    {
        return Err(wrong("link", &format!("{key:?}"), &link, &found));
    }
    Ok(())
}

fn wrong(
    what: &str,
    key: &str,
    expected: &dyn std::fmt::Debug,
    found: &dyn std::fmt::Debug,
) -> EngineError {
    EngineError::Wrong(format!(
        "{what} {key} after the load: expected {expected:?}, found {found:?}"
    ))
}
