//! Stores of a workload on an engine of ordered maps. They are the same for all such engines.

/// Defines the methods of `Engine` that return stores, for a `KvEngine` type with clones that share
/// the database.
///
/// This is a macro so that each store is compiled for its engine. A call through a `dyn KvEngine`
/// would add to every measured operation.
macro_rules! kv_stores {
    () => {
        fn link_store(
            &self,
        ) -> rumbench_core::engine::Result<std::sync::Arc<dyn rumbench_core::linkbench::LinkStore>>
        {
            let engine = std::sync::Arc::new(self.clone());
            Ok(std::sync::Arc::new(
                rumbench_core::linkbench::KvLinkStore::new(engine)?,
            ))
        }

        fn table_store(
            &self,
            schema: &'static rumbench_core::tables::TableSchema,
        ) -> rumbench_core::engine::Result<std::sync::Arc<dyn rumbench_core::tables::TableStore>> {
            rumbench_core::tables::kv_table_store(self.clone(), schema)
        }
    };
}

pub(crate) use kv_stores;
