//! The stores of a workload on an engine of ordered maps, which are the same for all such engines.

/// The methods of `Engine` that hand out stores, for an engine that is a `KvEngine` whose clones share the database.
///
/// It is a macro because each store is compiled for its engine: a call through a `dyn KvEngine` would stand in every
/// measured operation.
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

        fn row_store(
            &self,
        ) -> rumbench_core::engine::Result<std::sync::Arc<dyn rumbench_core::kv_sequence::RowStore>>
        {
            let engine = std::sync::Arc::new(self.clone());
            Ok(std::sync::Arc::new(
                rumbench_core::kv_sequence::KvRowStore::new(engine),
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
