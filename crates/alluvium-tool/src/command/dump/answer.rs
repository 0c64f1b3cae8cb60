//! Parts that the answers of all dumps have: names of kinds, and the damage at the end.

use alluvium::Error;
use alluvium::base::ValueKind;
use serde_json::Value;

use crate::command::verify::{damage_json, with_causes};
use crate::database::Exit;
use crate::output::{List, advise, fields};

/// Ends a dump with the damage found on the way.
pub fn end(list: List<'_>, count: u64, mut more: Value, damages: &[Error]) -> anyhow::Result<Exit> {
    more["count"] = count.into();
    more["damages"] = damages.iter().map(damage_json).collect();
    list.end(&fields(more))?;
    for damage in damages {
        advise(&format!("alluvium: {}", with_causes(damage)));
    }
    // A file of a newer build is intact, as far as this build can tell.
    if let Some(newer) = damages
        .iter()
        .find(|d| matches!(d, Error::NewerFormat { .. }))
    {
        return Err(newer.clone().into());
    }
    Ok(if damages.is_empty() {
        Exit::Done
    } else {
        Exit::Wrong
    })
}

/// Returns the name of a row's or operation's kind.
pub fn kind_name(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Insert => "insert",
        ValueKind::Put => "put",
        ValueKind::Delete => "delete",
        ValueKind::RangeDelete => "range_delete",
        ValueKind::Pointer => "put_pointer",
        ValueKind::InsertPointer => "insert_pointer",
    }
}
